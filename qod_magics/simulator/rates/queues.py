"""Rows that arrive, rows that wait, and the CPU that reads them: the parts of one step of the engine. Pure.

`Arrivals` gives whole rows, exactly as many as are due. `max_min_fair` shares the CPU of a task manager between its
instances as an operating system does. `Queues` are unbounded FIFO queues of rows with the probabilities with which they
were kept, exact in counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qod_magics.kafka.scenario import ROUNDING, PiecewiseLinear

Array = np.ndarray[Any, np.dtype[Any]]
AHEAD = 256  #: steps computed at once


def due(rate: PiecewiseLinear, times: Array) -> Array:
    """Return `rate.due` of many instants at once."""
    seconds, rates = (np.array(column) for column in zip(*rate.points, strict=True))
    area = np.concatenate(([0.0], np.cumsum(np.diff(seconds) * (rates[1:] + rates[:-1]) / 2)))
    index = np.searchsorted(seconds, times, "right") - 1
    before = index < 0
    index = np.maximum(index, 0)
    after = np.minimum(index + 1, len(seconds) - 1)
    width = seconds[after] - seconds[index]
    slope = np.where(width > 0, (rates[after] - rates[index]) / np.where(width > 0, width, 1.0), 0.0)
    elapsed = times - seconds[index]
    rows = np.where(before, times * rates[0] - seconds[0] * rates[0], area[index] + elapsed * rates[index])
    rows = np.where(before, rows, rows + slope * elapsed * elapsed / 2)
    return np.asarray(np.floor(np.maximum(rows - rate.rows(seconds[0], 0.0), 0.0) + ROUNDING), np.int64)


class Arrivals:
    """Rows arriving on each topic in each step of `step_s` seconds, until second `end_s`."""

    def __init__(self, rates: Sequence[PiecewiseLinear], step_s: float, end_s: float) -> None:
        self._curves = list(dict.fromkeys(rates))
        number = {rate: n for n, rate in enumerate(self._curves)}
        self._of = np.fromiter((number[rate] for rate in rates), np.int64)
        self._step_s, self._end_s = step_s, end_s
        self._first = 0
        self._table = np.zeros((0, len(self._curves)), np.int64)

    def __repr__(self) -> str:
        return f"arrivals on {len(self._of)} topics until {self._end_s:g} s"

    def step(self, number: int) -> Array:
        """Return rows by topic in step `number` (0 is the first); call in order."""
        if not self._first <= number < self._first + len(self._table):
            self._first = number
            times = np.minimum(np.arange(number, number + AHEAD + 1) * self._step_s, self._end_s)
            columns = [np.diff(due(curve, times)) for curve in self._curves]
            self._table = np.stack(columns, axis=1) if columns else np.zeros((AHEAD, 0), np.int64)
        row: Array = self._table[number - self._first][self._of]
        return row


def max_min_fair(demand: Array, group: Array, capacity: Array) -> Array:
    """Return the grant for each of `demand` (seconds) from its group's `capacity` (seconds).

    A demand up to an even share is met in full; the rest is shared evenly among the others, and so on. No grant exceeds
    its demand, and no group's grants its capacity.
    """
    total = np.bincount(group, demand, len(capacity))
    tight = total > capacity
    if not tight.any():
        return demand
    grant = demand.copy()
    open_ = tight[group].nonzero()[0]
    left = capacity.copy()
    while open_.size:
        groups = group[open_]
        count = np.bincount(groups, minlength=len(capacity))
        level = left / np.maximum(count, 1)
        wants = demand[open_]
        content = wants <= level[groups]
        if not content.any():
            grant[open_] = level[groups]
            break
        left -= np.bincount(groups[content], wants[content], len(capacity))
        np.maximum(left, 0.0, out=left)
        open_ = open_[~content]
    return grant


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
        """Return rows in each queue."""
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
        """Return seconds that reading all of each queue takes: `read_s` for a row, `work_s` on top for a row that
        passes."""
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
            self._carry[going] = np.minimum(np.maximum(exact - whole, 0.0), 1.0)
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
        self._carry = np.minimum(np.maximum(exact - kept, 0.0), 1.0)  # np.clip costs twice as much
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
