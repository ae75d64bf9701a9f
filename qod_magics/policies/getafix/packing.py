"""ModifiedBestFit (Algorithm 4.1): pairs of segments packed into nodes of one capacity, with as few copies as possible.

A *pair* is one access of a query to a segment (the source's "ball" of a colour); each node that gets pairs of a segment
needs a copy of it. `pack` divides the pairs, `balance` evens out the numbers of copies, `minimum_replicas` returns the
least number of copies of any plan. Pure, exact.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import ceil, inf
from typing import Literal

from qod_magics.errors import UsageProblem, show
from qod_magics.policies.assignment import least_cost

Choice = Literal["best", "first", "largest"]
Measure = Literal["time", "count"]
Cost = Literal["copies", "bytes"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """The readings of Getafix. Raises UsageProblem, one line, for other values."""

    choice: Choice = "best"  #: how the next node is chosen: "best" is ModifiedBestFit
    alpha: float = 0.5  #: share of a segment's popularity that remains after a round
    measure: Measure = "time"  #: popularity counts milliseconds of access time, or accesses
    match: bool = True  #: give the sets of the plan to the nodes so that few segments are loaded; else in order
    cost: Cost = "copies"  #: what a load costs in that matching; bytes only where sizes are known (G-R8)
    balance: bool = False  #: even out the numbers of copies, at the price of even load
    memory_limit: float | None = None  #: share of a node's memory above which its least popular copies go; None: none

    def __post_init__(self) -> None:
        for name, known in (
            ("choice", ("best", "first", "largest")),
            ("measure", ("time", "count")),
            ("cost", ("copies", "bytes")),
        ):
            value = getattr(self, name)
            if value not in known:
                raise UsageProblem(
                    f"Getafix: {name}: {show(value)} is unknown; give one of {', '.join(known)}",
                    name=name,
                    value=value,
                    rule="known",
                )
        if not 0 <= self.alpha < 1:
            raise UsageProblem(
                f"Getafix: alpha: {show(self.alpha)} is not in [0, 1); give a share such as 0.5",
                name="alpha",
                value=self.alpha,
                rule="share",
            )
        if self.memory_limit is not None and not 0 < self.memory_limit <= 1:
            raise UsageProblem(
                f"Getafix: memory_limit: {show(self.memory_limit)} is not in (0, 1]; give a share such as 0.8, or none",
                name="memory_limit",
                value=self.memory_limit,
                rule="share",
            )

    @property
    def decay(self) -> Fraction:
        """Alpha as it is written: 0.1 is 1/10, not the binary number next to it."""
        return Fraction(str(self.alpha))


DEFAULTS = Parameters()


#: Pairs ("balls") of each segment on one node; only positive numbers: each entry is a copy.
Bin = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration of the packing: it makes one copy."""

    segment: str
    remaining: int  #: pairs of the segment that had no node before
    node: int  #: position, from 0
    put: int  #: pairs that the node takes

    @property
    def left(self) -> int:
        """Pairs that go back into the queue."""
        return self.remaining - self.put


@dataclass(frozen=True, slots=True)
class Allocation:
    """y_jh: the pairs of each segment on each node, nodes in declared order."""

    bins: tuple[Bin, ...]
    steps: tuple[Step, ...] = ()

    @property
    def replicas(self) -> int:
        """R, the number of copies."""
        return sum(len(each) for each in self.bins)

    @property
    def load(self) -> tuple[int, ...]:
        """Pairs by node."""
        return tuple(sum(each.values()) for each in self.bins)

    @property
    def makespan(self) -> int:
        """Pairs on the node that has the most."""
        return max(self.load, default=0)

    @property
    def sets(self) -> tuple[frozenset[str], ...]:
        """E_g: the segments that each node should hold."""
        return tuple(frozenset(each) for each in self.bins)

    def relabelled(self, gets: Sequence[int]) -> Allocation:
        """Return the allocation with bin `gets[h]` on node h, without steps, which are of the old order."""
        return Allocation(tuple(self.bins[g] for g in gets))

    def routing(self, nodes: Sequence[str]) -> dict[str, dict[str, int]]:
        """Return the routing table: segment -> node -> pairs."""
        table: dict[str, dict[str, int]] = {}
        for node, each in zip(nodes, self.bins, strict=True):
            for segment, pairs in each.items():
                table.setdefault(segment, {})[node] = pairs
        return table


def _checked_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the segments that have pairs, in declared order. Raises UsageProblem for a number that is not a count."""
    for segment, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise UsageProblem(f"Getafix: segment {segment} has {count!r} accesses; give a whole number, 0 or more")
    return {segment: count for segment, count in counts.items() if count}


def uneven(capacities: Iterable[int]) -> bool:
    """Return whether nodes differ in what they can take."""
    return len(set(capacities)) > 1


def capacities(total: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Return pairs that each node takes: ceil(total * w_h / sum of w), of compute, never of memory.

    Weights are shares of the work, such as cores; equal ones give ceil(total / n). Raises UsageProblem without nodes,
    and for weights that are no positive integers.
    """
    if not weights:
        raise UsageProblem("Getafix: there are no nodes to place segments on; give one at least")
    if any(isinstance(weight, bool) or not isinstance(weight, int) or weight <= 0 for weight in weights):
        raise UsageProblem(f"Getafix: weights of nodes {show(list(weights))}: give positive integers, such as cores")
    return tuple(ceil(Fraction(total * weight, sum(weights))) for weight in weights)


def pack(counts: Mapping[str, int], weights: Sequence[int], choice: Choice = "best") -> Allocation:
    """Divide the pairs of each segment among nodes so that none takes more than its capacity.

    The segment with most pairs left comes next, of equal ones the first declared. What its node can't take goes back
    into the queue, so each step makes one copy: at most m + n - 1 of them. That is near the least
    number of copies, but not always the least (G-R1); the makespan is the least.

    Args:
        counts: c_j, accesses by segment in declared order; segments without any get no copy.
        weights: w_h, one for each node; all 1 for equal nodes.
        choice: the next node. "best": the one that has least room left over after taking all, or, if none can take
            all, the one with most room; "first": the first with any room; "largest": the one with most room. Of equal
            ones the first.

    """
    left = _checked_counts(counts)
    free = list(capacities(sum(left.values()), weights))
    bins: list[dict[str, int]] = [{} for _ in free]
    names = list(left)
    queue = [(-count, j) for j, count in enumerate(left.values())]
    heapify(queue)
    steps = []
    while queue:
        negative, j = heappop(queue)
        remaining = -negative
        node = _next_node(free, remaining, choice)
        put = min(remaining, free[node])
        free[node] -= put
        bins[node][names[j]] = bins[node].get(names[j], 0) + put
        steps.append(Step(names[j], remaining, node, put))
        if remaining > put:
            heappush(queue, (put - remaining, j))
    return Allocation(tuple(bins), tuple(steps))


def _next_node(free: Sequence[int], count: int, choice: Choice) -> int:
    nodes = range(len(free))
    if choice == "first":
        return next(node for node in nodes if free[node])
    if choice == "best":
        fits = [node for node in nodes if free[node] >= count]
        if fits:
            return min(fits, key=free.__getitem__)
    return max(nodes, key=free.__getitem__)


@dataclass(frozen=True, slots=True)
class Shift:
    """Pairs of a segment that go to another node, with their copy."""

    segment: str
    pairs: int
    source: int  #: node, by position
    target: int


def balance(plan: Allocation, order: Sequence[str]) -> tuple[Allocation, tuple[Shift, ...]]:
    """Move copies until no node has two more than another.

    Each time the node with most copies gives its smallest share to the node with fewest: of equal nodes the first, of
    equal shares the segment that comes first in `order`. Pairs that meet a copy there join it: one copy less.
    """
    bins = [dict(each) for each in plan.bins]
    rank = {segment: j for j, segment in enumerate(order)}
    shifts = []
    while bins:
        nodes = range(len(bins))
        most = max(nodes, key=lambda node: len(bins[node]))
        fewest = min(nodes, key=lambda node: len(bins[node]))
        if len(bins[most]) - len(bins[fewest]) <= 1:
            break
        segment = min(bins[most], key=lambda each: (bins[most][each], rank[each]))
        pairs = bins[most].pop(segment)
        bins[fewest][segment] = bins[fewest].get(segment, 0) + pairs
        shifts.append(Shift(segment, pairs, most, fewest))
    return Allocation(tuple(bins)), tuple(shifts)


#: Segments up to which the exact minimum is worked out: time grows with their number as 3^m.
MOST_SEGMENTS = 10


def minimum_replicas(counts: Mapping[str, int], nodes: int) -> int:
    """Return the least number of copies with which no node takes more than ceil(sum of c / n) pairs, of equal nodes.

    Segments that share nodes form a group. One of weight w takes ceil(w / capacity) nodes and, since its copies may be
    taken to form a tree, one copy less than it has segments and nodes. The least sum over all partitions into groups
    that fit on the nodes is the optimum. Raises UsageProblem for more than 10 segments.
    """
    left = _checked_counts(counts)
    if len(left) > MOST_SEGMENTS:
        raise UsageProblem(
            f"Getafix: the exact minimum of {len(left)} segments would take too long; give {MOST_SEGMENTS} at most"
        )
    if not left:
        return 0
    (capacity,) = set(capacities(sum(left.values()), [1] * nodes))
    weights, everything = list(left.values()), (1 << len(left)) - 1
    weight = [sum(w for j, w in enumerate(weights) if group >> j & 1) for group in range(everything + 1)]
    # by set of segments: nodes used -> copies beyond one for each segment
    extra: list[dict[int, int]] = [{0: 0}] + [{} for _ in range(everything)]
    for done in range(everything):
        if not extra[done]:
            continue
        rest = everything ^ done
        first = rest & -rest  # the group of the first segment that has none
        others = rest ^ first
        more = others
        while True:
            group = more | first
            takes = -(-weight[group] // capacity)
            for used, copies in extra[done].items():
                if used + takes <= nodes:
                    known = extra[done | group].get(used + takes, inf)
                    extra[done | group][used + takes] = int(min(known, copies + takes - 1))
            if not more:
                break
            more = (more - 1) & others
    return len(left) + min(extra[everything].values())


# --- Matching of sets with nodes --------------------------------------------------------------------------------------
# Which node gets which set of a new plan, so that little is loaded: the assignment problem. Pure, exact.


@dataclass(frozen=True, slots=True)
class Matching:
    """The sets of a plan, given to nodes."""

    cost: tuple[tuple[int, ...], ...]  #: cost[h][g]: what node h would load to hold set g, copies or bytes
    gets: tuple[int, ...]  #: the set of each node

    @property
    def total(self) -> int:
        """Copies or bytes that are loaded."""
        return sum(row[g] for row, g in zip(self.cost, self.gets, strict=True))

    @property
    def in_order(self) -> int:
        """Copies or bytes that would be loaded if each node kept the set of its own number."""
        return sum(row[h] for h, row in enumerate(self.cost))


def match(
    have: Sequence[Collection[str]],
    expected: Sequence[Collection[str]],
    size: Mapping[str, int] | None = None,
    kinds: Sequence[int] | None = None,
) -> Matching:
    """Return the matching of least cost: the segments of set g that node h does not hold, or the sum of their sizes.

    Of equal ones, the first in lexicographic order. Where the numbers of nodes and sets differ, empty ones are added.

    Args:
        have: H_h, the segments that each node holds.
        expected: E_g, the sets of the plan.
        size: bytes by segment; None: each copy costs 1.
        kinds: of each node and of the set planned for it, where nodes differ in capacity: a set goes to a node of its
            own kind only. None: all are of one kind.

    """
    n = max(len(have), len(expected))
    holds = [set(each) for each in have] + [set[str]()] * (n - len(have))
    sets = [set(each) for each in expected] + [set[str]()] * (n - len(expected))
    cost = tuple(
        tuple(len(wanted - there) if size is None else sum(size[s] for s in wanted - there) for wanted in sets)
        for there in holds
    )
    if kinds is None:
        return Matching(cost, least_cost(cost))
    never = 1 + sum(max(row) for row in cost)  # costs more than to keep the order, which is always allowed
    fenced = [[c if kinds[h] == kinds[g] else never for g, c in enumerate(row)] for h, row in enumerate(cost)]
    return Matching(cost, least_cost(fenced))
