"""From a plan to the settings of the shedders: the plan's own probabilities, less while a backlog is drained. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qod_magics.controller.backlog import Backlog, backlogs
from qod_magics.controller.dag import Dag
from qod_magics.core.plan import Edge, Plan
from qod_magics.core.runtime import Dials, Measured
from qod_magics.core.snapshot import Snapshot

#: a dial that would move by less stays where it is
DEAD_BAND = 0.005

#: what rounding may cost
EPSILON = 1e-12

#: moves to and from these are always made
ENDS = (0.0, 1.0)

NO_BACKLOG = Backlog(0.0, None)


def thinned(desired: float, minimum: float, backlog: float, rate: float | None, drain_s: float) -> float:
    """The accuracy at which `backlog` rows and the input of the next `drain_s` seconds are done in `drain_s` seconds.

    The plan says that the CPU suffices for `desired * rate` rows/s. In `drain_s` seconds, `rate * drain_s + backlog`
    rows have to be gone; `desired * rate * drain_s` of them can be processed:

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
      rows that wait are thinned at once.
    - A task whose input streams hold a backlog accepts `thinned(...)`, over the sums of their lags and input rates.
    - Behind a task that is thinned, streams open by as much, up to 1: a query that wants less than its neighbours
      gets it from the thinner input too. So no row reaches a query with less than the query's minimum while a source
      is drained for another's sake; and `accept` sees to it that none gets more than the plan gives it.

    A backlog (see `backlog.backlogs`: rows beyond the ordinary rest of 0.2 periods) has `left_s[task]` seconds to
    drain; one that `left_s` does not name is not drained. Without `left_s` each has `drain_periods * period_s`.
    `waiting`: the backlogs, where they are known already.
    """
    drain_s = drain_periods * period_s
    if waiting is None:
        waiting = backlogs(snapshot, measured, period_s)
    dag = Dag.of(snapshot)
    keep = {edge: plan.non_drop[edge] for edge in dag.edges}
    accept = {name: plan.desired[name] for name in dag.upstream_first}
    draining = {name: each for name, each in waiting.items() if left_s is None or name in left_s}
    planned: dict[str, float] = {}  # least probability that a row reaches the task, by the plan
    actual: dict[str, float] = {}  # the same, by these dials
    for position in dag.around(dag.topology.position[name] for name in draining):
        task = snapshot.tasks[position]
        minimum = dag.topology.min_accuracy[position]
        backlog = draining.get(task.id, NO_BACKLOG)
        seconds = drain_s if left_s is None else left_s.get(task.id, drain_s)
        if not task.upstream:
            planned[task.id] = given = plan.non_drop[None, task.id]
            keep[None, task.id] = thinned(given, minimum, backlog.rows, backlog.rate, seconds)
            actual[task.id] = keep[None, task.id]
            continue
        accept[task.id] = thinned(plan.desired[task.id], minimum, backlog.rows, backlog.rate, seconds)
        for source in task.upstream:
            given = plan.non_drop[source, task.id]
            opened = given
            if actual[source] < planned[source]:  # where nothing comes, the stream is open
                opened = given * planned[source] / actual[source] if actual[source] > 0.0 else 1.0
            keep[source, task.id] = min(opened, 1.0)
        planned[task.id] = min(planned[source] * plan.non_drop[source, task.id] for source in task.upstream)
        actual[task.id] = min(accept[task.id], *(actual[source] * keep[source, task.id] for source in task.upstream))
    return Dials(keep, accept)


def overridden(settings: Dials, by_hand: Mapping[Edge, float], snapshot: Snapshot) -> Dials:
    """`settings` with the non-drop probabilities that somebody holds by hand.

    A reader accepts what a stream that is held open brings it, even where the plan wants less.
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

    Where paths join, rows that came another way may be kept with more, but never with more than `accept`.
    """
    return _reached(settings, snapshot, Dag.of(snapshot).topology.order)


def _reached(settings: Dials, snapshot: Snapshot, positions: Iterable[int]) -> dict[str, float]:
    """The same of some tasks, given each one after all that it reads from."""
    found: dict[str, float] = {}
    for position in positions:
        task = snapshot.tasks[position]
        if task.upstream:
            arriving = (found[source] * settings.keep[source, task.id] for source in task.upstream)
            found[task.id] = min(settings.accept[task.id], *arriving)
        else:
            found[task.id] = settings.keep[None, task.id]
    return found


def hold(new: Dials, last: Dials | None, snapshot: Snapshot) -> Dials:
    """`new`, but dials that would move by less than `DEAD_BAND` stay as they were in `last`.

    A turn can cost a recompilation where a dial is a literal, so noise does not turn it. Moves to and from exactly 0
    and 1 are always made. Where a dial that stays behind would take a query below its minimum, only dials that
    would fall are held.
    """
    if last is None:
        return new
    held = _merge(new, last, rising=True)
    if held == new:
        return held
    dag = Dag.of(snapshot)
    touched = dag.around(_different(new, held, dag))  # elsewhere `held` is `new`
    wanted, got = _reached(new, snapshot, touched), _reached(held, snapshot, touched)
    for task in (snapshot.tasks[position] for position in touched):
        if task.min_accuracy is not None and got[task.id] < min(task.min_accuracy, wanted[task.id]) - EPSILON:
            return _merge(new, last, rising=False)
    return held


def _different(new: Dials, held: Dials, dag: Dag) -> set[int]:
    """The tasks at whose input or reading end the two differ."""
    position = dag.topology.position
    found = {position[edge[1]] for edge, value in new.keep.items() if held.keep[edge] != value}
    return found | {position[task] for task, value in new.accept.items() if held.accept[task] != value}


def _merge(new: Dials, last: Dials, *, rising: bool) -> Dials:
    keep, accept = last.keep, last.accept
    return Dials(
        {edge: d if d == keep.get(edge) else _held(d, keep.get(edge), rising) for edge, d in new.keep.items()},
        {task: a if a == accept.get(task) else _held(a, accept.get(task), rising) for task, a in new.accept.items()},
    )


def _held(new: float, last: float | None, rising: bool) -> float:
    if last is None or new in ENDS or last in ENDS or abs(new - last) >= DEAD_BAND or (new > last and not rising):
        return new
    return last
