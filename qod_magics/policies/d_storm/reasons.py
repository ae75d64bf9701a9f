"""The reasons of D-Storm, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from qod_magics.core.plan import Move, Plan
from qod_magics.core.policy import SheddingNothing
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.wording import listed
from qod_magics.policies.d_storm.observation import State, Window, falls_behind, observed, usages
from qod_magics.policies.d_storm.problem import Demand, Node, Parameters


def trigger(state: State, window: Window, parameters: Parameters) -> str:
    """Return what started a round in this state, in words."""
    if state is State.CONSOLIDATE:
        mean = sum(window.usage.values()) / len(window.usage)
        return f"most of the {len(window.usage)} task managers in use are under-used, {mean:.0%} on average"
    if falls_behind(window, parameters):
        return f"throughput is {window.throughput / window.workload:.0%} of the workload"
    limit = parameters.max_latency_s if window.max_latency_s is None else window.max_latency_s
    return f"latency is {window.latency_s or 0.0:.2g} s, its limit {limit:.2g} s"


class DStormReasons(SheddingNothing):
    """The `core.policy.Reasons` of a plan of D-Storm or a baseline, for the snapshot that it was decided on."""

    def __init__(self, snapshot: Snapshot, plan: Plan, policy: str) -> None:
        super().__init__(policy)
        self.snapshot = snapshot
        self.plan = plan

    def __repr__(self) -> str:
        return f"reasons of a plan for {len(self.snapshot.tasks)} tasks"

    def task(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`: what of it moves."""
        mine = {instance.id for instance in self.snapshot.instances if instance.task == id}
        moving = [f"{move.instance} to {move.to}" for move in self.plan.moves if move.instance in mine]
        return [*self.shedding([id]).values(), *([f"to be moved: {listed(moving)}"] if moving else [])]

    def supply(self, id: str) -> str:
        """See `core.policy.Reasons`: the packing's dimensions, CPU and where known memory."""
        node, load = self._nodes[id], self._loads.get(id, Demand(id, 0.0))
        words = f"{id} has {node.cpu:.1f} % of a core for its tasks, which need {load.cpu:.1f} % at the workload"
        return words if node.memory == float("inf") else f"{words}, and {load.memory:.0f} of {node.memory:.0f} MB"

    def task_manager(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`: what goes there, and how full it is."""
        coming = [a.instance for a in self.plan.actions if isinstance(a, Move) and a.to == id]
        usage = self._usage.get(id)
        found = [] if usage is None else [f"it is {usage:.0%} full by the resource that it has least of"]
        return [*found, *([f"told to go there: {listed(coming)}"] if coming else [])]

    def starved(self, id: str) -> str:
        """See `core.policy.Reasons`."""
        return (
            f"{self.supply(id)}; no packing of all instances was found, so the placement stays: add a task manager, "
            "or a task manager with more cores or memory"
        )

    def numbers(self, id: str) -> Mapping[str, float]:
        """See `core.policy.Reasons`: CPU of a task manager, % of one core, and its usage, a fraction of 1."""
        load = self._loads.get(id, Demand(id, 0.0))
        return {"available": self._nodes[id].cpu, "needed": load.cpu, "usage": self._usage.get(id, 0.0)}

    @cached_property
    def _seen(self) -> tuple[Mapping[str, Node], Mapping[str, Demand], Mapping[str, str]]:
        seen = observed(self.snapshot)
        nodes = {manager.id: Node(manager.id, 100.0 * manager.cores) for manager in self.snapshot.task_managers}
        nodes |= {node.id: node for node in seen.problem.nodes}  # all but those that stand by
        return nodes, {demand.id: demand for demand in seen.problem.demands}, seen.current

    @property
    def _nodes(self) -> Mapping[str, Node]:
        return self._seen[0]

    @cached_property
    def _loads(self) -> Mapping[str, Demand]:
        """By task manager, the sum of its demands."""
        _, demands, current = self._seen
        found: dict[str, Demand] = {}
        for instance, node in current.items():
            before, more = found.get(node, Demand(node, 0.0)), demands[instance]
            found[node] = Demand(node, before.cpu + more.cpu, before.memory + more.memory)
        return found

    @cached_property
    def _usage(self) -> Mapping[str, float]:
        nodes, demands, current = self._seen
        return usages(demands, nodes, current)
