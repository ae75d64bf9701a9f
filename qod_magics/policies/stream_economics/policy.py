"""One controller cycle of Stream Economics: the plan as a function of the snapshot alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from qod_magics.core.keyed import Keyed, Keys
from qod_magics.core.plan import Plan
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.table import column
from qod_magics.policies.stream_economics.eviction import kill, tolerance
from qod_magics.policies.stream_economics.load import Load, total
from qod_magics.policies.stream_economics.measures import load_of, minimums, paper_requirements
from qod_magics.policies.stream_economics.propagation import Edges, kept_shares, propagate
from qod_magics.policies.stream_economics.queries import QueryAccuracies
from qod_magics.policies.stream_economics.reach import Reach
from qod_magics.policies.stream_economics.requirements import Requirements
from qod_magics.policies.stream_economics.scheduler import PlacementRequest, available_cpu, place
from qod_magics.policies.stream_economics.sharing import Needs, groups_by_priority, share
from qod_magics.policies.stream_economics.topology import Declared, Topology, declared


@dataclass(frozen=True, slots=True)
class _Application:
    """What follows from the declarations alone. Kept from cycle to cycle, so that a cycle computes only with loads."""

    declared: Declared
    topology: Topology
    reach: Reach
    tasks: Keys[str]
    edges: Edges

    @classmethod
    def of(cls, snapshot: Snapshot, last: Any) -> _Application:
        """`last` itself if the tasks and streams are declared as those were."""
        tasks = declared(snapshot.tasks)
        starts, ends = column(snapshot.streams, "source"), column(snapshot.streams, "target")
        found = [*tasks, starts, ends]
        if isinstance(last, cls) and last.declared == found:
            return last
        topology = Topology.following(tasks)
        return cls(found, topology, Reach.of(topology), Keys(topology.position), Edges.of(starts, ends, topology))


@dataclass(frozen=True, slots=True)
class Situation:
    """What a cycle decides on. Positions are those in the snapshot."""

    snapshot: Snapshot
    topology: Topology
    reach: Reach
    load: Load
    required: Requirements
    min_required: list[float]  #: by task: minReq(t), % of one core
    by_id: list[int]  #: the instances in the order of their ids, which settles ties


@dataclass(frozen=True, slots=True)
class Minimums:
    """What the minimum accuracies come to."""

    available: list[float]  #: by task manager: CPU left above them, % of one core
    failed: list[int]  #: instances that leave
    starved: list[int]  #: task managers where they do not fit
    place: Mapping[str, str]  #: where the failed go


class StreamEconomics:
    """Algorithm 3.2. First every minimum accuracy, then the rest by priority, then drops as early as possible."""

    name = "stream-economics"

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """The plan for a valid snapshot, on which it never raises.

        `state` (what the last call returned, or None) saves time while the application stays the same; it never
        changes the plan.
        """
        application = _Application.of(snapshot, state)
        topology = application.topology
        load = load_of(snapshot, topology)
        required = self.requirements(snapshot, topology, load)
        min_required = minimums(snapshot, topology, required)
        situation = Situation(snapshot, topology, application.reach, load, required, min_required, _by_id(snapshot))
        ensured = self.ensure_minimums(situation)
        left_out = set(ensured.failed)
        if any(waits := self.waiting_for_warm_ups(situation)):
            left_out.update(i for i in situation.by_id if waits[load.manager_of[i]])
        by_task = self.give_out(situation, ensured.available, left_out)
        propagate(by_task, topology)
        plan = Plan(
            current_accuracy=Keyed(application.tasks, required.current),
            desired=Keyed(application.tasks, by_task),
            non_drop=kept_shares(by_task, application.edges),
            fail=tuple(snapshot.instances[i].id for i in ensured.failed),
            place=ensured.place,
            starved=tuple(snapshot.task_managers[manager].id for manager in ensured.starved),
        )
        return plan, application

    def requirements(self, snapshot: Snapshot, topology: Topology, load: Load) -> Requirements:
        """What each task needs for which accuracy."""
        return paper_requirements(snapshot, topology)

    def waiting_for_warm_ups(self, situation: Situation) -> Sequence[bool]:
        """By task manager: whether its instances take no part in sharing, since one of them warms up."""
        return situation.load.warming

    def ensure_minimums(self, situation: Situation) -> Minimums:
        """Which instances have to leave for the minimum accuracies, and where they go."""
        available, failed, starved = _ensure_minimums(situation)
        return Minimums(available, failed, starved, _replace(situation.snapshot, failed))

    def give_out(self, situation: Situation, available: list[float], left_out: Set[int]) -> list[float]:
        """desired(q) by task position, out of what is `available` above the minimum accuracies.

        Instances that are `left_out` have no share, and their queries only their minimum accuracies.
        """
        topology, load, required = situation.topology, situation.load, situation.required
        accuracies = QueryAccuracies(topology, situation.reach, {load.task_of[i] for i in left_out})
        sharing = [i for i in situation.by_id if i not in left_out] if left_out else situation.by_id
        beyond = situation.min_required
        if any(required.base):
            beyond = [needed - base for needed, base in zip(beyond, required.base, strict=True)]
            for t in {load.task_of[i] for i in sharing}:
                if (most := required.most(t)) < 1.0:
                    accuracies.limit(t, max(most, topology.min_accuracy[t]))
        needs = Needs(required.cpu, required.at, topology.min_accuracy, beyond)
        share(groups_by_priority(sharing, load, topology), needs, available, accuracies)
        return accuracies.by_task()


def _by_id(snapshot: Snapshot) -> list[int]:
    """Positions of the instances in the order of their ids, which settles ties."""
    ids = column(snapshot.instances, "id")
    return sorted(range(len(ids)), key=ids.__getitem__)


def _ensure_minimums(situation: Situation) -> tuple[list[float], list[int], list[int]]:
    """Algorithm 3.2, lines 7 to 14: CPU left above the minimums by task manager, failed instances, starved managers."""
    topology, load, min_required = situation.topology, situation.load, situation.min_required
    available = list(situation.required.available)
    failed: list[int] = []
    starved: list[int] = []
    hosted: list[list[int]] = [[] for _ in available]
    for i in situation.by_id:
        hosted[load.manager_of[i]].append(i)
    task_of = load.task_of
    for manager, instances in enumerate(hosted):
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
        # its last CPU is known: nothing fails where an instance, and so perhaps this one, is warming up
        PlacementRequest(instance.id, instance.cpu, forbidden=forbidden[instance.task_manager])
        for instance in (snapshot.instances[i] for i in failed)
    ]
    return place(requests, available_cpu(snapshot.task_managers, snapshot.instances))
