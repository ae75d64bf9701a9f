"""Moves so that the minimum accuracies fit: which instances leave, and where to. Pure.

`moves_of_all` moves as the paper does (Algorithm 3.2, lines 7 to 14, and Algorithm 3.3 with its errata mended),
`only_helpful` makes only those moves that help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from qod_magics.core.load import total, whole_cpu
from qod_magics.core.runtime import takes_instances
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stream_economics.model.situation import Minimums, Situation
from qod_magics.policies.stream_economics.placing.scheduler import PlacementRequest, available_cpu, place

#: Reduces the instances that would leave to those that may.
Movable = Callable[[Sequence[int], Situation], Sequence[int]]
Moves = Callable[[Situation, Movable], Minimums]

#: Headroom that a target must have, as a multiple of an instance's need at its minimum: a move brings overhead beyond
#: the instance, and a slightly higher next measurement must not move it on.
MARGIN = 1.2
#: Upper bound of the share of a task manager's cores that other processes are taken to hold while it runs open: its
#: tasks have not claimed theirs so far, and the system shares a core evenly among all that do.
OTHERS_AT_MOST = 0.5


def tolerance(cpu: float) -> float:
    """Differences of CPU up to this are rounding, not load: otherwise noise in the last bit would move a task."""
    return 1e-9 + 1e-12 * abs(cpu)


def kill(need: float, priority: Sequence[int], min_required: Sequence[float]) -> list[int]:
    """The candidates to fail so that at least `need` % of one core is released, or as much as there is.

    Candidate c is an instance of that priority whose task needs `min_required[c]` % of one core at least; candidates
    come in the order of their ids. Whole priorities are added from the lowest up while they release less than `need`;
    then, from the highest priority and the largest requirement down (ties: id), one is spared if the others still
    release enough. Returned in that second order.
    """
    enough = need - tolerance(need)
    by_priority: dict[int, list[int]] = {}
    for c, of in enumerate(priority):
        by_priority.setdefault(of, []).append(c)
    chosen: list[list[int]] = []
    released = 0.0
    for of in sorted(by_priority):
        if released >= enough:
            break
        chosen.append(by_priority[of])
        released += total([min_required[c] for c in by_priority[of]])
    failed = []
    for candidates in reversed(chosen):
        for c in sorted(candidates, key=lambda c: -min_required[c]):
            rest = released - min_required[c]
            if rest >= enough:
                released = rest
            else:
                failed.append(c)
    return failed


def moves_of_all(situation: Situation, movable: Movable) -> Minimums:
    """As in the paper: each instance that leaves goes where most CPU is left."""
    available, failed, starved = _ensure_minimums(situation)
    leaving = list(movable(failed, situation))
    return Minimums(available, leaving, starved, _replace(situation.snapshot, leaving))


def _ensure_minimums(situation: Situation) -> tuple[list[float], list[int], list[int]]:
    """Algorithm 3.2, lines 7 to 14: CPU left above the minimums by task manager, failed instances, starved managers."""
    topology, load, min_required = situation.topology, situation.load, situation.min_required
    available = list(situation.required.available)
    failed: list[int] = []
    starved: list[int] = []
    task_of = load.task_of
    for manager, instances in enumerate(situation.hosting.hosted):
        if load.warming[manager]:
            continue
        requirements = [min_required[task_of[i]] for i in instances]
        required = total(requirements)
        need = required - available[manager]
        released = 0.0
        if need > tolerance(required):
            if len(available) < 2:
                starved.append(manager)
            else:
                chosen = kill(need, [topology.priority[task_of[i]] for i in instances], requirements)
                failed.extend([instances[c] for c in chosen])
                released = total([requirements[c] for c in chosen])
        available[manager] = max(available[manager] - required + released, 0.0)
    return available, failed, starved


def _replace(snapshot: Snapshot, failed: Sequence[int]) -> dict[str, str]:
    """A new task manager for every failed instance, never the one it failed on."""
    if not failed:
        return {}
    forbidden = {manager.id: (manager.id,) for manager in snapshot.task_managers}
    requests = [
        # its last CPU is known: no instance fails where one, perhaps itself, is warming up
        PlacementRequest(instance.id, instance.cpu, forbidden=forbidden[instance.task_manager])
        for instance in (snapshot.instances[i] for i in failed)
    ]
    return place(requests, available_cpu(snapshot.task_managers, snapshot.instances))


def only_helpful(situation: Situation, movable: Movable) -> Minimums:
    """A `Moves`: instances leave only for task managers where their minimums fit beside those of the instances there.

    If the instances that the paper's algorithm chooses fit nowhere, others of their task manager are tried: the lowest
    priority first, and the largest first within one. If none fits, they stay, and their task manager is starved: a move
    costs a start, and the next task manager would be just as short. Headroom is judged by costs: on a task manager that
    runs open, an instance counts with its cost elsewhere. One on which an instance warms up, or that stands by, is no
    target.
    """
    snapshot, load, required = situation.snapshot, situation.load, situation.min_required
    by_costs = situation.by_costs.all_of(situation.topology.min_accuracy)
    hosted: list[list[float]] = [[] for _ in snapshot.task_managers]
    known: list[list[float]] = [[] for _ in snapshot.task_managers]
    for t, manager in zip(load.task_of, load.manager_of, strict=True):
        hosted[manager].append(required[t])
        known[manager].append(by_costs[t])
    spare = [cpu - total(needs) for cpu, needs in zip(situation.required.available, hosted, strict=True)]
    fair = [(1.0 - OTHERS_AT_MOST) * whole_cpu(manager.cores) for manager in snapshot.task_managers]
    at_hand = map(max, situation.by_costs.available, fair)
    real = [cpu - total(needs) for cpu, needs in zip(at_hand, known, strict=True)]
    names = [manager.id for manager in snapshot.task_managers]
    targeted = [
        takes_instances(each) and not warm for each, warm in zip(snapshot.task_managers, load.warming, strict=True)
    ]
    leaving: list[int] = []
    targets: dict[str, str] = {}
    for i in _candidates(situation, movable, spare, leaving):
        instance, home = snapshot.instances[i], load.manager_of[i]
        need = by_costs[load.task_of[i]]
        if need <= tolerance(need):  # its departure would free nothing
            continue
        room = {name: real[m] if situation.is_open[m] else spare[m] for m, name in enumerate(names) if targeted[m]}
        target = place([PlacementRequest(instance.id, need, forbidden=(instance.task_manager,))], room).get(instance.id)
        if target is None or room[target] < MARGIN * need:
            continue
        leaving.append(i)
        targets[instance.id] = target
        for left in (spare, real):
            left[names.index(target)] -= need
            left[home] += need
    short = [m for m in range(len(names)) if _is_short(situation, spare, hosted, m)]
    return Minimums([max(left, 0.0) for left in spare], leaving, short, targets)


def no_moves(situation: Situation, movable: Movable) -> Minimums:
    """A `Moves`: every instance stays; task managers where the minimums do not fit are starved."""
    return only_helpful(situation, _nobody)


def _nobody(failed: Sequence[int], situation: Situation) -> Sequence[int]:
    return ()


def _candidates(situation: Situation, movable: Movable, spare: list[float], leaving: list[int]) -> Iterator[int]:
    """The instances that may leave: those that the paper's algorithm chooses; then the others of task managers that are
    still short. `spare` and `leaving` change during the iteration."""
    load, topology = situation.load, situation.topology
    _, failed, _ = _ensure_minimums(situation)
    yield from movable(failed, situation)
    managers = dict.fromkeys(load.manager_of[i] for i in failed)
    others = [i for i in situation.hosting.by_id if load.manager_of[i] in managers and i not in failed]
    others.sort(key=lambda i: (topology.priority[load.task_of[i]], -situation.min_required[load.task_of[i]]))
    for i in movable(others, situation):
        if spare[load.manager_of[i]] < 0.0 and i not in leaving:
            yield i


def _is_short(situation: Situation, spare: list[float], hosted: list[list[float]], m: int) -> bool:
    return spare[m] < -tolerance(total(hosted[m])) and not situation.load.warming[m]
