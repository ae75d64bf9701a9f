"""Moves so that the minimum accuracies fit: which instances, and where to (Algorithm 3.2, lines 7 to 14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qod_magics.core.load import total
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stream_economics.model.situation import Minimums, Situation
from qod_magics.policies.stream_economics.placing.eviction import kill, tolerance
from qod_magics.policies.stream_economics.placing.scheduler import PlacementRequest, available_cpu, place

#: Reduces the instances that would leave to those that may.
Movable = Callable[[Sequence[int], Situation], Sequence[int]]
Moves = Callable[[Situation, Movable], Minimums]


def moves_of_all(situation: Situation, movable: Movable) -> Minimums:
    """As in the paper: each instance that leaves goes where most CPU is left."""
    available, failed, starved = ensure_minimums(situation)
    leaving = list(movable(failed, situation))
    return Minimums(available, leaving, starved, _replace(situation.snapshot, leaving))


def ensure_minimums(situation: Situation) -> tuple[list[float], list[int], list[int]]:
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
