"""Which node gets which set of a new plan, so that little is loaded: the assignment problem. Pure, exact.

The Hungarian method is implemented here, O(n^3) in integers, since the result must not depend on a library's choice
among equal optima: of all optimal permutations the lexicographically least one is taken, and costs in bytes are exact.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_FAR = np.iinfo(np.int64).max // 4


def least_cost(cost: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the permutation p that minimises the sum of cost[h][p(h)]: of equal ones the one with least p(0), p(1),
    ...

    Args:
        cost: n x n integers; their sum must be far below 2^61.

    """
    if not cost:
        return ()
    matrix = np.array(cost, dtype=np.int64)
    column, row_price, column_price = _optimum(matrix)
    tight = matrix == row_price[:, None] + column_price[None, :]
    return tuple(int(g) for g in _first(tight, column))


def _optimum(cost: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return an optimal column for each row, and prices of rows and columns: no entry is below their sum, the chosen
    equal it.

    Rows join one by one, each along the cheapest path of exchanges to a free column (successive shortest paths).
    """
    n = len(cost)
    row_price = np.zeros(n, dtype=np.int64)
    column_price = np.zeros(n + 1, dtype=np.int64)
    taken_by = np.full(n + 1, -1, dtype=np.int64)  # row by column; the column n stands for the row that joins
    for joins in range(n):
        taken_by[n] = joins
        at = n
        distance = np.full(n, _FAR, dtype=np.int64)
        before = np.full(n, -1, dtype=np.int64)
        done = np.zeros(n + 1, dtype=bool)
        while taken_by[at] >= 0:
            done[at] = True
            row = taken_by[at]
            reduced = cost[row] - row_price[row] - column_price[:n]
            open_ = ~done[:n]
            better = open_ & (reduced < distance)
            distance[better] = reduced[better]
            before[better] = at
            candidates = np.where(open_, distance, _FAR)
            following = int(candidates.argmin())
            step = candidates[following]
            row_price[taken_by[done]] += step
            column_price[done] -= step
            distance[open_] -= step
            at = following
        while at != n:
            previous = int(before[at])
            taken_by[at] = taken_by[previous]
            at = previous
    column = np.empty(n, dtype=np.int64)
    column[taken_by[:n]] = np.arange(n)
    return column, row_price, column_price[:n]


def _first(tight: NDArray[np.bool_], column: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the lexicographically least perfect matching of tight entries, from any: each row in turn takes the least
    column that the rows after it can give up by exchanges among themselves."""
    n = len(column)
    found = column.copy()
    owner = np.empty(n, dtype=np.int64)
    owner[found] = np.arange(n)
    for row in range(n):
        freed = int(found[row])
        takes = np.full(n, -1, dtype=np.int64)  # by later row: the column that it takes if it gives up its own
        waiting = [freed]
        while waiting:
            target = waiting.pop()
            able = tight[:, target] & (takes < 0)
            able[: row + 1] = False
            takes[able] = target
            waiting += found[able].tolist()
        allowed = tight[row] & (takes[owner] >= 0)
        allowed[freed] = True
        wanted = int(allowed.argmax())
        if wanted == freed:
            continue
        mover, found[row] = int(owner[wanted]), wanted
        owner[wanted] = row
        while True:
            target = int(takes[mover])
            displaced = int(owner[target])
            found[mover], owner[target] = target, mover
            if target == freed:
                break
            mover = displaced
    return found


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
    never = 1 + sum(max(row) for row in cost)  # dearer than to keep the order, which is always allowed
    fenced = [[c if kinds[h] == kinds[g] else never for g, c in enumerate(row)] for h, row in enumerate(cost)]
    return Matching(cost, least_cost(fenced))
