"""The scheduling solver: placements of all instances, on the nodes that are up or on more, or on fewer.

`solve` packs for one scheduling round, `relabelled` lets fewer instances move, `placed` places instances that have no
task manager yet. `consolidation` is for policies that compose D-Storm: which task managers could be released, and what
has to move for it. It keeps no state and waits for no window: give it a snapshot of means (`observation.mean`) if
single ones vary, and do not call it while something warms up. A policy with better figures than the snapshot's, such as
learned costs, passes its own demands and capacities as `Known`.

    found = consolidation(snapshot, headroom=0.3)
    if found is not None:  # everything packs on fewer task managers
        found.moves        # empty `found.releasable` by these, then release them
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from qod_magics.core.load import whole_cpu
from qod_magics.core.plan import Move
from qod_magics.core.runtime import Unplaced, takes_instances
from qod_magics.core.snapshot import Instance, Snapshot, TaskManager
from qod_magics.policies.assignment import optimum
from qod_magics.policies.d_storm.observation import Observation, observed
from qod_magics.policies.d_storm.packing import (
    DEFAULTS,
    SLACK,
    Demand,
    Node,
    Packing,
    Parameters,
    Problem,
    costs,
    inter_node_traffic,
    pack,
    total_traffic,
)


@dataclass(frozen=True, slots=True)
class Solution:
    """A placement of all instances beside the current one. Traffic in the unit of the observation."""

    placement: Mapping[str, str]  #: node by instance
    nodes: Mapping[str, Node]  #: those that it could choose from
    current: Mapping[str, str]  #: task manager by instance
    traffic: float  #: between nodes, kappa
    traffic_now: float  #: traffic of the current placement
    total: float  #: between all instances

    @property
    def used(self) -> tuple[Node, ...]:
        """Return the nodes that it uses."""
        return self._used_by(self.placement)

    @property
    def used_now(self) -> tuple[Node, ...]:
        """Return the nodes that the current placement uses."""
        return self._used_by(self.current)

    @property
    def to_start(self) -> tuple[Node, ...]:
        """Return the nodes that it uses and that are not up."""
        return tuple(node for node in self.used if node.kind is not None)

    @property
    def moving(self) -> tuple[str, ...]:
        """Return the instances that it places elsewhere."""
        return tuple(each for each, node in self.placement.items() if self.current[each] != node)

    @property
    def is_cheaper(self) -> bool:
        """Return whether its nodes cost less than those used now."""
        then, now = costs(self.used, self.used_now)
        return then < now

    def _used_by(self, placement: Mapping[str, str]) -> tuple[Node, ...]:
        used = set(placement.values())
        return tuple(node for node in self.nodes.values() if node.id in used)


def solve(seen: Observation, parameters: Parameters = DEFAULTS) -> Solution | Packing:
    """Return the placement, or the incomplete packing (FAILURE) on all nodes that the cluster has or could start.

    Nodes are started one by one, the largest first, until everything packs: those that are up cost already.
    """
    up = tuple(seen.problem.nodes)
    for more in range(len(seen.spares) + 1):
        problem = seen.problem.with_nodes((*up, *seen.spares[:more]))
        packing = pack(problem, parameters)
        if packing.is_complete:
            return _solution(seen, problem.nodes, packing.placement, parameters)
    return packing


def _solution(
    seen: Observation, nodes: Sequence[Node], placement: Mapping[str, str], parameters: Parameters = DEFAULTS
) -> Solution:
    """Return a placement on these nodes beside the current one, relabelled if the parameters say so."""
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


def relabelled(
    placement: Mapping[str, str], nodes: Sequence[Node], demands: Sequence[Demand], current: Mapping[str, str]
) -> dict[str, str]:
    """Return `placement` with the roles of equal nodes exchanged so that the most instances stay where they are.

    Nodes are equal if of one `size`; where less of it is free on one of them, it only takes a role that fits. Traffic
    between nodes and the number of nodes of each size stay the same. O(m ** 3) for m nodes of one size.
    """
    alike: dict[object, list[Node]] = defaultdict(list)
    for node in nodes:
        alike[node.size].append(node)
    renamed: dict[str, str] = {}
    loads = {node.id: [0.0, 0.0] for node in nodes}
    together: dict[tuple[str, str], int] = defaultdict(int)  #: (role, node) -> instances that would stay
    for demand in demands:
        role = placement[demand.id]
        loads[role][0] += demand.cpu
        loads[role][1] += demand.memory
        together[role, current.get(demand.id, "")] += 1
    for group in alike.values():
        # overlap first, then as few new names as possible, then nodes that are up
        weights = [
            [_weight(role, node, loads[role.id], together[role.id, node.id], len(group)) for node in group]
            for role in group
        ]
        names = [node.id for node in group]
        renamed |= {name: names[k] for name, k in zip(names, assignment(weights), strict=True)}
    return {instance: renamed[node] for instance, node in placement.items()}


def _weight(role: Node, node: Node, load: Sequence[float], staying: int, size: int) -> float:
    if role.id != node.id and (load[0] > node.cpu + SLACK or load[1] > node.memory + SLACK):
        return -inf
    is_used_and_up = node.kind is None and (load[0] > 0 or load[1] > 0)
    return float(staying * (3 * size + 1) + 2 * is_used_and_up + (role.id == node.id))


def assignment(weights: Sequence[Sequence[float]]) -> list[int]:
    """Return the column of each row: one each, so that the sum of weights is largest. -inf: never, unless there is no
    other way.

    Square matrices, O(n ** 3).
    """
    n = len(weights)
    finite = [abs(w) for row in weights for w in row if w != -inf]
    never = 1.0 + 2.0 * n * max(finite, default=0.0)
    cost = np.array([[never if w == -inf else -w for w in row] for row in weights], dtype=float).reshape(n, n)
    return [int(column) for column in optimum(cost)[0]]


@dataclass(frozen=True, slots=True)
class Known:
    """Figures that take the place of the snapshot's; those of others stay. CPU in % of one core."""

    needed: Mapping[str, float] = field(default_factory=dict)  #: CPU by instance, at the workload
    available: Mapping[str, float] = field(default_factory=dict)  #: CPU by task manager, for its instances
    staying: Collection[str] = ()  #: instances that must not move; they count where they are


NOTHING_KNOWN = Known()


@dataclass(frozen=True, slots=True)
class Consolidation:
    """A placement of all instances that leaves task managers empty."""

    placement: Mapping[str, str]  #: task manager by instance, of all
    moves: tuple[Move, ...]  #: from the current placement to it
    releasable: tuple[str, ...]  #: task managers without instances then, in the snapshot's order; one or more
    traffic_now: float  #: between task managers, in `unit`
    unit: str  #: "bytes/s" or "rows/s"


def consolidation(snapshot: Snapshot, headroom: float = 0.2, known: Known = NOTHING_KNOWN) -> Consolidation | None:
    """Return whether all instances pack on fewer task managers than are up, each filled to `1 - headroom` at most.

    None if they do not, or if that would move an instance that has to stay. Task managers that stand by count for
    nothing: nothing goes there, and they are not released.

    Args:
        snapshot: a valid one; demands are those at the workload (`observation.observed`).
        headroom: share of the free CPU and memory of each task manager to leave free, 0 <= headroom < 1.
        known: better figures than the snapshot's.

    Raises:
        ValueError: `headroom` is out of range.

    """
    seen = _observed(snapshot, headroom, known)
    nodes = tuple(_reduced(node, 1.0 - headroom) for node in seen.problem.nodes)
    packing = pack(seen.problem.with_nodes(nodes), DEFAULTS)
    if not packing.is_complete or len(packing.used) == len(nodes):
        return None
    found = _solution(seen, nodes, packing.placement)
    used = {node.id for node in found.used}
    if not set(found.moving).isdisjoint(known.staying):
        return None
    releasable = tuple(node.id for node in nodes if node.id not in used)
    why = f"everything packs on {len(used)} task managers with {headroom:.0%} to spare, now {len(nodes)} are up"
    moves = tuple(Move(instance, found.placement[instance], why) for instance in found.moving)
    return Consolidation(found.placement, moves, releasable, found.traffic_now, seen.unit)


def _observed(snapshot: Snapshot, headroom: float, known: Known) -> Observation:
    if not 0.0 <= headroom < 1.0:
        raise ValueError(f"headroom is {headroom!r}: give a share of the capacity, 0 or more and below 1")
    seen = observed(snapshot, DEFAULTS)
    problem = seen.problem
    demands = tuple(replace(each, cpu=known.needed.get(each.id, each.cpu)) for each in problem.demands)
    nodes = tuple(replace(each, cpu=known.available.get(each.id, each.cpu)) for each in problem.nodes)
    return replace(seen, problem=Problem(demands, nodes, problem.channels))


def _reduced(node: Node, share: float) -> Node:
    return replace(node, cpu=share * node.cpu, memory=share * node.memory)


def placed(
    unplaced: Sequence[Unplaced],
    managers: Sequence[TaskManager],
    running: Sequence[Instance],
    parameters: Parameters = DEFAULTS,
) -> Mapping[str, str]:
    """Return the task manager by instance, packed into what is free; streams are not known yet.

    An instance that never ran demands as much as another of its task, or else an equal part of the CPU left, so that
    the cluster is filled evenly until it is measured. What doesn't pack, or must not go where it packs, goes where the
    largest share of the CPU is left: an instance without a task manager would wait.
    """
    open_to_all = [manager for manager in managers if takes_instances(manager)]
    nodes = {m.id: Node(m.id, max(whole_cpu(m.cores) - m.cpu, 0.0), cores=m.cores) for m in open_to_all}
    demands = {demand.id: demand for demand in _demands(unplaced, list(nodes.values()), running)}
    packing = pack(Problem(tuple(demands.values()), tuple(nodes.values()), ()), parameters)
    left = {name: node.cpu for name, node in nodes.items()}
    found = {}
    homeless = []
    for one in unplaced:
        node = packing.placement.get(one.instance)
        if node is None or node in one.forbidden:
            homeless.append(one)
        else:
            found[one.instance] = node
            left[node] -= demands[one.instance].cpu
    for one in homeless:
        allowed = [name for name in nodes if name not in one.forbidden]
        if allowed:
            need = demands[one.instance].cpu
            fitting = [name for name in allowed if need <= left[name] + SLACK]
            chosen = max(fitting or allowed, key=lambda name: left[name] / whole_cpu(nodes[name].cores or 1.0))
            found[one.instance] = chosen
            left[chosen] -= need
    return found


def _demands(unplaced: Sequence[Unplaced], nodes: Sequence[Node], running: Sequence[Instance]) -> list[Demand]:
    by_task = {instance.task: instance.cpu for instance in running if not instance.warming_up}
    known = {one.instance: by_task.get(one.task) if one.estimate is None else one.estimate for one in unplaced}
    given = sum(cpu for cpu in known.values() if cpu is not None)
    unknown = sum(cpu is None for cpu in known.values())
    equal = max(sum(node.cpu for node in nodes) - given, 0.0) / unknown if unknown else 0.0
    return [Demand(instance, equal if cpu is None else cpu) for instance, cpu in known.items()]
