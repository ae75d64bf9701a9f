"""The schedulers that D-Storm is compared with, as policies: they place at submission and never again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from qod_magics.core.actions import Action, Move
from qod_magics.core.placement import Unplaced, takes_instances
from qod_magics.core.plan import Plan, keeping_all
from qod_magics.core.reasons import Reasons
from qod_magics.core.snapshot import Instance, Snapshot, TaskManager
from qod_magics.policies.d_storm.first_placement import placed
from qod_magics.policies.d_storm.memory import Memory
from qod_magics.policies.d_storm.observation import observed
from qod_magics.policies.d_storm.parameters import DEFAULTS, Parameters
from qod_magics.policies.d_storm.problem import Demand
from qod_magics.policies.d_storm.ras import resource_aware
from qod_magics.policies.d_storm.reasons import DStormReasons
from qod_magics.policies.d_storm.round_robin import round_robin

Profile = Literal["peak", "mean"]


class StormRoundRobin:
    """Storm's default scheduler: the same number of instances on each task manager, whatever they need."""

    def __init__(self, name: str = "storm-round-robin") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Sheds nothing and changes nothing: it runs at submission only."""
        return keeping_all(snapshot), None

    def place(
        self, unplaced: Sequence[Unplaced], managers: Sequence[TaskManager], running: Sequence[Instance]
    ) -> Mapping[str, str]:
        """See `core.policy.PlacingPolicy`: dealt on after those that run, since tasks can be declared one by one."""
        nodes = [manager.id for manager in managers if takes_instances(manager)]
        if not nodes:
            return {}
        dealt = round_robin((one.instance for one in unplaced), nodes, first=len(running))
        order = sorted(nodes)
        found = {}
        for one in unplaced:
            start = order.index(dealt[one.instance])
            turn = [*order[start:], *order[:start]]
            allowed = next((node for node in turn if node not in one.forbidden), None)
            if allowed is not None:
                found[one.instance] = allowed
        return found

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return DStormReasons(snapshot, plan, self.name)


@dataclass(frozen=True, slots=True)
class _Submission:
    """What storm-ras remembers: the instances that it scheduled, and the pilot run of those to come."""

    memory: Memory
    scheduled: frozenset[str] = frozenset()


class StormRas:
    """The static resource-aware scheduler (RAS) on profiles that a pilot run measures.

    The pilot run is the first window of new instances; then all are scheduled once, and never again until others are
    added. `profile`: an operator's is the demand of its largest instance (peak), which always fits, or their mean.
    """

    def __init__(self, name: str = "storm-ras", profile: Profile = "peak", parameters: Parameters = DEFAULTS) -> None:
        self.name = name
        self.profile: Profile = profile
        self.parameters = parameters

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Moves once, at the end of the pilot run."""
        state = state if isinstance(state, _Submission) else None
        memory = Memory.seeing(snapshot, state and state.memory, self.parameters)
        scheduled = state.scheduled if state is not None else frozenset()
        instances = frozenset(instance.id for instance in snapshot.instances)
        actions: tuple[Action, ...] = ()
        if instances - scheduled and memory.monitor.is_full(memory.now_s, self.parameters):
            actions, scheduled = self._scheduled(memory.monitor.mean), instances
        return keeping_all(snapshot, actions), _Submission(memory, scheduled)

    def place(
        self, unplaced: Sequence[Unplaced], managers: Sequence[TaskManager], running: Sequence[Instance]
    ) -> Mapping[str, str]:
        """See `core.policy.PlacingPolicy`: before the pilot run, by demands known or equal."""
        return placed(unplaced, managers, running, self.parameters)

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return DStormReasons(snapshot, plan, self.name)

    def _scheduled(self, mean: Snapshot) -> tuple[Move, ...]:
        seen = observed(mean, self.parameters)
        tasks: dict[str, list[str]] = defaultdict(list)
        for instance in mean.instances:
            tasks[instance.task].append(instance.id)
        demands = {demand.id: demand for demand in seen.problem.demands}
        profile = {task: profiled([demands[each] for each in of], self.profile) for task, of in tasks.items()}
        streams = [(stream.source, stream.target) for stream in mean.streams]
        found = resource_aware(tasks, streams, profile, seen.problem.nodes)
        why = "scheduled once, on the profiles of the pilot run, the best connected tasks first"
        going = (found or {}).items()
        return tuple(Move(instance, node, why) for instance, node in going if seen.current[instance] != node)


def profiled(demands: Sequence[Demand], profile: Profile) -> Demand:
    """The profile of an operator from the demands of its tasks."""
    cpu, memory = [each.cpu for each in demands], [each.memory for each in demands]
    largest = Demand(demands[0].id, max(cpu), max(memory))
    if profile == "peak":
        return largest
    return replace(largest, cpu=sum(cpu) / len(cpu), memory=sum(memory) / len(memory))
