"""CPU that instances need at full accuracy, against the CPU of their task managers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from qod_magics.core.dag import Dag
from qod_magics.core.load import load_of
from qod_magics.core.neighbours import CORE
from qod_magics.core.optional import TRUST
from qod_magics.core.placement import takes_instances
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.table import column
from qod_magics.policies.stream_economics.model.measures import known_requirements


@dataclass(frozen=True, slots=True)
class Demand:
    """CPU in % of one core; instances and task managers by their positions in the snapshot."""

    instance: Sequence[float]  #: needed at accuracy 1 and the present input rates; above 100: more than one core
    home: Sequence[int]  #: by instance: its task manager
    available: Sequence[float]  #: by task manager: CPU for its tasks; 0 where it stands by
    hosted: Sequence[Sequence[int]]  #: by task manager: its instances
    needed: Sequence[float]  #: by task manager: the sum over its instances

    @classmethod
    def of(cls, snapshot: Snapshot) -> Demand:
        """By learned costs where the snapshot has them, else in proportion to accuracy (thesis, Eq. 3.9). Trust, which
        compares costs with backlogs, corrects the CPU available; it takes none where an instance needs more than a
        core, whose backlog says nothing of the other cores."""
        topology = Dag.of(snapshot).topology
        load, required = load_of(snapshot, topology), known_requirements(snapshot, topology)
        by_task = [base + cost for base, cost in zip(required.base, required.costs(), strict=True)]
        instance = [by_task[t] for t in load.task_of]
        trust = [TRUST.of(manager) or 1.0 for manager in snapshot.task_managers]
        for i, home in enumerate(load.manager_of):
            if instance[i] > CORE:
                trust[home] = max(trust[home], 1.0)
        available = [cpu * t for cpu, t in zip(required.available, trust, strict=True)]
        hosted: list[list[int]] = [[] for _ in snapshot.task_managers]
        for i, home in enumerate(load.manager_of):
            hosted[home].append(i)
        for m, manager in enumerate(snapshot.task_managers):
            if not hosted[m] and not takes_instances(manager):
                available[m] = 0.0
        needed = [sum(instance[i] for i in here) for here in hosted]
        return cls(instance, load.manager_of, available, hosted, needed)

    def by_instance(self, snapshot: Snapshot) -> dict[str, float]:
        """`instance` by the ids of the snapshot that it was measured in."""
        return dict(zip(column(snapshot.instances, "id"), self.instance, strict=True))

    def over(self, manager: int) -> float:
        """CPU that its instances need beyond what it has; 0 where all fit."""
        return max(self.needed[manager] - self.available[manager], 0.0)

    def room(self, manager: int) -> float:
        """CPU left there at full accuracy; 0 where none is."""
        return max(self.available[manager] - self.needed[manager], 0.0)

    @property
    def short(self) -> float:
        """CPU that all task managers lack together."""
        return sum(map(self.over, range(len(self.available))))

    @property
    def beyond(self) -> float:
        """CPU that task managers lack beyond the room on the others: no move gains it. 0 where all would fit."""
        return max(self.short - sum(map(self.room, range(len(self.available)))), 0.0)

    def holds_without(self, managers: Collection[int], headroom: float) -> bool:
        """Whether all but these task managers have the CPU, and `headroom` of it to spare."""
        left = sum(cpu for m, cpu in enumerate(self.available) if m not in managers)
        return sum(self.needed) <= (1.0 - headroom) * left

    def is_roomy(self, headroom: float) -> bool:
        """Whether the largest task manager could be missed: the others have the CPU, and `headroom` of it to spare."""
        most = sum(self.available) - max(self.available, default=0.0)
        return len(self.available) > 1 and sum(self.needed) <= (1.0 - headroom) * most
