"""Which node gets which set of a new plan, so that little is loaded. Pure, exact."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from qod_magics.policies.getafix.assignment import least_cost


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
        """The same if each node kept the set of its own number."""
        return sum(row[h] for h, row in enumerate(self.cost))


def match(
    have: Sequence[Collection[str]],
    expected: Sequence[Collection[str]],
    size: Mapping[str, int] | None = None,
    kinds: Sequence[int] | None = None,
) -> Matching:
    """The matching of least cost: the segments of set g that node h does not hold, or the sum of their sizes.

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
    never = 1 + sum(max(row) for row in cost)  # dearer than to keep the order, which is always allowed
    fenced = [[c if kinds[h] == kinds[g] else never for g, c in enumerate(row)] for h, row in enumerate(cost)]
    return Matching(cost, least_cost(fenced))
