"""The packing for policies that compose it: which task managers could be released, and what should move together.

Nothing here keeps a state or waits for a window: give it a snapshot of means (`means.mean`) if single ones vary, and
do not call it while something warms up. A policy with better figures than the snapshot's, such as learned costs, passes
its own demands and capacities as `Known`.

    found = consolidation(snapshot, headroom=0.3)
    if found is not None:  # everything packs on fewer task managers
        found.moves        # empty `found.releasable` by these, then release them
    for group in groups(snapshot)[:1]:
        group.moves        # the group of instances whose move saves the most traffic
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from qod_magics.core.actions import Move
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.d_storm.observation import Observation, observed
from qod_magics.policies.d_storm.packing import SLACK, pack
from qod_magics.policies.d_storm.parameters import DEFAULTS, Parameters
from qod_magics.policies.d_storm.problem import Demand, Node, Problem
from qod_magics.policies.d_storm.solver import solution


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
    traffic_then: float
    unit: str  #: "bytes/s" or "rows/s"


@dataclass(frozen=True, slots=True)
class Group:
    """Instances of one task manager that save traffic if they move together."""

    instances: tuple[str, ...]
    origin: str
    target: str
    saved: float  #: traffic between task managers that it saves, in `unit`; > 0
    unit: str  #: "bytes/s" or "rows/s"

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves of its instances."""
        why = f"{self.saved:.0f} {self.unit} less between {self.origin} and {self.target}"
        return tuple(Move(instance, self.target, why) for instance in self.instances)


def consolidation(
    snapshot: Snapshot, headroom: float = 0.2, parameters: Parameters = DEFAULTS, known: Known = NOTHING_KNOWN
) -> Consolidation | None:
    """Whether all instances pack on fewer task managers than are up, each filled to `1 - headroom` at most.

    None if they do not, or if that would move an instance that has to stay. Task managers that stand by count for
    nothing: nothing goes there, and they are not released.

    Args:
        snapshot: a valid one; demands are those at the workload (`observation.observed`).
        headroom: share of the free CPU and memory of each task manager to leave free, 0 <= headroom < 1.
        parameters: weights, threshold and whether to relabel.
        known: better figures than the snapshot's.

    Raises:
        ValueError: `headroom` is out of range.

    """
    seen = _observed(snapshot, headroom, parameters, known)
    nodes = tuple(_reduced(node, 1.0 - headroom) for node in seen.problem.nodes)
    packing = pack(seen.problem.with_nodes(nodes), parameters)
    if not packing.is_complete or len(packing.used) == len(nodes):
        return None
    found = solution(seen, nodes, packing.placement, parameters)
    used = {node.id for node in found.used}
    if not set(found.moving).isdisjoint(known.staying):
        return None
    releasable = tuple(node.id for node in nodes if node.id not in used)
    why = f"everything packs on {len(used)} task managers with {headroom:.0%} to spare, now {len(nodes)} are up"
    moves = tuple(Move(instance, found.placement[instance], why) for instance in found.moving)
    return Consolidation(found.placement, moves, releasable, found.traffic_now, found.traffic, seen.unit)


def groups(
    snapshot: Snapshot, headroom: float = 0.0, parameters: Parameters = DEFAULTS, known: Known = NOTHING_KNOWN
) -> tuple[Group, ...]:
    """Groups of instances to move together, those that save the most traffic between task managers first.

    For each pair of task managers with traffic between them, the one's instances are added one by one, always the one
    that gains most beside those added before, as long as they fit into what the other has free above `headroom`; the
    group with the largest gain on the way is kept. So a group is found where each instance alone would lose. Groups
    share instances and room: carry out one, then ask again with the next snapshot. Arguments and errors are those of
    `consolidation`.
    """
    seen = _observed(snapshot, headroom, parameters, known)
    problem = seen.problem
    demands = {demand.id: demand for demand in problem.demands}
    near = _neighbours(problem)
    here: dict[str, list[str]] = defaultdict(list)  #: those that may move
    all_of: dict[str, set[str]] = defaultdict(set)
    free = {node.id: (node.cpu, node.memory) for node in (_reduced(each, 1.0 - headroom) for each in problem.nodes)}
    for instance, node in seen.current.items():
        all_of[node].add(instance)
        if instance not in known.staying:
            here[node].append(instance)
        free[node] = (free[node][0] - demands[instance].cpu, free[node][1] - demands[instance].memory)
    pairs = {(seen.current[a], seen.current[b]) for a, others in near.items() for b in others}
    found = []
    for origin, target in sorted(pairs):
        if origin != target:
            chosen, saved = _grown(here[origin], all_of[origin], all_of[target], free[target], demands, near)
            if saved > 0:
                found.append(Group(chosen, origin, target, saved, seen.unit))
    return tuple(sorted(found, key=lambda group: -group.saved))


def _grown(
    candidates: list[str],
    origin: set[str],
    there: set[str],
    free: tuple[float, float],
    demands: Mapping[str, Demand],
    near: Mapping[str, Mapping[str, float]],
) -> tuple[tuple[str, ...], float]:
    """The group with the largest gain on the way, and its gain."""
    left = dict.fromkeys(candidates)
    gains = {
        each: sum(w if other in there else -w if other in origin else 0.0 for other, w in near[each].items())
        for each in candidates
    }
    cpu, memory = free
    chosen: list[str] = []
    total, best, length = 0.0, 0.0, 0
    while fitting := [
        each for each in left if demands[each].cpu <= cpu + SLACK and demands[each].memory <= memory + SLACK
    ]:
        one = max(fitting, key=gains.__getitem__)
        del left[one]
        chosen.append(one)
        cpu, memory = cpu - demands[one].cpu, memory - demands[one].memory
        total += gains[one]
        if total > best:
            best, length = total, len(chosen)
        for other, traffic in near[one].items():
            if other in left:
                gains[other] += 2.0 * traffic  # it was lost to the group, now it is gained beside it
    return tuple(chosen[:length]), best


def _observed(snapshot: Snapshot, headroom: float, parameters: Parameters, known: Known) -> Observation:
    if not 0.0 <= headroom < 1.0:
        raise ValueError(f"headroom is {headroom!r}: give a share of the capacity, 0 or more and below 1")
    seen = observed(snapshot, parameters)
    problem = seen.problem
    demands = tuple(replace(each, cpu=known.needed.get(each.id, each.cpu)) for each in problem.demands)
    nodes = tuple(replace(each, cpu=known.available.get(each.id, each.cpu)) for each in problem.nodes)
    return replace(seen, problem=Problem(demands, nodes, problem.channels))


def _neighbours(problem: Problem) -> dict[str, dict[str, float]]:
    near: dict[str, dict[str, float]] = {demand.id: {} for demand in problem.demands}
    for channel in problem.channels:
        if channel.traffic > 0:
            for a, b in ((channel.source, channel.target), (channel.target, channel.source)):
                near[a][b] = near[a].get(b, 0.0) + channel.traffic
    return near


def _reduced(node: Node, share: float) -> Node:
    return replace(node, cpu=share * node.cpu, memory=share * node.memory)
