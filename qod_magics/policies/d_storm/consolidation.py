"""The packing for policies that compose it: which task managers could be released, and what has to move for it.

Nothing here keeps a state or waits for a window: give it a snapshot of means (`means.mean`) if single ones vary, and
do not call it while something warms up. A policy with better figures than the snapshot's, such as learned costs, passes
its own demands and capacities as `Known`.

    found = consolidation(snapshot, headroom=0.3)
    if found is not None:  # everything packs on fewer task managers
        found.moves        # empty `found.releasable` by these, then release them
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from qod_magics.core.actions import Move
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.d_storm.observation import Observation, observed
from qod_magics.policies.d_storm.packing import pack
from qod_magics.policies.d_storm.parameters import DEFAULTS, Parameters
from qod_magics.policies.d_storm.problem import Node, Problem
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


def _observed(snapshot: Snapshot, headroom: float, parameters: Parameters, known: Known) -> Observation:
    if not 0.0 <= headroom < 1.0:
        raise ValueError(f"headroom is {headroom!r}: give a share of the capacity, 0 or more and below 1")
    seen = observed(snapshot, parameters)
    problem = seen.problem
    demands = tuple(replace(each, cpu=known.needed.get(each.id, each.cpu)) for each in problem.demands)
    nodes = tuple(replace(each, cpu=known.available.get(each.id, each.cpu)) for each in problem.nodes)
    return replace(seen, problem=Problem(demands, nodes, problem.channels))


def _reduced(node: Node, share: float) -> Node:
    return replace(node, cpu=share * node.cpu, memory=share * node.memory)
