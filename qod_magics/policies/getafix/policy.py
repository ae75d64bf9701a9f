"""The round of Getafix: popularity, plan, matching, then loads, then drops; and how a plan is used.

`Router` and `probabilities` send pairs to the copies of a plan, `saving` estimates what fewer copies are worth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from qod_magics.core.engines import MS, Copy, Observation, Round, Use
from qod_magics.errors import UsageProblem
from qod_magics.policies.getafix.matching import Matching, match
from qod_magics.policies.getafix.packing import DEFAULTS, Allocation, Measure, Parameters, balance, pack, uneven


def accesses(use: Mapping[str, Use], measure: Measure) -> dict[str, int]:
    """Return x_j of a round, by segment that was used: milliseconds of access time, started ones included, or
    accesses."""
    if measure == "count":
        found = {segment: each.accesses for segment, each in use.items()}
    else:
        found = {segment: -(-each.busy // MS) for segment, each in use.items()}
    return {segment: x for segment, x in found.items() if x}


def popularity(before: Mapping[str, int], x: Mapping[str, int], alpha: Fraction) -> dict[str, int]:
    """Return p_j after a round: x_j of a new segment, else ceil(x_j + alpha p_j). Known segments come first.

    A segment that is used no longer decays to 1, not to 0: once seen, it keeps a copy.
    """
    known = {segment: ceil(x.get(segment, 0) + alpha * p) for segment, p in before.items()}
    return known | {segment: value for segment, value in x.items() if segment not in before}


def copies_of(seen: Observation, segment: str) -> list[str]:
    """Return the nodes that hold a segment, in declared order."""
    return [node for node in seen.nodes if segment in seen.held[node]]


def expired(seen: Observation) -> Iterator[Copy]:
    """Yield the garbage: copies of segments that queries may ask for no longer."""
    wanted = set(seen.segments)
    for node in seen.nodes:
        for segment in sorted(seen.held[node] - wanted):
            yield node, segment


def guard(
    planned: Mapping[str, Collection[str]],
    popularity: Mapping[str, int],
    size: Mapping[str, int],
    memory: Mapping[str, int],
    limit: float,
) -> tuple[Copy, ...]:
    """Return the copies to leave out of a plan: while a node would use more than `limit` of its memory, its least
    popular one.

    The last copy of a segment stays, so a node may keep more than its limit. Nodes in the order of `planned`; of equal
    segments the first by name. Nodes without an entry in `memory` have no limit.
    """
    copies = Counter(segment for there in planned.values() for segment in there)
    left_out = []
    for node, there in planned.items():
        if node not in memory:
            continue
        used = sum(size[segment] for segment in there)
        for segment in sorted(there, key=lambda each: (popularity.get(each, 0), each)):
            if used <= limit * memory[node]:
                break
            if copies[segment] > 1:
                copies[segment] -= 1
                used -= size[segment]
                left_out.append((node, segment))
    return tuple(left_out)


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
        """Return the round for what was measured since the last one."""
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
        """Return the plan without the copies that would fill a node's memory; their pairs go to the other copies."""
        assert self.parameters.memory_limit is not None
        sets = dict(zip(seen.nodes, plan.sets, strict=True))
        left_out = set(guard(sets, popular, seen.size, seen.memory, self.parameters.memory_limit))
        bins = zip(seen.nodes, plan.bins, strict=True)
        return Allocation(tuple({s: y for s, y in each.items() if (node, s) not in left_out} for node, each in bins))

    def _round(self, plan: Allocation, seen: Observation, turn: int) -> tuple[Round, int]:
        """Return the routing table, loads and drops that lead to a plan; and whose turn is next."""
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


def probabilities(shares: Mapping[str, int]) -> dict[str, Fraction]:
    """Return the chance of each node to get a pair: y_jh / sum over h."""
    total = sum(shares.values())
    return {node: Fraction(share, total) for node, share in shares.items()}


class Router:
    """Deterministic, for one segment: each pair goes to the node that is furthest behind its share."""

    def __init__(self, shares: Mapping[str, int]) -> None:
        self.shares = shares
        self.sent = dict.fromkeys(shares, 0)

    def route(self) -> str:
        """Return the node of the next pair: greatest y_jh (t + 1) / sum - sent_h, with t pairs routed; of equal the
        first."""
        total, following = sum(self.shares.values()), sum(self.sent.values()) + 1
        node = max(self.shares, key=lambda each: self.shares[each] * following - self.sent[each] * total)
        self.sent[node] += 1
        return node


_HOURS_OF_A_YEAR = 24 * 365
_GB_OF_A_TB = 1000


@dataclass(frozen=True, slots=True)
class Saving:
    """Memory that fewer copies of the same hot data leave free, and its price."""

    terabytes: Fraction
    usd_per_hour: Fraction

    @property
    def usd_per_year(self) -> Fraction:
        """The price of a year of 365 days."""
        return self.usd_per_hour * _HOURS_OF_A_YEAR


def saving(hot_tb: Fraction, factor: Fraction, other: Fraction, usd_per_gb_hour: Fraction) -> Saving:
    """Return what is saved by replication factor `factor` instead of `other`, of hot data in TB, at a price per GB and
    hour."""
    terabytes = hot_tb * (other - factor)
    return Saving(terabytes, terabytes * _GB_OF_A_TB * usd_per_gb_hour)
