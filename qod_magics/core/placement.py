"""Placement of instances without a task manager: a runtime asks, a policy answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from qod_magics.core.optional import STANDBY
from qod_magics.core.snapshot import Instance, TaskManager


@dataclass(frozen=True, slots=True)
class Unplaced:
    """An instance that needs a task manager."""

    instance: str
    task: str
    estimate: float | None  #: its last CPU, % of one core
    forbidden: frozenset[str]  #: task managers that it must not go to


#: The unplaced, the task managers and the instances that run -> task manager by instance.
Placer = Callable[[Sequence[Unplaced], Sequence[TaskManager], Sequence[Instance]], Mapping[str, str]]


def takes_instances(manager: TaskManager) -> bool:
    """Whether instances may be placed there: it does not stand by.

    Raises a one-line SnapshotError if `standby` is no number >= 0.
    """
    return not STANDBY.of(manager)


def fewest_first(
    unplaced: Sequence[Unplaced], managers: Sequence[TaskManager], running: Sequence[Instance]
) -> Mapping[str, str]:
    """A Placer for policies without one: each goes where the fewest instances run per core."""
    hosted = {manager.id: 0 for manager in managers}
    for instance in running:
        if instance.task_manager in hosted:
            hosted[instance.task_manager] += 1
    placed = {}
    for one in unplaced:
        open_to_it = [manager for manager in managers if manager.id not in one.forbidden]
        if open_to_it:
            chosen = min(open_to_it, key=lambda manager: hosted[manager.id] / manager.cores).id
            placed[one.instance] = chosen
            hosted[chosen] += 1
    return placed
