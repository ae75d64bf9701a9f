"""Stages of a stack: which levers they own, and what they see of a cycle (demand, pressure). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from qod_magics.core.columns import column
from qod_magics.core.dag import Dag
from qod_magics.core.freshness import has_failed
from qod_magics.core.fusion import CORE, Pair
from qod_magics.core.load import load_of
from qod_magics.core.plan import Action, AddNode, Fuse, Move, Plan, ReleaseNode, Scale, SetBatch, Stop, Unfuse
from qod_magics.core.runtime import takes_instances
from qod_magics.core.snapshot import Snapshot, Task
from qod_magics.policies.stream_economics.model.requirements import known_requirements


class Lever(Enum):
    """What a stage may change. Each has one owner in a stack."""

    SHEDDING = "shedding"
    BATCHES = "batches"
    PLACEMENT = "placement"
    FUSION = "fusion"
    PARALLELISM = "parallelism"
    NODES = "nodes"


LEVER_OF: Mapping[type[Action], Lever] = {
    Move: Lever.PLACEMENT,
    Stop: Lever.PLACEMENT,
    SetBatch: Lever.BATCHES,
    Fuse: Lever.FUSION,
    Unfuse: Lever.FUSION,
    Scale: Lever.PARALLELISM,
    AddNode: Lever.NODES,
    ReleaseNode: Lever.NODES,
}


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
        """Return the demand by learned costs where the snapshot has them, else in proportion to accuracy (thesis, Eq.
        3.9). Trust, which compares costs with backlogs, corrects the CPU available; it takes none where an instance
        needs more than a core, whose backlog says nothing of the other cores."""
        topology = Dag.of(snapshot).topology
        load, required = load_of(snapshot, topology), known_requirements(snapshot, topology)
        by_task = [base + cost for base, cost in zip(required.base, required.costs(), strict=True)]
        instance = [by_task[t] for t in load.task_of]
        trust = [manager.trust or 1.0 for manager in snapshot.task_managers]
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
        """Return `instance` by the ids of the snapshot that it was measured in."""
        return dict(zip(column(snapshot.instances, "id"), self.instance, strict=True))

    def over(self, manager: int) -> float:
        """Return the CPU that its instances need beyond what it has; 0 where all fit."""
        return max(self.needed[manager] - self.available[manager], 0.0)

    def room(self, manager: int) -> float:
        """Return the CPU left there at full accuracy; 0 where none is."""
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
        """Return whether all but these task managers have the CPU, and `headroom` of it to spare."""
        left = sum(cpu for m, cpu in enumerate(self.available) if m not in managers)
        return sum(self.needed) <= (1.0 - headroom) * left

    def is_roomy(self, headroom: float) -> bool:
        """Return whether the largest task manager could be missed: the others have the CPU, and `headroom` of it to
        spare."""
        most = sum(self.available) - max(self.available, default=0.0)
        return len(self.available) > 1 and sum(self.needed) <= (1.0 - headroom) * most


#: Accuracy from which on a query counts as whole.
WHOLE = 0.98


@dataclass(frozen=True, slots=True)
class Pressure:
    """A query that is shed, or late."""

    query: str
    since_s: float  #: on the clock of the snapshots
    accuracy: float  #: planned, fraction of 1
    latency_s: float | None  #: the 95th percentile; None: unmeasured, or within its target

    @property
    def words(self) -> str:
        """One clause."""
        late = "" if self.latency_s is None else f", late ({self.latency_s:.1f} s)"
        return f"{self.query} at {self.accuracy:.2f}{late}"


def pressures(snapshot: Snapshot, plan: Plan, now_s: float, before: Mapping[str, Pressure]) -> Mapping[str, Pressure]:
    """Return the queries under pressure, by name; one that was so `before` keeps its beginning. One that has failed is
    late for another reason than a lack of CPU."""
    found = {}
    failed = {instance.task for instance in snapshot.instances if has_failed(instance)}
    for task in snapshot.tasks:
        if snapshot.downstream[task.id] or task.id in failed:
            continue
        accuracy, late_s = plan.desired[task.id], exceeding_latency(task)
        if accuracy >= WHOLE and late_s is None:
            continue
        known = before.get(task.id)
        found[task.id] = Pressure(task.id, now_s if known is None else known.since_s, accuracy, late_s)
    return found


def exceeding_latency(task: Task) -> float | None:
    """Return the latency of a query beyond its target, seconds. None: within the target, or without one."""
    target = task.max_latency_s
    return latency(task) if target is not None and latency(task) > target else None


def latency(task: Task) -> float:
    """Return the latency of a query, seconds: the 95th percentile, or the age of its oldest row where that is greater;
    0 where neither is measured."""
    return max(task.latency_p95_s or 0.0, task.oldest_s or 0.0)


@dataclass(frozen=True, slots=True)
class View:
    """The input of a stage."""

    snapshot: Snapshot
    now_s: float  #: on the clock of the snapshots
    plan: Plan  #: of the shedding stage, for this snapshot
    demand: Demand
    pressures: Mapping[str, Pressure]  #: queries that are shed or late, by name
    eased_since_s: float | None  #: since when no query is under pressure; None while one is
    roomy_since_s: float | None = None  #: since when one task manager fewer would have the CPU; None while it would not
    together: Mapping[Pair, float] = field(default_factory=dict)  #: since when neighbours could be one query
    proposed: tuple[Action, ...] = ()  #: by the stages before it, for this snapshot
    refused: Collection[str] = ()  #: subjects of actions that failed or did not help, and are left alone for a while

    def pressed_s(self) -> float:
        """Return how long the query that has been under pressure longest is so, seconds; 0 without one."""
        return max((self.now_s - each.since_s for each in self.pressures.values()), default=0.0)

    def eased_s(self) -> float:
        """Return how long no query has been under pressure, seconds."""
        return 0.0 if self.eased_since_s is None else self.now_s - self.eased_since_s

    def roomy_s(self) -> float:
        """Return how long that has been so while one task manager fewer would have had the CPU, too, seconds."""
        return 0.0 if self.roomy_since_s is None else min(self.now_s - self.roomy_since_s, self.eased_s())


@dataclass(frozen=True, slots=True)
class Proposal:
    """The answer of a stage: actions that are carried out together, and one clause that says why, or why none."""

    actions: tuple[Action, ...] = ()
    note: str = ""


class Stage(Protocol):
    """A part of a policy that pulls some of the levers."""

    name: str
    owns: frozenset[Lever]

    def propose(self, view: View) -> Proposal:
        """Return the proposal for a view. Pure: the same view always gives the same proposal."""
        ...
