"""From a plan to the settings of the shedders: the plan's own probabilities, lower during a drain. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from qod_magics.controller.backlog import Backlog, Limits, backlogs
from qod_magics.core.columns import differing
from qod_magics.core.dag import Dag
from qod_magics.core.plan import Edge, Plan
from qod_magics.core.runtime import Dials, Measured
from qod_magics.core.snapshot import Snapshot

_Key = TypeVar("_Key", bound=Hashable)

#: a dial that would move by less stays where it is
DEAD_BAND = 0.005

#: tolerance for rounding
EPSILON = 1e-12

#: moves to and from these are always made
ENDS = (0.0, 1.0)

NO_BACKLOG = Backlog(0.0, None)


def thinned(desired: float, minimum: float, backlog: float, rate: float | None, drain_s: float) -> float:
    """The accuracy that lets `drain_s` seconds suffice for `backlog` rows and the input of that time.

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
    """The settings that carry out `plan`, and drain backlogs.

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
    """A plan and its settings under which none of the shedders of `plan` sheds."""
    everything, keep = dict.fromkeys(plan.desired, 1.0), dict.fromkeys(plan.non_drop, 1.0)
    return Plan(everything, keep), Dials(keep, everything)


def overridden(settings: Dials, by_hand: Mapping[Edge, float], snapshot: Snapshot) -> Dials:
    """`settings` with the non-drop probabilities that are held by hand.

    A consumer accepts all rows of a stream that is held open, even where the plan wants fewer.
    """
    keep = {edge: by_hand.get(edge, value) for edge, value in settings.keep.items()}
    accept = dict(settings.accept)
    arriving = reached(Dials(keep, dict.fromkeys(accept, 1.0)), snapshot)
    for source, target in by_hand:
        if source in accept and target in accept and (source, target) in keep:
            accept[target] = max(accept[target], min(arriving[source] * keep[source, target], 1.0))
    return Dials(keep, accept)


def reached(settings: Dials, snapshot: Snapshot) -> Mapping[str, float]:
    """By task, the least probability with which a row of the application's input reaches it under `settings`.

    Where paths join, rows of another path may be kept with a higher one, but never with more than `accept`.
    """
    dag = Dag.of(snapshot)
    return {dag.names[t]: value for t, value in _reached(settings, dag, dag.topology.order).items()}


def _reached(settings: Dials, dag: Dag, positions: Iterable[int]) -> dict[int, float]:
    """The same for some tasks by position, given in topological order."""
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
    """`new`, but dials that would move by less than `DEAD_BAND` stay as they were in `last`.

    A change can cost a recompilation where a dial is a literal, so noise must not cause one. Moves to and from exactly
    0 and 1 are always made. Where a dial that stays behind would take a query below its minimum, only dials that would
    fall are held.
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
        """The new dials, except those that stay as they were."""
        found = list(self._new)
        for i, was in self._held:
            if rising or found[i] < was:
                found[i] = was
        return dict(zip(self._keys, found, strict=True))

    def held(self) -> list[_Key]:
        """The dials that stay as they were, if rising ones may."""
        return [self._keys[i] for i, _ in self._held]


def _stays(new: float, last: float) -> bool:
    return abs(new - last) < DEAD_BAND and new not in ENDS and last not in ENDS
