"""Where instances go that have no task manager: a runtime asks, a policy answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
