"""Turn a plan into keep probabilities of the shedders: the plan's own, or lower ones while a backlog is drained.
Pure."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from qod_magics.core.dag import Dag
from qod_magics.core.load import FULL_ACCURACY
from qod_magics.core.plan import Edge, Plan
from qod_magics.core.runtime import Dials, Measured
from qod_magics.core.snapshot import Snapshot, column, differing

# --- Backlogs ---------------------------------------------------------------------------------------------------------
# After a fall of the input rate, a backlog amounts to many seconds of the present input, though it was collected within
# a few. Drained within two periods, like any other backlog, it would cost far more rows than needed. So it is drained
# with the keep probability of the load before the fall, which takes as long as collecting it took. A cycle each second
# checks whether it is gone; then every row is kept. A backlog that was small for the rate processed before is not
# thinned. These cycles go on until no dropped row shows in the accuracy.

#: ordinary backlog between two reads, in periods of input: not drained
ALLOWANCE_PERIODS = 0.2

#: backlog at which a drain begins, in periods of input: above the noise of a steady state; the drain ends at the
#: ordinary backlog (hysteresis)
TRIGGER_PERIODS = 0.5

#: times in which a backlog is drained: for so long at most a cycle a second looks whether no dropped row shows
SETTLED_WITHIN = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The backlogs, in seconds of input, at which drains begin and end. Tasks in `by_task` have limits of their own."""

    rest_s: float  #: the ordinary backlog between two reads: drains end here
    trigger_s: float  #: a drain begins above this backlog
    by_task: Mapping[str, Limits] = field(default_factory=dict)

    def of_task(self, task: str) -> Limits:
        """Return the limits of one task."""
        return self.by_task.get(task, self)

    def begins_drain(self, task: str, backlog: Backlog) -> bool:
        """Return whether a backlog beyond the ordinary one is large enough to begin a drain."""
        mine = self.of_task(task)
        return backlog.rows > (mine.trigger_s - mine.rest_s) * (backlog.rate or 0.0)

    @classmethod
    def usual(cls, period_s: float) -> Limits:
        """Return the limits under a policy that sets none."""
        return cls(ALLOWANCE_PERIODS * period_s, TRIGGER_PERIODS * period_s)

    @classmethod
    def of(cls, plan: Plan, period_s: float) -> Limits:
        """Return the limits that a plan sets, or the usual ones."""
        asked = plan.backlog_s
        if isinstance(asked, Mapping):
            return replace(cls.usual(period_s), by_task={task: cls(*limits) for task, limits in asked.items()})
        return cls.usual(period_s) if asked is None else cls(*asked)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of one task: rows in its topic if it is a source, else rows on all of its input streams."""

    rows: float  #: beyond the allowance
    rate: float | None  #: rows/s that arrive there; None: unknown


def backlogs(snapshot: Snapshot, measured: Measured, limits: Limits) -> Mapping[str, Backlog]:
    """Return the backlog of each task that has more than the ordinary one.

    Lags and rates are those of `measured`; a source without a measured rate counts with its `external_rate`.
    """
    dag, lag, rates = Dag.of(snapshot), measured.lag, measured.input_rate
    allowance_s = min([limits.rest_s, *(each.rest_s for each in limits.by_task.values())])
    beyond = [name for name, rows in lag.items() if rows > allowance_s * rates.get(name, 0.0)]
    waiting = {dag.reader[name] for name in beyond if name in dag.reader}
    external = column(snapshot.tasks, "external_rate")
    found = {}
    for position in sorted(waiting):
        rest_s = limits.of_task(dag.names[position]).rest_s
        backlog = _before(position, dag, external[position], measured, rest_s)
        if backlog.rows > 0:
            found[dag.names[position]] = backlog
    return found


@dataclass(frozen=True, slots=True)
class Draining:
    """A backlog that is being drained."""

    until: float  #: monotonic seconds
    rows: float  #: in the last cycle


@dataclass(frozen=True, slots=True)
class Drains:
    """The backlogs that are being drained, by task. Each has a deadline of its own, so that its drain ends."""

    by_task: Mapping[str, Draining] = field(default_factory=dict)

    def advance(self, found: Mapping[str, Backlog], now: float, drain_s: float, limits: Limits) -> Drains:
        """Give a new backlog, or one that has grown, `drain_s` seconds from `now`; the others keep their deadlines."""
        going = {}
        for task, backlog in found.items():
            known = self.by_task.get(task)
            if (known is not None and backlog.rows > 0.0) or limits.begins_drain(task, backlog):
                until = now + drain_s if known is None or backlog.rows > known.rows else known.until
                going[task] = Draining(until, backlog.rows)
        return Drains(going)

    def left_s(self, now: float, period_s: float) -> Mapping[str, float]:
        """Return the seconds left to each drain: at least a period, as dials stay unchanged for that long."""
        return {task: max(draining.until - now, period_s) for task, draining in self.by_task.items()}


def _before(position: int, dag: Dag, external_rate: float | None, measured: Measured, rest_s: float) -> Backlog:
    task, upstream = dag.names[position], dag.topology.upstream[position]
    if not upstream:
        rate = measured.input_rate.get(task, external_rate)
        return Backlog(_beyond(measured.lag.get(task, 0), rate, rest_s), rate)
    names = [f"{dag.names[source]}>{task}" for source in upstream]
    rates = [measured.input_rate.get(name) for name in names]
    known = [rate for rate in rates if rate is not None]
    rows = [_beyond(measured.lag.get(name, 0), rate, rest_s) for name, rate in zip(names, rates, strict=True)]
    return Backlog(sum(rows), sum(known) if known else None)


def _beyond(lag: float, rate: float | None, rest_s: float) -> float:
    return max(lag - rest_s * (rate or 0.0), 0.0)


@dataclass(frozen=True, slots=True)
class Fall:
    """A fall of a source's input."""

    at: float  #: when it was noticed, monotonic seconds
    before: float  #: rows/s that arrived before
    kept: float  #: of these, rows/s that the shedder kept

    def spares(self, backlog: Backlog, within_s: float) -> bool:
        """Return whether the backlog drains within this time without load shedding, at the rate processed before the
        fall less the present input rate."""
        return backlog.rows <= within_s * (self.kept - (backlog.rate or 0.0))

    def drain_s(self, backlog: Backlog) -> float:
        """Return in how many seconds the backlog was collected."""
        return backlog.rows / max(self.before, 1e-9)


def noticed(
    known: Mapping[str, Fall], new: Mapping[str, Fall], now: float, forgotten_after_s: float
) -> Mapping[str, Fall]:
    """Return the known falls that are not older than this, and the new ones."""
    return {**recent(known, now, forgotten_after_s), **new}


def recent(known: Mapping[str, Fall], now: float, within_s: float) -> Mapping[str, Fall]:
    """Return the falls of the last seconds. A backlog of an earlier fall is treated like any other backlog."""
    return {name: fall for name, fall in known.items() if now - fall.at < within_s}


def waiting(
    found: Mapping[str, Backlog], falls: Mapping[str, Fall], limits: Limits, within_s: float
) -> Mapping[str, Backlog]:
    """Return the backlogs that have to be drained, by task. The backlog of a fall is left out once the
    rest of it is too small to begin a drain: the idle CPU reads that."""
    return {
        task: backlog
        for task, backlog in found.items()
        if task not in falls or (limits.begins_drain(task, backlog) and not falls[task].spares(backlog, within_s))
    }


def unsettled(falls: Mapping[str, Fall], plan: Plan, measured: Measured) -> Collection[str]:
    """Return the sources that fell for which the plan keeps every row, while earlier drops still lower their
    accuracy."""
    whole = [name for name in falls if plan.non_drop.get((None, name)) == 1.0]
    shown = {name: accuracy for name in whole if (accuracy := measured.accuracy.get(name)) is not None}
    return [name for name, accuracy in shown.items() if accuracy < FULL_ACCURACY]


def hastened(
    left_s: Mapping[str, float], found: Mapping[str, Backlog], falls: Mapping[str, Fall], least_s: float
) -> Mapping[str, float]:
    """Return `left_s`, the seconds that each drain may take, with shorter times for backlogs of a fall: the time in
    which such a backlog was collected, and at least `least_s`."""
    return {
        task: min(max(falls[task].drain_s(found[task]), least_s), seconds) if task in falls else seconds
        for task, seconds in left_s.items()
    }


_Key = TypeVar("_Key", bound=Hashable)

#: a dial that would move by less stays where it is
DEAD_BAND = 0.005

#: tolerance for rounding
EPSILON = 1e-12

#: moves to and from these are always made
ENDS = (0.0, 1.0)

NO_BACKLOG = Backlog(0.0, None)


def thinned(desired: float, minimum: float, backlog: float, rate: float | None, drain_s: float) -> float:
    """Return the accuracy that lets `drain_s` seconds suffice for `backlog` rows and the input of that time.

    The plan says that the CPU suffices for `desired * rate` rows/s. In `drain_s` seconds, `rate * drain_s + backlog`
    rows must be consumed; `desired * rate * drain_s` of them can be processed:

        max(min(minimum, desired), desired * rate * drain_s / (rate * drain_s + backlog))

    The result lies in [min(minimum, desired), desired], never grows with the backlog, and is `desired` without one and
    where the rate is 0 or unknown (None): there is then nothing to compare the backlog with. A minimum that leaves too
    little room makes the drain take longer; it is not broken.
    """
    if rate is None or rate <= 0 or backlog <= 0:
        return desired
    arriving = rate * drain_s
    return min(desired, max(min(minimum, desired), desired * arriving / (arriving + backlog)))


def dials(
    plan: Plan,
    snapshot: Snapshot,
    measured: Measured,
    *,
    period_s: float,
    drain_periods: float = 2.0,
    left_s: Mapping[str, float] | None = None,
    waiting: Mapping[str, Backlog] | None = None,
) -> Dials:
    """Return the settings that carry out `plan`, and drain backlogs.

    Without a backlog, `keep` is `plan.non_drop` and `accept` is `plan.desired`.

    - A source with a backlog keeps `thinned(...)` of its rows: source shedders hash the row's place in the topic, so
      the backlog is thinned at once.
    - A task whose input streams hold a backlog accepts `thinned(...)`, over the sums of their lags and input rates.
    - Downstream of a thinned task, streams open by as much, up to 1: a query with a lower desired accuracy than its
      neighbours still gets it from the thinner input. So no query falls below its minimum while a source is drained
      for another's sake; and `accept` keeps each query within its plan.

    A backlog (see `backlog.backlogs`: rows beyond the ordinary 0.2 periods of input) has `left_s[task]` seconds to
    drain; one that `left_s` does not name is not drained. Without `left_s` each has `drain_periods * period_s`.
    `waiting`: the backlogs, where they are known already.
    """
    drain_s = drain_periods * period_s
    if waiting is None:
        waiting = backlogs(snapshot, measured, Limits.usual(period_s))
    dag = Dag.of(snapshot)
    keep, accept = dag.edges.values(plan.non_drop), dag.upstream_first.values(plan.desired)
    edge, rank, names = dag.edges.position, dag.upstream_first.position, dag.names
    draining = {name: each for name, each in waiting.items() if left_s is None or name in left_s}
    planned: dict[str, float] = {}  # least probability that a row reaches the task, by the plan
    actual: dict[str, float] = {}  # the same, by these dials
    for t in dag.around(dag.topology.position[name] for name in draining):
        task, minimum = names[t], dag.topology.min_accuracy[t]
        upstream = [names[source] for source in dag.topology.upstream[t]]
        backlog = draining.get(task, NO_BACKLOG)
        seconds = drain_s if left_s is None else left_s.get(task, drain_s)
        if not upstream:
            planned[task] = given = plan.non_drop[None, task]
            actual[task] = keep[edge[None, task]] = thinned(given, minimum, backlog.rows, backlog.rate, seconds)
            continue
        accepted = accept[rank[task]] = thinned(plan.desired[task], minimum, backlog.rows, backlog.rate, seconds)
        reaching = []
        for source in upstream:
            opened = given = plan.non_drop[source, task]
            if actual[source] < planned[source]:  # without input, the stream is open
                opened = given * planned[source] / actual[source] if actual[source] > 0.0 else 1.0
            keep[edge[source, task]] = kept = min(opened, 1.0)
            reaching.append(actual[source] * kept)
        planned[task] = min(planned[source] * plan.non_drop[source, task] for source in upstream)
        actual[task] = min(accepted, *reaching)
    return Dials(dag.edges.mapping(keep), dag.upstream_first.mapping(accept))


def opened(plan: Plan) -> tuple[Plan, Dials]:
    """Return a plan and its settings under which no shedder of `plan` drops rows."""
    everything, keep = dict.fromkeys(plan.desired, 1.0), dict.fromkeys(plan.non_drop, 1.0)
    return Plan(everything, keep), Dials(keep, everything)


def overridden(settings: Dials, by_hand: Mapping[Edge, float], snapshot: Snapshot) -> Dials:
    """Return `settings` with the keep probabilities that the user holds by hand.

    A consumer accepts all rows of a stream whose shedder is held open, even where the plan wants fewer.
    """
    keep = {edge: by_hand.get(edge, value) for edge, value in settings.keep.items()}
    accept = dict(settings.accept)
    arriving = reached(Dials(keep, dict.fromkeys(accept, 1.0)), snapshot)
    for source, target in by_hand:
        if source in accept and target in accept and (source, target) in keep:
            accept[target] = max(accept[target], min(arriving[source] * keep[source, target], 1.0))
    return Dials(keep, accept)


def reached(settings: Dials, snapshot: Snapshot) -> Mapping[str, float]:
    """Return by task the least probability with which a row of the application's input reaches it under `settings`.

    Where paths join, rows of another path may have a higher probability, but never more than `accept`.
    """
    dag = Dag.of(snapshot)
    return {dag.names[t]: value for t, value in _reached(settings, dag, dag.topology.order).items()}


def _reached(settings: Dials, dag: Dag, positions: Iterable[int]) -> dict[int, float]:
    """Return what `reached` does, for some tasks by position, which are given in topological order."""
    keep, accept = dag.edges.values(settings.keep), dag.tasks.values(settings.accept)
    found: dict[int, float] = {}
    for t in positions:
        least: float | None = None
        for source, edge in dag.inputs[t]:
            arriving = keep[edge] if source < 0 else min(accept[t], found[source] * keep[edge])
            least = arriving if least is None or arriving < least else least
        found[t] = 1.0 if least is None else least
    return found


def hold(new: Dials, last: Dials | None, snapshot: Snapshot) -> Dials:
    """Return `new`, but keep the value in `last` of each dial that would move by less than `DEAD_BAND`.

    A change can cost a recompilation where a dial is a literal, so noise must not cause one. Moves to and from exactly
    0 and 1 are always made. Where a dial that keeps its value would take a query below its minimum accuracy, only dials
    that would fall keep theirs.
    """
    if last is None:
        return new
    keep, accept = _Turn(new.keep, last.keep), _Turn(new.accept, last.accept)
    held = Dials(keep.merged(rising=True), accept.merged(rising=True))
    dag = Dag.of(snapshot)
    position = dag.topology.position
    different = {position[edge[1]] for edge in keep.held()} | {position[task] for task in accept.held()}
    if not different:
        return held
    touched = dag.around(different)  # elsewhere `held` is `new`
    wanted, got = _reached(new, dag, touched), _reached(held, dag, touched)
    for t in touched:
        is_query = not dag.topology.downstream[t]
        if is_query and got[t] < min(dag.topology.min_accuracy[t], wanted[t]) - EPSILON:
            return Dials(keep.merged(rising=False), accept.merged(rising=False))
    return held


class _Turn(Generic[_Key]):
    """New and previous dials, in the order of the new ones."""

    def __init__(self, new: Mapping[_Key, float], last: Mapping[_Key, float]) -> None:
        self._keys, self._new = list(new), list(new.values())
        before = [last.get(key) for key in self._keys]
        changes = ((i, self._new[i], before[i]) for i in differing(self._new, before))
        self._held = [(i, was) for i, to, was in changes if was is not None and _stays(to, was)]

    def merged(self, *, rising: bool) -> dict[_Key, float]:
        """Return the new dials, except those that stay as they were."""
        found = list(self._new)
        for i, was in self._held:
            if rising or found[i] < was:
                found[i] = was
        return dict(zip(self._keys, found, strict=True))

    def held(self) -> list[_Key]:
        """Return the dials that stay as they were, if rising ones may."""
        return [self._keys[i] for i, _ in self._held]


def _stays(new: float, last: float) -> bool:
    return abs(new - last) < DEAD_BAND and new not in ENDS and last not in ENDS
