"""Unbounded FIFO queues of rows with the probabilities with which they were kept; exact in counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

#: Stretches (consecutive rows kept with one probability) per queue; beyond that the oldest are merged.
STRETCHES = 8
SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Taken:
    """What was read from each queue, in whole rows."""

    read: Array
    kept: Array
    weight: Array  #: sum of 1 / (probability with which a row was kept so far), over the rows kept
    weight_read: Array  #: the same before shedding at the reading end, over the rows read
    rest_s: Array  #: unused budget, seconds


class Queues:
    """`count` queues. A row kept so far with probability p passes the reading end with min(1, accept / p)."""

    def __init__(self, count: int) -> None:
        self.rows = np.zeros((count, STRETCHES), np.int64, order="F")  # the first stretches are used the most
        self.kept = np.ones((count, STRETCHES), order="F")  #: probability, by stretch, oldest first
        self.depth = np.zeros(count, np.int64)  #: stretches in use
        self._carry = np.zeros(count)  #: fraction of a kept row, carried over to the next read

    def __repr__(self) -> str:
        return f"{len(self.depth)} queues, {self.waiting.sum():,} rows wait"

    @property
    def waiting(self) -> Array:
        """Rows in each queue."""
        rows: Array = self.rows.sum(axis=1)
        return rows

    def put(self, rows: Array, kept: Array) -> None:
        """Append `rows` (whole), kept so far with probability `kept`, to each queue."""
        empty = (self.depth == 0) & (rows > 0)
        np.copyto(self.rows[:, 0], rows, where=empty)
        np.copyto(self.kept[:, 0], kept, where=empty)
        self.depth[empty] = 1
        where = ((rows > 0) & ~empty).nonzero()[0]
        if not where.size:
            return
        depth, p = self.depth[where], kept[where]
        last = np.maximum(depth - 1, 0)
        same = (depth > 0) & (np.abs(self.kept[where, last] - p) <= SAME)
        self.rows[where[same], last[same]] += rows[where[same]]
        new = ~same
        if not new.any():
            return
        where, depth, p = where[new], depth[new], p[new]
        full = depth == STRETCHES
        if full.any():
            self._merge(where[full])
            depth = self.depth[where]
        self.rows[where, depth] = rows[where]
        self.kept[where, depth] = p
        self.depth[where] = depth + 1

    def put_back(self, queue: int, rows: int, kept: float) -> None:
        """Put rows that were read back to the front of one queue."""
        if rows <= 0:
            return
        if self.depth[queue] == STRETCHES:
            self._merge(np.array([queue]))
        self.rows[queue, 1:] = self.rows[queue, :-1].copy()
        self.kept[queue, 1:] = self.kept[queue, :-1].copy()
        self.rows[queue, 0], self.kept[queue, 0] = rows, kept
        self.depth[queue] += 1

    def work(self, accept: Array, read_s: Array, work_s: Array) -> Array:
        """Seconds that reading all of each queue takes: `read_s` for a row, `work_s` on top for a row that passes."""
        first = np.minimum(accept / np.maximum(self.kept[:, 0], SAME), 1.0)
        seconds: Array = self.rows[:, 0] * (read_s + work_s * first)
        for k in range(1, int(self.depth.max(initial=0))):
            deep = (self.depth > k).nonzero()[0]
            passing = np.minimum(accept[deep] / np.maximum(self.kept[deep, k], SAME), 1.0)
            seconds[deep] += self.rows[deep, k] * (read_s[deep] + work_s[deep] * passing)
        return seconds

    def take(self, budget_s: Array, accept: Array, read_s: Array, work_s: Array, most: Array | None = None) -> Taken:
        """Read each queue from its front for `budget_s` seconds (inf: all of it), and no more than `most` rows."""
        rest = budget_s.astype(float)
        simple = (self.depth == 1) & (rest == np.inf)
        if most is not None:
            simple &= most >= self.rows[:, 0]
        read, kept, weight, weight_read = self._take_all(simple, accept)
        going = ((self.depth > 0) & (rest > 0.0)).nonzero()[0]
        if not going.size:
            return Taken(read, kept, weight, weight_read, rest)
        emptied = np.zeros(len(self.depth), np.int64)
        for k in range(int(self.depth.max(initial=0))):
            going = going[self.depth[going] > k]
            if not going.size:
                break
            there = self.rows[going, k]
            passing = np.minimum(accept[going] / np.maximum(self.kept[going, k], SAME), 1.0)
            cost = np.maximum(read_s[going] + work_s[going] * passing, 1e-12)
            affordable = rest[going] / cost + 1e-9
            n = np.where(affordable >= there, there, np.floor(np.minimum(affordable, 9e15))).astype(np.int64)
            if most is not None:
                n = np.minimum(n, most[going] - read[going])
            exact = n * passing + self._carry[going]
            whole = np.minimum(np.floor(exact + 1e-9).astype(np.int64), n)
            self._carry[going] = np.clip(exact - whole, 0.0, 1.0)
            read[going] += n
            kept[going] += whole
            weight[going] += whole / np.maximum(self.kept[going, k] * passing, SAME)
            weight_read[going] += n / np.maximum(self.kept[going, k], SAME)
            rest[going] = np.maximum(rest[going] - n * cost, 0.0)
            self.rows[going, k] -= n
            done = n == there
            emptied[going[done]] += 1
            going = going[done]
        self._drop_empty(emptied)
        return Taken(read, kept, weight, weight_read, rest)

    def _take_all(self, simple: Array, accept: Array) -> tuple[Array, Array, Array, Array]:
        """Empty the queues in a mask, which have one stretch: rows read, rows kept and the two sums of weights."""
        rows, before = np.where(simple, self.rows[:, 0], 0), np.maximum(self.kept[:, 0], SAME)
        passing = np.minimum(accept / before, 1.0)
        exact = rows * passing + self._carry
        kept = np.minimum((exact + 1e-9).astype(np.int64), rows)
        self._carry = np.clip(exact - kept, 0.0, 1.0)
        self.rows[:, 0] -= rows
        self.depth[simple] = 0
        return rows, kept, kept / np.maximum(self.kept[:, 0] * passing, SAME), rows / before

    def _drop_empty(self, emptied: Array) -> None:
        if not emptied.any():
            return
        clear = emptied == self.depth
        self.depth[clear] = 0
        for shift in range(1, int(emptied[~clear].max(initial=0)) + 1):
            where = np.flatnonzero(~clear & (emptied == shift))
            self.rows[where, :-shift] = self.rows[where, shift:]
            self.kept[where, :-shift] = self.kept[where, shift:]
            self.rows[where, -shift:] = 0
            self.depth[where] -= shift

    def _merge(self, where: Array) -> None:
        """Merge the two oldest stretches of these queues; the sum of the weights stays."""
        rows = self.rows[where, 0] + self.rows[where, 1]
        weight = self.rows[where, 0] / self.kept[where, 0] + self.rows[where, 1] / self.kept[where, 1]
        self.rows[where, :-1] = self.rows[where, 1:]
        self.kept[where, :-1] = self.kept[where, 1:]
        self.rows[where, 0], self.kept[where, 0] = rows, rows / np.maximum(weight, SAME)
        self.rows[where, -1] = 0
        self.depth[where] -= 1
