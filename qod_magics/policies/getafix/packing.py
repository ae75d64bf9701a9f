"""ModifiedBestFit (Algorithm 4.1): pairs of segments ("balls" of colours) into nodes of one capacity. Pure, exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import ceil

from qod_magics.core.wording import show
from qod_magics.errors import UsageProblem
from qod_magics.policies.getafix.allocation import Allocation, Step, checked_counts
from qod_magics.policies.getafix.parameters import Choice


def capacities(total: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Pairs that each node takes: ceil(total * w_h / sum of w), of compute, never of memory.

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
    into the queue, so each step makes one copy: at most m + n - 1 of them (`bounds`). That is near the least number of
    copies, but not always the least (G-R1); the makespan is the least.

    Args:
        counts: c_j, accesses by segment in declared order; segments without any get no copy.
        weights: w_h, one for each node; all 1 for equal nodes.
        choice: the next node. "best": the one that has least room left over after taking all, or, if none can take
            all, the one with most room; "first": the first with any room; "largest": the one with most room. Of equal
            ones the first.

    """
    left = checked_counts(counts)
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
