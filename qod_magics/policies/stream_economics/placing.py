"""Choose which instances leave a task manager, where instances go, and how long a cool-down lasts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from qod_magics.core.load import total, whole_cpu
from qod_magics.core.runtime import Unplaced, takes_instances
from qod_magics.core.snapshot import Instance, Snapshot, TaskManager, replace
from qod_magics.policies.stream_economics.reach import Minimums, Situation

# --- Placement --------------------------------------------------------------------------------------------------------
# Placement, first and after a failure: the task manager with the most CPU left (Algorithm 3.1). Pure.

UNKNOWN_ESTIMATE = 100.0  #: % of one core, for a task that never ran


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """An instance that needs a task manager."""

    instance: str
    estimate: float = UNKNOWN_ESTIMATE  #: % of one core it will probably use
    preferred: Collection[str] = ()  #: task managers it would rather run on (locality), if they have the CPU
    forbidden: Collection[str] = ()  #: task managers it must not go to, such as the one it failed on


def place(requests: Iterable[PlacementRequest], available: Mapping[str, float]) -> dict[str, str]:
    """Return the task manager of each instance, request by request; each placement lowers the CPU left for the next.

    `available` maps task managers, in input order, to their estimated CPU left in % of one core (`available_cpu`; it
    may be negative). Candidates are the preferred ones where the estimate fits, else all but the forbidden ones. The
    one with the most CPU left wins, ties go to input order. A request that may go nowhere gets no entry.
    """
    names = list(available)
    left = list(available.values())
    position = {name: i for i, name in enumerate(names)}
    heap = [(-cpu, i) for i, cpu in enumerate(left)]  # may hold outdated entries, recognized by their CPU
    heapify(heap)
    placed: dict[str, str] = {}
    for request in requests:
        fitting = [
            (-left[position[name]], position[name])
            for name in request.preferred
            if name in position and name not in request.forbidden and left[position[name]] - request.estimate >= 0.0
        ]
        chosen = min(fitting)[1] if fitting else _most_available(heap, left, names, request.forbidden)
        if chosen is None:
            continue
        placed[request.instance] = names[chosen]
        left[chosen] -= request.estimate
        heappush(heap, (-left[chosen], chosen))
    return placed


def _most_available(
    heap: list[tuple[float, int]], left: list[float], names: list[str], forbidden: Collection[str]
) -> int | None:
    passed = []
    chosen = None
    while heap:
        cpu, i = heap[0]
        if -cpu != left[i]:
            heappop(heap)
        elif names[i] in forbidden:
            passed.append(heappop(heap))
        else:
            chosen = i
            break
    for entry in passed:
        heappush(heap, entry)
    return chosen


def has_metrics(instance: Instance) -> bool:
    """Return whether the instance was measured since its (re)placement: while it warms up, all zeros mean it was
    not."""
    return not instance.warming_up or instance.cpu > 0.0 or instance.in_rate > 0.0


def estimated_cpu(instances: Iterable[Instance]) -> dict[str, float]:
    """Return the CPU of each instance, % of one core: its last, that of the first measured one of its task, or 100."""
    known = list(instances)
    by_task: dict[str, float] = {}
    for instance in known:
        if instance.task not in by_task and has_metrics(instance):
            by_task[instance.task] = instance.cpu
    return {
        instance.id: instance.cpu if has_metrics(instance) else by_task.get(instance.task, UNKNOWN_ESTIMATE)
        for instance in known
    }


def available_cpu(task_managers: Sequence[TaskManager], instances: Iterable[Instance] = ()) -> dict[str, float]:
    """estAvail(tm), % of one core, in input order: all cores - CPU in use - estimates of instances not yet measured.

    `instances` are those that run (or are about to run) on these task managers. May be negative.
    """
    known = list(instances)
    available = {manager.id: whole_cpu(manager.cores) - manager.cpu for manager in task_managers}
    unmeasured = [instance for instance in known if not has_metrics(instance)]
    if unmeasured:
        estimates = estimated_cpu(known)
        for instance in unmeasured:
            available[instance.task_manager] -= estimates[instance.id]
    return available


def placed(
    unplaced: Sequence[Unplaced], managers: Sequence[TaskManager], running: Sequence[Instance]
) -> Mapping[str, str]:
    """Return the task manager of each instance. The CPU of an instance that never ran is estimated by another of its
    task; without one it goes where it is preferred while any CPU is left there."""
    by_task = {instance.task: instance.cpu for instance in running if not instance.warming_up}
    available = available_cpu(managers, running)
    requests = []
    for one in unplaced:
        estimate = one.estimate if one.estimate is not None else by_task.get(one.task)
        if estimate is None:
            left = max((available[name] for name in one.preferred if name in available), default=0.0)
            estimate = min(left, UNKNOWN_ESTIMATE) if left > 0.0 else UNKNOWN_ESTIMATE
        requests.append(PlacementRequest(one.instance, estimate, preferred=one.preferred, forbidden=one.forbidden))
    return place(requests, available)


# --- Moves ------------------------------------------------------------------------------------------------------------
# `moves_of_all` moves as the paper does (Algorithm 3.2, lines 7 to 14, and Algorithm 3.3 with its errata corrected),
# `only_helpful` makes only those moves that help.

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
    """Return the candidates to fail so that at least `need` % of one core is released, or as much as there is.

    Candidate c is an instance of that priority whose task needs at least `min_required[c]` % of one core; candidates
    come in the order of their ids. Whole priorities are added from the lowest up while they release less than `need`.
    Then, from the highest priority and the largest requirement down (ties: id), each is spared if the others still
    release enough. The result has that second order.
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
    """Move each instance that leaves to the task manager with the most CPU left, as in the paper."""
    available, failed, starved = _ensure_minimums(situation)
    leaving = list(movable(failed, situation))
    return Minimums(available, leaving, starved, _replace(situation.snapshot, leaving))


def _ensure_minimums(situation: Situation) -> tuple[list[float], list[int], list[int]]:
    """Return the CPU left above the minimums by task manager, the failed instances, and the starved task managers
    (Algorithm 3.2, lines 7 to 14)."""
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
    """Return another task manager for every failed instance, never the one on which it failed."""
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
    """Move instances only to task managers where their minimums fit beside those of the instances there.

    If the instances that the paper's algorithm chooses fit nowhere, others of their task manager are tried: the lowest
    priority first, and the largest first within one. If none fits, all stay, and their task manager is starved: a move
    costs a start, and the next task manager would lack as much CPU. Headroom is judged by costs: on a task manager that
    runs open, an instance counts with its cost elsewhere. A task manager where an instance warms up, or that stands by,
    is no target.
    """
    snapshot, load, required = situation.snapshot, situation.load, situation.min_required
    by_costs = situation.by_costs.all_of(situation.topology.min_accuracy)
    hosted: list[list[float]] = [[] for _ in snapshot.task_managers]
    known: list[list[float]] = [[] for _ in snapshot.task_managers]
    for t, manager in load.of_needing():
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
    """Move no instance; task managers where the minimums do not fit are starved."""
    return only_helpful(situation, _nobody)


def _nobody(failed: Sequence[int], situation: Situation) -> Sequence[int]:
    return ()


def _candidates(situation: Situation, movable: Movable, spare: list[float], leaving: list[int]) -> Iterator[int]:
    """Yield the instances that may leave: first those that the paper's algorithm chooses, then the others of task
    managers that still lack CPU. `spare` and `leaving` change during the iteration."""
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


# --- Cool-down --------------------------------------------------------------------------------------------------------
# A move costs a start on code that is not compiled, and metrics of the minute after it say little: without a cool-down,
# the same instances would move to and fro. A load that changes by half ends it.

REST_S = 60.0
#: Cool-down after the first start: costs from a reading or two are a guess.
START_S = 20.0
#: An input rate higher or lower than at the move by this factor ends the cool-down.
CHANGE = 1.5


@dataclass(frozen=True, slots=True)
class Home:
    """Where an instance runs, since when, and the application's input rate when it arrived."""

    task_manager: str
    rest_s: float
    since: float | None  #: when it was first measured there, seconds since the epoch; None: not yet
    rate: float  #: of all sources together when it arrived, rows/s


def with_rests(snapshot: Snapshot, before: Mapping[str, Home] | None) -> tuple[Snapshot, Mapping[str, Home]]:
    """Return `snapshot` with `rests_s` of the instances in their cool-down, and the homes of all instances."""
    windows = [window[1] for i in snapshot.instances if (window := i.window) is not None]
    now = max(windows, default=None)
    rate = sum(task.external_rate or 0.0 for task in snapshot.tasks if not task.upstream)
    known = before if before is not None else {}
    tasks = {task.id for task in snapshot.tasks}
    homes = {id: home for id, home in known.items() if id.rpartition(".")[0] in tasks}  # one that moves may be missing
    rests: dict[str, float] = {}
    for instance in snapshot.instances:
        home = homes[instance.id] = _home(instance, known.get(instance.id), now, rate)
        passed_s = now - home.since if now is not None and home.since is not None else 0.0
        left_s = home.rest_s - passed_s
        if left_s > 0.0 and home.rate / CHANGE < rate < home.rate * CHANGE:
            rests[instance.id] = left_s
    if not rests:
        return snapshot, homes
    instances = tuple(replace(i, rests_s=rests[i.id]) if i.id in rests else i for i in snapshot.instances)
    return replace(snapshot, instances=instances), homes


def _home(instance: Instance, home: Home | None, now: float | None, rate: float) -> Home:
    """Return the home of an instance: a new one if it has moved, and since when once it is measured."""
    if home is None or home.task_manager != instance.task_manager:
        home = Home(instance.task_manager, START_S if home is None else REST_S, None, rate)
    return replace(home, since=now) if home.since is None and instance.window is not None else home
