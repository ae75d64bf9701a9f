"""Placement, first and after a failure: the task manager with the most CPU left (Algorithm 3.1). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from qod_magics.core.load import whole_cpu
from qod_magics.core.runtime import Unplaced
from qod_magics.core.snapshot import Instance, TaskManager

UNKNOWN_ESTIMATE = 100.0  #: % of one core, for a task that never ran


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """An instance that needs a task manager."""

    instance: str
    estimate: float = UNKNOWN_ESTIMATE  #: % of one core it will probably use
    preferred: Collection[str] = ()  #: task managers it would rather run on (locality), if they have the CPU
    forbidden: Collection[str] = ()  #: task managers it must not go to, such as the one it failed on


def place(requests: Iterable[PlacementRequest], available: Mapping[str, float]) -> dict[str, str]:
    """Instance -> task manager, request by request; each placement lowers what the next finds available.

    `available` maps task managers, in input order, to their estimated CPU left in % of one core (`available_cpu`; it
    may be negative). Candidates are the preferred ones where the estimate fits, else all but the forbidden; the one
    with the most left wins, ties go to input order. A request that may go nowhere gets no entry.
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
    """Whether the instance was measured since its (re)placement: while it warms up, all zeros mean it was not."""
    return not instance.warming_up or instance.cpu > 0.0 or instance.in_rate > 0.0


def estimated_cpu(instances: Iterable[Instance]) -> dict[str, float]:
    """By instance, % of one core: its last CPU, else that of the first measured instance of its task, else 100."""
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
    """Task manager by instance. An instance that never ran is estimated by another of its task."""
    by_task = {instance.task: instance.cpu for instance in running if not instance.warming_up}
    requests = [
        PlacementRequest(
            one.instance,
            one.estimate if one.estimate is not None else by_task.get(one.task, UNKNOWN_ESTIMATE),
            forbidden=one.forbidden,
        )
        for one in unplaced
    ]
    return place(requests, available_cpu(managers, running))
