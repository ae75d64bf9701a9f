"""The round of Getafix: popularity, plan, matching, then loads, then drops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qod_magics.core.segments import Copy, Observation, Round
from qod_magics.errors import UsageProblem
from qod_magics.policies.getafix.allocation import Allocation, uneven
from qod_magics.policies.getafix.balance import balance
from qod_magics.policies.getafix.layout import copies_of, expired
from qod_magics.policies.getafix.matching import Matching, match
from qod_magics.policies.getafix.memory import guard
from qod_magics.policies.getafix.packing import pack
from qod_magics.policies.getafix.parameters import DEFAULTS, Parameters
from qod_magics.policies.getafix.popularity import accesses, popularity


@dataclass(frozen=True, slots=True)
class Memory:
    """What Getafix remembers from round to round."""

    popularity: Mapping[str, int] = field(default_factory=dict)  #: p_j, by segment
    turn: int = 0  #: position of the node that the next new segment goes to
    plan: Allocation | None = None  #: of the last round, on the nodes that got it
    matching: Matching | None = None  #: of the last round


class Getafix:
    """As few copies as answer all pairs in the least time, moved as little as possible.

    Segments without accesses so far keep one copy; a new one goes to the nodes in turn.
    """

    name = "getafix"

    def __init__(self, parameters: Parameters = DEFAULTS) -> None:
        self.parameters = parameters

    def decide(self, observation: Observation, state: Memory | None) -> tuple[Round, Memory]:
        """The round for what was measured since the last one."""
        given, seen, memory = self.parameters, observation, state or Memory()
        if not seen.size and (given.cost == "bytes" or given.memory_limit is not None):
            raise UsageProblem('Getafix: sizes of the segments are unknown; give cost "copies" and no memory_limit')
        x = accesses({segment: seen.use[segment] for segment in seen.segments if segment in seen.use}, given.measure)
        before = {segment: memory.popularity[segment] for segment in seen.segments if segment in memory.popularity}
        popular = popularity(before, x, given.decay)
        weights = [seen.weight.get(node, 1) for node in seen.nodes]
        plan = pack({segment: popular.get(segment, 0) for segment in seen.segments}, weights, given.choice)
        matching = match(
            [seen.held[node] for node in seen.nodes],
            plan.sets,
            seen.size if given.cost == "bytes" else None,
            weights if uneven(weights) else None,
        )
        if given.match:
            plan = plan.relabelled(matching.gets)
        if given.balance:
            plan, _ = balance(plan, seen.segments)
        if given.memory_limit is not None:
            plan = self._guarded(plan, seen, popular)
        result, turn = self._round(plan, seen, memory.turn)
        return result, Memory(popular, turn, plan, matching)

    def _guarded(self, plan: Allocation, seen: Observation, popular: Mapping[str, int]) -> Allocation:
        """The plan without the copies that would fill a node's memory; their pairs go to the other copies."""
        assert self.parameters.memory_limit is not None
        sets = dict(zip(seen.nodes, plan.sets, strict=True))
        left_out = set(guard(sets, popular, seen.size, seen.memory, self.parameters.memory_limit))
        bins = zip(seen.nodes, plan.bins, strict=True)
        return Allocation(tuple({s: y for s, y in each.items() if (node, s) not in left_out} for node, each in bins))

    def _round(self, plan: Allocation, seen: Observation, turn: int) -> tuple[Round, int]:
        """Routing table, loads and drops that lead to a plan; and whose turn is next."""
        routing = plan.routing(seen.nodes)
        loads: list[Copy] = []
        drops: list[Copy] = list(expired(seen))
        for segment in seen.segments:
            holders = copies_of(seen, segment)
            wanted = routing.get(segment)
            if wanted is None:  # no accesses yet: one copy, where there is one, or on the node whose turn it is
                if not holders:
                    holders = [seen.nodes[turn % len(seen.nodes)]]
                    loads.append((holders[0], segment))
                    turn += 1
                routing[segment] = wanted = {holders[0]: 1}
            else:
                loads += [(node, segment) for node in wanted if node not in holders]
            drops += [(node, segment) for node in holders if node not in wanted]
        return Round(routing, tuple(loads), tuple(drops)), turn
