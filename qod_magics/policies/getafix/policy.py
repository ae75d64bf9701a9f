"""The round of Getafix: popularity, plan, matching, then loads, then drops; and `Router`, which sends pairs to
the copies of a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from qod_magics.core.engines import MS, UNUSED, Copy, Observation, Round, Use
from qod_magics.errors import UsageProblem
from qod_magics.policies.getafix.packing import (
    DEFAULTS,
    Allocation,
    Measure,
    Parameters,
    balance,
    match,
    pack,
    uneven,
)


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
            raise UsageProblem(
                'Getafix: sizes of the segments are unknown; give cost "copies" and no memory_limit', rule="known sizes"
            )
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
        return result, Memory(popular, turn, plan)

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


# --- Baselines --------------------------------------------------------------------------------------------------------
# Scarlett makes copies by concurrent accesses and places them by load; uniform replication makes the same number of
# copies of every segment.

#: Copies beyond the greatest number of concurrent accesses.
DELTA = 1


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes by segment, in the order of their copies; and the load of each node."""

    nodes: Mapping[str, tuple[str, ...]]
    load: Mapping[str, Fraction]  #: sum over its copies of concurrent accesses / number of the copy

    @property
    def replicas(self) -> int:
        """Return the number of copies."""
        return sum(len(each) for each in self.nodes.values())


def replicas(concurrent: int, nodes: int, delta: int = DELTA) -> int:
    """Return r_j: min(n, concurrent accesses + delta), at least 1."""
    return max(1, min(nodes, concurrent + delta))


def place(
    concurrent: Mapping[str, int],
    nodes: Sequence[str],
    held: Mapping[str, Sequence[str]] | None = None,
    delta: int = DELTA,
) -> Placement:
    """Give segments in declared order r_j copies, on the nodes with least load first; of equal ones the first.

    Copy number i of a segment adds max(1, concurrent accesses) / i to its node's load.

    Args:
        concurrent: conc_j, the most concurrent accesses seen in the window.
        nodes: in declared order.
        held: nodes that have copies now, by segment. They count first, and where there are more than r_j, the most
            loaded ones lose theirs; of equal ones the last.
        delta: copies beyond the concurrent accesses.

    """
    rank = {node: h for h, node in enumerate(nodes)}
    load = dict.fromkeys(nodes, Fraction(0))
    #: by segment: its nodes, and what each copy adds to the load of its node
    found: dict[str, dict[str, Fraction]] = {segment: {} for segment in concurrent}

    def add(segment: str, node: str) -> None:
        found[segment][node] = Fraction(max(1, concurrent[segment]), len(found[segment]) + 1)
        load[node] += found[segment][node]

    for segment in concurrent:
        for node in (held or {}).get(segment, ()):
            add(segment, node)
    for segment, there in found.items():
        wanted = replicas(concurrent[segment], len(nodes), delta)
        while len(there) > wanted:
            heaviest = max(there, key=lambda node: (load[node], rank[node]))
            load[heaviest] -= there.pop(heaviest)
        lightest = sorted((node for node in nodes if node not in there), key=lambda node: (load[node], rank[node]))
        for node in lightest[: wanted - len(there)]:
            add(segment, node)
    return Placement({segment: tuple(there) for segment, there in found.items()}, load)


class Scarlett:
    """Replicates by concurrent accesses of the last round; pairs are shared evenly among the copies."""

    name = "scarlett"

    def __init__(self, delta: int = DELTA) -> None:
        if isinstance(delta, bool) or not isinstance(delta, int) or delta < 0:
            raise UsageProblem(
                f"Scarlett: delta is {delta!r}; give a whole number, 0 or more", name="delta", rule="count"
            )
        self.delta = delta

    def decide(self, observation: Observation, state: None) -> tuple[Round, None]:
        """Return the round for what was measured since the last one."""
        seen = observation
        concurrent = {segment: seen.use.get(segment, UNUSED).concurrent for segment in seen.segments}
        held = {segment: copies_of(seen, segment) for segment in seen.segments}
        placed = place(concurrent, seen.nodes, held, self.delta).nodes
        loads: list[Copy] = []
        drops: list[Copy] = list(expired(seen))
        for segment, there in placed.items():
            loads += [(node, segment) for node in there if node not in held[segment]]
            drops += [(node, segment) for node in held[segment] if node not in there]
        return Round(
            {segment: dict.fromkeys(there, 1) for segment, there in placed.items()}, tuple(loads), tuple(drops)
        ), None


COPIES = 3


class Uniform:
    """Every segment has the same number of copies (at most one per node), on nodes in turn; pairs are shared evenly."""

    name = "uniform"

    def __init__(self, copies: int = COPIES) -> None:
        if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
            raise UsageProblem(
                f"uniform replication: copies is {copies!r}; give a whole number, 1 or more",
                name="copies",
                rule="count",
            )
        self.copies = copies

    def decide(self, observation: Observation, state: int | None) -> tuple[Round, int]:
        """Return the round; its state is the position of the node whose turn it is."""
        seen, turn = observation, state or 0
        wanted = min(self.copies, len(seen.nodes))
        routing: dict[str, dict[str, int]] = {}
        loads: list[Copy] = []
        drops: list[Copy] = list(expired(seen))
        for segment in seen.segments:
            holders = copies_of(seen, segment)
            drops += [(node, segment) for node in holders[wanted:]]
            there = holders[:wanted]
            while len(there) < wanted:
                node = seen.nodes[turn % len(seen.nodes)]
                turn += 1
                if node not in there:
                    there.append(node)
                    loads.append((node, segment))
            routing[segment] = dict.fromkeys(there, 1)
        return Round(routing, tuple(loads), tuple(drops)), turn
