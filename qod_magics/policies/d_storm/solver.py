"""The scheduling solver: a packing on the nodes that are up, or with more nodes where that fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qod_magics.policies.d_storm.cost import costs
from qod_magics.policies.d_storm.observation import Observation
from qod_magics.policies.d_storm.packing import Packing, pack
from qod_magics.policies.d_storm.parameters import DEFAULTS, Parameters
from qod_magics.policies.d_storm.problem import Node
from qod_magics.policies.d_storm.relabelling import relabelled
from qod_magics.policies.d_storm.traffic import inter_node_traffic, total_traffic


@dataclass(frozen=True, slots=True)
class Solution:
    """A placement of all instances beside the current one. Traffic in the unit of the observation."""

    placement: Mapping[str, str]  #: node by instance
    nodes: Mapping[str, Node]  #: those that it could choose from
    current: Mapping[str, str]  #: task manager by instance
    traffic: float  #: between nodes, kappa
    traffic_now: float  #: the same of the current placement
    total: float  #: between all instances

    @property
    def used(self) -> tuple[Node, ...]:
        """The nodes that it uses."""
        return self._used_by(self.placement)

    @property
    def used_now(self) -> tuple[Node, ...]:
        """The nodes that the current placement uses."""
        return self._used_by(self.current)

    @property
    def to_start(self) -> tuple[Node, ...]:
        """The nodes that it uses and that are not up."""
        return tuple(node for node in self.used if node.kind is not None)

    @property
    def moving(self) -> tuple[str, ...]:
        """The instances that it places elsewhere."""
        return tuple(each for each, node in self.placement.items() if self.current[each] != node)

    @property
    def is_cheaper(self) -> bool:
        """Whether its nodes cost less than those used now."""
        then, now = costs(self.used, self.used_now)
        return then < now

    def _used_by(self, placement: Mapping[str, str]) -> tuple[Node, ...]:
        used = set(placement.values())
        return tuple(node for node in self.nodes.values() if node.id in used)


def solve(seen: Observation, parameters: Parameters = DEFAULTS) -> Solution | Packing:
    """The placement, or the incomplete packing (FAILURE) on all nodes that the cluster has or could start.

    Nodes are started one by one, the largest first, until everything packs: those that are up cost already.
    """
    up = tuple(seen.problem.nodes)
    for more in range(len(seen.spares) + 1):
        problem = seen.problem.with_nodes((*up, *seen.spares[:more]))
        packing = pack(problem, parameters)
        if packing.is_complete:
            return solution(seen, problem.nodes, packing.placement, parameters)
    return packing


def solution(
    seen: Observation, nodes: Sequence[Node], placement: Mapping[str, str], parameters: Parameters = DEFAULTS
) -> Solution:
    """A placement on these nodes beside the current one, relabelled if the parameters say so."""
    if parameters.relabel:
        placement = relabelled(placement, nodes, seen.problem.demands, seen.current)
    channels = seen.problem.channels
    return Solution(
        placement,
        {node.id: node for node in nodes},
        seen.current,
        inter_node_traffic(channels, placement),
        inter_node_traffic(channels, seen.current),
        total_traffic(channels),
    )
