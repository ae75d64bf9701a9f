"""What task managers can give and what their tasks need, for explanations. Pure.

The figures are those of Stream Economics' model (card, sections 2 and 3), with the costs of tasks that a snapshot
knows, if it does. They are measurements and an extrapolation from them, so they say something about a snapshot
whichever policy decided on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qod_magics.controller.dag import Dag
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stream_economics.measures import known_requirements, load_of, minimums


@dataclass(frozen=True, slots=True)
class Need:
    """Of one task manager; all in % of one core."""

    available: float  #: aCpu(tm): what it has for its tasks
    at_minimum: float  #: sum of minReq over its instances
    at_full: float  #: sum of rCpu(t, 1) over its instances

    @property
    def short(self) -> float:
        """What is lacking for the minimum accuracies; 0 when they fit."""
        return max(self.at_minimum - self.available, 0.0)

    @property
    def is_tight(self) -> bool:
        """Whether not all of its tasks can run at full accuracy."""
        return self.at_full > self.available + 0.05


def needs(snapshot: Snapshot) -> Mapping[str, Need]:
    """What each task manager of the snapshot has and needs, by id."""
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
        manager.id: Need(required.available[i], at_minimum[i], at_full[i])
        for i, manager in enumerate(snapshot.task_managers)
    }
