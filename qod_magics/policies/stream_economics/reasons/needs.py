"""CPU that task managers have and their tasks need, for explanations. Pure.

The figures are those of Stream Economics' model (thesis, section 3.4), with learned costs where the snapshot has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from qod_magics.core.dag import Dag
from qod_magics.core.load import load_of
from qod_magics.core.optional import OPEN, TRUST
from qod_magics.core.snapshot import Snapshot, TaskManager
from qod_magics.policies.stream_economics.model.measures import known_requirements, minimums


@dataclass(frozen=True, slots=True)
class Need:
    """CPU figures of one task manager, % of one core."""

    available: float  #: aCpu(tm): what it has for its tasks
    at_minimum: float  #: sum of minReq over its instances
    at_full: float  #: sum of rCpu(t, 1) over its instances
    trust: float = 1.0  #: CPU that plans give its tasks / aCpu(tm); infinite where it runs open

    @property
    def short(self) -> float:
        """CPU lacking for the minimum accuracies; 0 when they fit."""
        return max(self.at_minimum - self.available, 0.0)

    @property
    def is_open(self) -> bool:
        """Whether plans shed nothing for its CPU."""
        return self.trust == inf

    @property
    def is_tight(self) -> bool:
        """Whether not all of its tasks can run at full accuracy."""
        return self.at_full > self.trust * self.available + 0.05


def needs(snapshot: Snapshot) -> Mapping[str, Need]:
    """CPU that each task manager of the snapshot has and needs, by id."""
    topology = Dag.of(snapshot).topology
    load, required = load_of(snapshot, topology), known_requirements(snapshot, topology)
    at_minimum = [0.0] * len(snapshot.task_managers)
    at_full = [0.0] * len(snapshot.task_managers)
    least = minimums(snapshot, topology, required)
    full = required.all_of([1.0] * len(least))
    for task, manager in zip(load.task_of, load.manager_of, strict=True):
        at_minimum[manager] += least[task]
        at_full[manager] += full[task]
    return {
        manager.id: Need(required.available[i], at_minimum[i], at_full[i], _trust(manager))
        for i, manager in enumerate(snapshot.task_managers)
    }


def _trust(manager: TaskManager) -> float:
    return inf if OPEN.of(manager) is not None else TRUST.of(manager) or 1.0


def shortage(name: str, need: Need) -> str:
    """Why instances have to leave a task manager: "tm1 needs 12.4 % more than it has at minimum accuracies"."""
    if need.short > 0:
        return f"{name} needs {need.short:.1f} % more than it has at minimum accuracies"
    return f"{name} needs {need.at_minimum:.1f} % of a core at minimum accuracies and has {need.available:.1f} %"


def supply(name: str, need: Need) -> str:
    """CPU that a task manager has and needs, in words."""
    return (
        f"{name} has {need.available:.1f} % of a core for its tasks, "
        f"needs {need.at_minimum:.1f} % at minimum accuracies and {need.at_full:.1f} % at full accuracy"
    )
