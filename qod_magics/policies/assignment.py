"""The assignment problem: one column for each row, so that the sum of costs is least. Pure, exact.

The Hungarian method with prices, O(n^3). scipy has one, too, but chooses among equal optima as its release likes:
plans have to be the same everywhere, and scipy is no dependency.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[Any]  #: whole numbers or floats
Columns = NDArray[np.int64]


def least_cost(cost: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the permutation p that minimises the sum of cost[h][p(h)]: of equal ones the one with least p(0), p(1),
    ...

    Args:
        cost: n x n integers; their sum must be far below 2^61.

    """
    if not cost:
        return ()
    matrix = np.array(cost, dtype=np.int64)
    column, row_price, column_price = optimum(matrix)
    tight = matrix == row_price[:, None] + column_price[None, :]
    return tuple(int(g) for g in _first(tight, column))


def optimum(cost: Costs) -> tuple[Columns, Costs, Costs]:
    """Return an optimal column for each row, and prices of rows and columns: no entry is below their sum, the chosen
    equal it.

    Rows join one by one, each along the cheapest path of exchanges to a free column (successive shortest paths).
    """
    n = len(cost)
    far: float = np.inf if cost.dtype.kind == "f" else np.iinfo(np.int64).max // 4
    row_price = np.zeros(n, dtype=cost.dtype)
    column_price = np.zeros(n + 1, dtype=cost.dtype)
    taken_by = np.full(n + 1, -1, dtype=np.int64)  # row by column; the column n stands for the row that joins
    for joins in range(n):
        taken_by[n] = joins
        at = n
        distance = np.full(n, far, dtype=cost.dtype)
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
            candidates = np.where(open_, distance, far)
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
