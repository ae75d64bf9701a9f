"""Invariants of a watched run. Each check returns a list of violations, empty if it holds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, permutations

from qod_magics.simulator import Simulation
from qod_magics.simulator.rates.simulation import SimulatedTask
from qod_magics.testing.runs import MARGIN, Truth, Watched

#: Noise of a measured accuracy: rows are sampled, and a period cuts through batches.
TOLERANCE = 0.03
#: A plan whose accuracies change by less has settled.
BAND = 0.1
#: A backlog of less than this, seconds of input, is rows in transit.
SHORT_S = 4.0


def books(run: Watched) -> list[str]:
    """Return rows and CPU created or lost by the simulation itself."""
    return run.wrong


def minimums_fit(run: Watched, at_s: float | None = None) -> bool:
    """Return whether the CPU suffices for every minimum accuracy in the final placement, at the end or at second
    `at_s`."""
    return run.truth.fits(run.where, run.truth.minimum(), run.looks[-1].at_s if at_s is None else at_s)


def tight(run: Watched) -> list[str]:
    """Return cycles after which the minimum accuracies fit a task manager, but with less headroom than MARGIN
    requires."""
    truth, found = run.truth, []
    for number, look in enumerate(run.looks, 1):
        load = truth.load(look.where, truth.minimum(), look.at_s)
        for machine in run.simulation.machines:
            planned, others = machine.planned, machine.background.rate(look.at_s)
            if MARGIN * planned < load[machine.id] + others <= planned:
                found.append(
                    f"after cycle {number} {machine.id} had {planned - others:.2f} cores for minimums that take "
                    f"{load[machine.id]:.2f}"
                )
    return found


def all_fits(run: Watched) -> bool:
    """Return whether the CPU suffices for full accuracy in the final placement."""
    return run.truth.fits(run.where, run.truth.full_accuracy(), run.looks[-1].at_s, margin=0.95)


def below_minimum(run: Watched, cycles: int) -> list[str]:
    """Return queries below their minimum in the last cycles, as a share of the rows due or as measured."""
    found = []
    for query in run.truth.queries:
        floor = (query.min_accuracy or 0.0) - TOLERANCE
        served = run.served(query.id, cycles)
        if served < floor:
            found.append(f"{query.id} processed {served:.3f} of the rows due, its minimum is {query.min_accuracy}")
        for number, share in measured(run, query.id, cycles):
            if share < floor:
                found.append(f"cycle {number}: {query.id} measured {share:.3f}, its minimum is {query.min_accuracy}")
    return found


def measured(run: Watched, task: str, cycles: int) -> Iterator[tuple[int, float]]:
    """(cycle number, measured accuracy) of the last cycles, without cycles that measured none."""
    for cycle in run.cycles[-cycles:]:
        share = None if cycle.measured is None else cycle.measured.accuracy.get(task)
        if share is not None:
            yield cycle.number, share


def unsettled(run: Watched, cycles: int) -> list[str]:
    """Return queries whose plan still changes in the last cycles."""
    found = []
    for query in run.truth.queries:
        desired = run.desired(query.id, cycles)
        if max(desired) - min(desired) > BAND:
            found.append(f"{query.id} was planned at {', '.join(f'{value:.2f}' for value in desired)}")
    return found


def oscillating(run: Watched, cycles: int) -> list[str]:
    """Return queries whose plan goes up and down in the last cycles, rather than one way."""
    found = []
    for query in run.truth.queries:
        desired = run.desired(query.id, cycles)
        steps = [after - before for before, after in pairwise(desired)]
        if min(sum(step for step in steps if step > 0), -sum(step for step in steps if step < 0)) > BAND:
            found.append(f"{query.id} was planned at {', '.join(f'{value:.2f}' for value in desired)}")
    return found


def moving(run: Watched, cycles: int) -> list[str]:
    """Return whether instances still move in the last cycles."""
    if len({tuple(sorted(look.where.items())) for look in run.looks[-cycles:]}) > 1:
        return [f"instances moved in the last {cycles} cycles"]
    return []


def stalled(run: Watched) -> list[str]:
    """Return instances whose warm-up timed out: the plan for their task managers was frozen for a minute."""
    return [
        f"cycle {cycle.number}: the warm-up of {event.detail['instance']} timed out"
        for cycle in run.cycles
        for event in cycle.events
        if event.kind == "warm-up-over" and event.detail["timed_out"]
    ]


def back_and_forth(run: Watched) -> list[str]:
    """Return instances that returned to a task manager they had left."""
    found = []
    for instance in run.where:
        route = run.moves(instance)
        if len(set(route)) < len(route):
            found.append(f"{instance} went {' -> '.join(route)}")
    return found


def returned(run: Watched, within_s: float) -> list[str]:
    """Return instances that returned to a task manager less than `within_s` seconds after they had left it."""
    found = []
    for instance in run.where:
        left: dict[str, float] = {}
        at: str | None = None
        for look in run.looks:
            now = look.where.get(instance)
            if now is None or now == at:
                continue
            if at is not None:
                left[at] = look.at_s
            if look.at_s - left.get(now, float("-inf")) < within_s:
                found.append(f"second {look.at_s:g}: {instance} is on {now} again, {look.at_s - left[now]:g} s later")
            at = now
    return found


def comparable(run: Watched) -> Iterator[tuple[SimulatedTask, SimulatedTask]]:
    """Yield pairs of queries, the higher priority first, that differ only in priority and minimum: same inputs, same
    costs, same task managers."""
    for high, low in permutations(run.truth.queries, 2):
        if (high.priority or 0) <= (low.priority or 0) or not alike(high, low):
            continue
        if managers(run, high) == managers(run, low):
            yield high, low


def alike(one: SimulatedTask, other: SimulatedTask) -> bool:
    """Return whether two tasks cost the same and read the same."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("upstream", "parallelism", "work_us", "read_us", "fixed", "overhead", "selectivity", "mode")
    )


def managers(run: Watched, task: SimulatedTask) -> list[str]:
    """Return the task managers of a task's instances, sorted."""
    return sorted(run.where[f"{task.id}.{n + 1}"] for n in range(task.parallelism))


def inverted(run: Watched, cycles: int) -> list[str]:
    """Return priority inversions, all else being equal: the query of higher priority gets a smaller share of its rows,
    and a smaller share of the range between minimum and 1. (The former alone is legitimate: the query of lower priority
    may have the higher minimum, and a task upstream of both may limit them.)"""
    found = []
    for high, low in comparable(run):
        more, less = run.served(high.id, cycles), run.served(low.id, cycles)
        if more < less - TOLERANCE and above(high, more) < above(low, less) - TOLERANCE:
            found.append(
                f"{high.id} (priority {high.priority}, minimum {high.min_accuracy}) had {more:.3f} of its rows, "
                f"{low.id} (priority {low.priority}, minimum {low.min_accuracy}) {less:.3f}"
            )
    return found


def above(query: SimulatedTask, accuracy: float) -> float:
    """Return the share of the range between its minimum and 1 that an accuracy covers."""
    minimum = query.min_accuracy or 0.0
    return (accuracy - minimum) / max(1.0 - minimum, 1e-9)


def still_shedding(run: Watched, cycles: int) -> list[str]:
    """Return queries that are still shed in the last cycles, by plan or by the rows processed."""
    found = []
    for query in run.truth.queries:
        desired, served = run.desired(query.id, cycles), run.served(query.id, cycles)
        if min(desired) < 1.0 or served < 1.0 - TOLERANCE:
            found.append(f"{query.id} was planned at {min(desired):.3f} and had {served:.3f} of its rows")
    return found


def waiting_s(run: Watched, cycle: int = -1) -> float:
    """Return the backlog after a cycle, in seconds of input at full accuracy."""
    look = run.looks[cycle]
    return look.waiting / sum(run.truth.full(look.at_s).values())


def unexplained(run: Watched) -> list[str]:
    """Return cycles that were neither decided and applied nor skipped with a reason."""
    return [
        f"cycle {cycle.number} was neither decided nor skipped with a reason"
        for cycle in run.cycles
        if not (cycle.decision is not None and cycle.applied) and not cycle.skipped
    ]


def late(run: Watched, cycles: int) -> list[str]:
    """Return cycles with too large a backlog, among the last of a controlled run."""
    return [
        f"after cycle {len(run.looks) + cycle + 1}, the backlog is {waiting_s(run, cycle):.1f} s of input"
        for cycle in range(-cycles, 0)
        if waiting_s(run, cycle) > SHORT_S
    ]


def not_growing(run: Watched, cycles: int) -> list[str]:
    """Return an uncontrolled lag that does not grow under overload."""
    before, after = waiting_s(run, -1 - cycles), waiting_s(run)
    if after > before + SHORT_S / 4:
        return []
    return [f"uncontrolled, the backlog was {before:.1f} s of input, and {cycles} cycles later {after:.1f} s"]


def nested(simulation: Simulation) -> bool:
    """Return whether a task joins inputs of which one is a join itself."""
    joins = {task.id for task in simulation.tasks if len(task.upstream) > 1}
    return any(task.id in joins and not joins.isdisjoint(task.upstream) for task in simulation.tasks)


def overloaded(simulation: Simulation) -> bool:
    """Return whether the final rates need more CPU than the cluster has, so that no placement can process all rows."""
    truth = Truth(simulation)
    need = truth.need(truth.full_accuracy(), simulation.scenario.duration_s)
    others = sum(task.overhead * task.parallelism for task in simulation.tasks)
    return sum(need.values()) + others > 1.1 * sum(machine.cores for machine in simulation.machines)


def worse(run: Watched, other: Watched, cycles: int) -> list[str]:
    """Return queries that a run serves worse than another of the same load, in the last cycles: those of the highest
    priority by the share of rows due, all others as far as their minimums."""
    highest = max(query.priority or 0 for query in run.truth.queries)
    found = []
    for query in run.truth.queries:
        mine, theirs = run.served(query.id, cycles), other.served(query.id, cycles)
        due = theirs if query.priority == highest else min(theirs, query.min_accuracy or 0.0)
        if mine < due - TOLERANCE:
            found.append(f"{query.id} (priority {query.priority}) processed {mine:.3f} of the rows due, not {due:.3f}")
    return found
