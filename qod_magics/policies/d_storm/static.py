"""The schedulers that D-Storm is compared with, as policies: they place at submission and never again.

`StormRoundRobin` is Storm's default (baseline B1), `StormRas` the static resource-aware scheduler (RAS, baseline B2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

from qod_magics.core.plan import Action, Move, Plan, keeping_all
from qod_magics.core.policy import Reasons
from qod_magics.core.runtime import Unplaced, takes_instances
from qod_magics.core.snapshot import Instance, Snapshot, TaskManager
from qod_magics.policies.d_storm.observation import observed
from qod_magics.policies.d_storm.packing import DEFAULTS, SLACK, Demand, Node, Parameters
from qod_magics.policies.d_storm.policy import DStormReasons, Memory
from qod_magics.policies.d_storm.solver import placed

Profile = Literal["peak", "mean"]


class StormRoundRobin:
    """Storm's default scheduler: the same number of instances on each task manager, whatever they need."""

    def __init__(self, name: str = "storm-round-robin") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Return a plan that sheds and changes nothing: it runs at submission only."""
        return keeping_all(snapshot), None

    def place(
        self, unplaced: Sequence[Unplaced], managers: Sequence[TaskManager], running: Sequence[Instance]
    ) -> Mapping[str, str]:
        """See `core.policy.PlacingPolicy`: the turn goes on after running ones, as tasks can be declared one by one."""
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

    def with_parameters(self, parameters: Parameters, name: str) -> StormRas:
        """See `core.policy.ParameterizedPolicy`."""
        return StormRas(name, self.profile, parameters)

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Return a plan that moves once, at the end of the pilot run."""
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
    """Return the profile of an operator from the demands of its tasks."""
    cpu, memory = [each.cpu for each in demands], [each.memory for each in demands]
    largest = Demand(demands[0].id, max(cpu), max(memory))
    if profile == "peak":
        return largest
    return replace(largest, cpu=sum(cpu) / len(cpu), memory=sum(memory) / len(memory))


def round_robin(tasks: Iterable[str], nodes: Iterable[str], first: int = 0) -> dict[str, str]:
    """Return the node of each task: task number t, by id, goes to node t mod m, by id.

    `first`: number of tasks assigned before. Capacity is not checked. Raises ValueError without nodes.
    """
    order = sorted(nodes)
    if not order:
        raise ValueError("nodes is empty: give one or more nodes to deal the tasks to")
    return {task: order[t % len(order)] for t, task in enumerate(sorted(tasks), first)}


def resource_aware(
    tasks: Mapping[str, Sequence[str]],
    streams: Iterable[tuple[str, str]],
    profile: Mapping[str, Demand],
    nodes: Sequence[Node],
) -> dict[str, str] | None:
    """Return the node of each task, each on the first node with room by its operator's profile; None if one finds none.

    Args:
        tasks: the tasks of each operator, in the order in which they are taken.
        streams: (from, to) between operators.
        profile: by operator, the demand of each of its tasks as measured in a pilot run.
        nodes: sorted once, by their share of the cluster: all tasks are placed together.

    """
    order = node_order(nodes)
    free = [[node.cpu, node.memory] for node in order]
    placement = {}
    for operator, task in _task_order(tasks, streams):
        need = profile[operator]
        for node, left in zip(order, free, strict=True):
            if need.cpu <= left[0] + SLACK and need.memory <= left[1] + SLACK:
                left[0] -= need.cpu
                left[1] -= need.memory
                placement[task] = node.id
                break
        else:
            return None
    return placement


def node_order(nodes: Sequence[Node]) -> list[Node]:
    """Return nodes by effective share and mean share, each the most first, then by id."""
    cpu, memory = sum(node.cpu for node in nodes), sum(node.memory for node in nodes)

    def key(node: Node) -> tuple[float, float, str]:
        shares = [node.cpu / cpu if cpu > 0 else 0.0]
        if 0 < memory < inf:  # unknown somewhere: no part of the comparison
            shares.append(node.memory / memory)
        return (-min(shares), -sum(shares) / len(shares), node.id)

    return sorted(nodes, key=key)


def _task_order(tasks: Mapping[str, Sequence[str]], streams: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield (operator, task) in the order of placement: the best connected operators first, in turn with their
    neighbours."""
    near: dict[str, dict[str, int]] = {operator: {} for operator in tasks}
    for a, b in streams:
        near[a][b] = near[b][a] = len(tasks[a]) * len(tasks[b])
    left = {operator: iter(instances) for operator, instances in tasks.items()}
    for operator in sorted(tasks, key=lambda name: (-sum(near[name].values()), name)):
        turn = [operator, *sorted(near[operator], key=lambda name: (-near[operator][name], name))]
        while taken := [(name, task) for name in turn if (task := next(left[name], None)) is not None]:
            yield from taken
