"""Rows by the second at which they arrived outside, wherever they wait: the source of latencies. Pure.

A cohort is the rows that reached the outside sources at about one instant. For each place (a topic, or a channel's
queue) there is the number of its rows of each cohort; places are read oldest first. Rows that an instance sends stand
for the rows that it reads in the same step, in their proportions, so that numbers are fractional; their sums are those
of the engine's queues.

Cohorts are a step apart at first. When there are too many, neighbours whose distance is smallest in relation to their
age are merged, so that an age is known to 2 % or so.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from qod_magics.simulator.rates.wiring import Array, Wiring

#: Cohorts at a time; when they are used up, unused ones are dropped and some merged.
MOST = 192
#: Number of cohorts that a merge leaves at most.
LEFT = 120
#: Rows of fewer cohorts than this share of a row are a rounding error.
SOME = 0.5
#: Merging goes by the age of cohorts, but by no less than this share of the oldest one's.
YOUNG = 0.25
#: Cohorts over which rows that are read again are spread.
_SLICES = 4


@dataclass(frozen=True, slots=True)
class _Results:
    """Rows that reached results at one instant."""

    at: float
    ages: Array  #: seconds, by cohort
    rows: Array  #: by query and cohort


class Cohorts:
    """The rows of each cohort by place, and the latencies of the rows in results. Times are seconds since the start."""

    def __init__(self, wiring: Wiring, step_s: float, window_s: float) -> None:
        self._step_s, self._window_s = step_s, window_s
        edges, channels = len(wiring.edges), len(wiring.channel_edge)
        self.at = np.zeros(MOST)  #: mean arrival of each cohort, oldest first
        self.first = self.end = 0  #: the cohorts in use
        self.topics = np.zeros((edges, MOST), order="F")  #: rows by edge and cohort, not yet in a channel
        self.waiting = np.zeros((channels, MOST), order="F")  #: rows by channel and cohort
        read = np.zeros(len(wiring.tasks), bool)
        read[wiring.edge_source[wiring.sources :]] = True
        self.queries = np.flatnonzero(~read)  #: tasks that nobody reads
        number = np.full(len(wiring.tasks), -1)
        number[self.queries] = np.arange(len(self.queries))
        self._query = number[wiring.instance_task]  #: by instance, -1 for those of other tasks
        micro = np.zeros(len(wiring.instances), bool)
        micro[wiring.micro] = True
        self._at_once = np.flatnonzero((self._query >= 0) & ~micro)  #: instances whose rows are results when read
        batched = np.flatnonzero((self._query >= 0) & micro)
        self._row = np.full(len(wiring.instances), -1)  #: in `pending`, by instance
        self._row[batched] = np.arange(len(batched))
        self._batched = batched
        self.pending = np.zeros((len(batched), MOST), order="F")  #: read in a micro-batch under way, by cohort
        self._cohorts = np.zeros(0, int)  #: the cohorts that were read in this step
        self._read = np.zeros((len(wiring.instances), 0))  #: rows kept in this step, by instance and these cohorts
        self._results: deque[_Results] = deque()
        self.p50, self.p95 = np.full(len(self.queries), np.nan), np.full(len(self.queries), np.nan)  #: as last known

    def __repr__(self) -> str:
        return f"{self.end - self.first} cohorts"

    # -- what happens in a step ----------------------------------------------------------------------------------------

    def arrive(self, rows: Array, now: float) -> None:
        """Add rows that arrive at the sources (by edge from outside) in the step from `now` on."""
        if not rows.any():
            return
        k = self._new(now + self._step_s / 2)
        self.topics[: len(rows), k] += rows

    def spread(self, rows: Array, there: Array, wiring: Wiring) -> None:
        """Move these rows (by channel) from the topics to the channels. `there`: rows on each topic before."""
        a, b = self.first, self.end
        went = wiring.by_edge(rows)
        taken = _oldest_first(self.topics[:, a:b], went, there)
        self.topics[:, a:b] -= taken
        share = rows / np.maximum(went, 1)[wiring.channel_edge]
        self.waiting[:, a:b] += taken[wiring.channel_edge] * share[:, None]

    def read(self, read: Array, kept: Array, there: Array, now: float, wiring: Wiring) -> None:
        """Take rows that are read, and rows that are kept, (both by channel), until `now`. `there`: rows in each queue
        before."""
        a, b = self.first, self.end
        taken = _oldest_first(self.waiting[:, a:b], read, there)
        self.waiting[:, a:b] -= taken
        some = np.flatnonzero(taken.any(axis=0))
        taken = taken[:, some] * (kept / np.maximum(read, 1))[:, None]
        instances, self._cohorts = len(wiring.instances), a + some
        if len(taken) == instances and not wiring.scales:
            self._read = taken  # each instance has one channel
        else:
            self._read = _by(wiring.channel_instance, taken, instances)
        if self._batched.size:
            self.pending[:, self._cohorts] += self._read[self._batched]
        if self._at_once.size:
            self._result(self._at_once, self._read[self._at_once], self._cohorts, now)

    def send(self, sent: Array, wiring: Wiring) -> None:
        """Send rows of instances (by outlet), which stand for those that they have just read."""
        total = self._read.sum(axis=1)[wiring.outlet_instance]
        share = np.where(total > 0.0, sent / np.where(total > 0.0, total, 1.0), 0.0)
        rows = self._read[wiring.outlet_instance] * share[:, None]
        self.topics[:, self._cohorts] += _by(wiring.outlet_edge, rows, len(wiring.edges))
        rest = np.where(total > 0.0, 0, sent)
        if rest.any():  # carried-over rows, of which nothing more is known
            self.topics[:, self.end - 1] += np.bincount(wiring.outlet_edge, rest, len(wiring.edges))

    def finish(self, instances: Array, now: float) -> None:
        """End micro-batches of these instances: what they read is in their results."""
        mine = instances[self._row[instances] >= 0]
        if not mine.size:
            return
        row = self._row[mine]
        rows = self.pending[row, self.first : self.end]
        if rows.any():
            self._result(mine, rows, np.arange(self.first, self.end), now)
            self.pending[row] = 0.0

    def settle(self) -> None:
        """End a step: the oldest cohorts are left behind once none of their rows is anywhere."""
        while self.first < self.end and not self._used(self.first):
            self.first += 1
        if self.first == self.end:
            self.first = self.end = 0

    def give_back(self, instance: int, rows: Array, channels: Array, since: float, now: float) -> None:
        """Give back the rows of a killed instance (by channel, of `channels`), which are read again. `since`: its last
        commit.

        They arrived, evenly, in as much time as has passed since then, up to the oldest row that waits.
        """
        if self._row[instance] >= 0:
            self.pending[self._row[instance]] = 0.0
        for channel, count in zip(channels.tolist(), rows.tolist(), strict=True):
            if count <= 0:
                continue
            k = _first(self.waiting[[channel], self.first : self.end])[0]
            until = now if k < 0 else float(self.at[self.first + k])
            for part in range(_SLICES):
                second = until - max(now - since, 0.0) * (_SLICES - part - 0.5) / _SLICES
                self.waiting[channel, self._new(max(second, 0.0))] += count / _SLICES

    # -- what is known of them -----------------------------------------------------------------------------------------

    def percentiles(self, now: float) -> tuple[Array, Array]:
        """Return the median and 95th percentile of the latencies of each query, s, over the rows in its results of the
        last window; those of an earlier one if there are none, NaN if there never were."""
        while self._results and self._results[0].at <= now - self._window_s + 1e-9:
            self._results.popleft()
        if self._results:
            ages = np.concatenate([each.ages for each in self._results])
            rows = np.concatenate([each.rows for each in self._results], axis=1)
            order = np.argsort(ages, kind="stable")
            ages, total = ages[order], rows[:, order].cumsum(axis=1)
            some = total[:, -1] > 0.0
            for share, found in ((0.5, self.p50), (0.95, self.p95)):
                reached = total >= (share - 1e-12) * total[:, -1:]
                found[some] = ages[reached.argmax(axis=1)][some]
        return self.p50, self.p95

    def oldest(self, now: float, wiring: Wiring) -> Array:
        """Return the age of the oldest row that is not in a result yet, s, by query; 0: none waits."""
        a, b = self.first, self.end
        never = np.inf
        since = np.append(self.at[a:b], never)  # -1: none
        by_edge = since[_first(self.topics[:, a:b])]
        np.minimum.at(by_edge, wiring.channel_edge, since[_first(self.waiting[:, a:b])])
        by_task = np.full(len(wiring.tasks), never)
        np.minimum.at(by_task, wiring.edge_target[: wiring.sources], by_edge[: wiring.sources])
        for level in wiring.levels:
            above = np.minimum(by_edge[level], by_task[wiring.edge_source[level]])
            np.minimum.at(by_task, wiring.edge_target[level], above)
        found = by_task[self.queries]
        np.minimum.at(found, self._query[self._batched], since[_first(self.pending[:, a:b])])
        ages: Array = np.where(np.isfinite(found), np.maximum(now - np.where(np.isfinite(found), found, 0.0), 0.0), 0.0)
        return ages

    # -- inside --------------------------------------------------------------------------------------------------------

    def _result(self, instances: Array, rows: Array, cohorts: Array, now: float) -> None:
        some = np.flatnonzero(rows.any(axis=0))
        if some.size:
            counts = _by(self._query[instances], rows[:, some], len(self.queries))
            self._results.append(_Results(now, now - self.at[cohorts[some]], counts))

    def _used(self, k: int) -> bool:
        return bool(self.waiting[:, k].any() or self.topics[:, k].any() or self.pending[:, k].any())

    def _new(self, at: float) -> int:
        """Make a cohort; those that are younger move by one."""
        if self.end == MOST:
            self._merge()
        k = self.first + int(np.searchsorted(self.at[self.first : self.end], at, "right"))
        after, moved = slice(k + 1, self.end + 1), slice(k, self.end)
        self.at[after] = self.at[moved].copy()
        for rows in (self.topics, self.waiting, self.pending):
            rows[:, after] = rows[:, moved].copy()
            rows[:, k] = 0.0
        self.at[k] = at
        self.end += 1
        return k

    def _merge(self) -> None:
        """Drop unused cohorts, and merge others until there is room."""
        used = np.array([k for k in range(self.first, self.end) if self._used(k)], int)
        begins = np.ones(len(used), bool)  #: whether a cohort does not join the one before it
        excess = len(used) - LEFT
        if excess > 0:
            age = self.at[used[-1]] - self.at[used[:-1]]
            gap = np.diff(self.at[used]) / np.maximum(age, YOUNG * age[0])
            for k in np.argsort(gap, kind="stable").tolist():
                if begins[k] and begins[k + 1] and (k + 2 >= len(used) or begins[k + 2]):
                    begins[k + 1] = False
                    excess -= 1
                    if not excess:
                        break
        starts = begins.nonzero()[0]
        tables = (self.topics, self.waiting, self.pending)
        weight = np.maximum(sum(rows[:, used].sum(axis=0) for rows in tables), 1e-12)
        count = len(starts)
        if count:
            self.at[:count] = np.add.reduceat(self.at[used] * weight, starts) / np.add.reduceat(weight, starts)
        for rows in tables:
            merged = np.add.reduceat(rows[:, used], starts, axis=1) if count else rows[:, :0]
            rows[:, :count] = merged
            rows[:, count:] = 0.0
        self.first, self.end = 0, count


def _by(group: Array, rows: Array, count: int) -> Array:
    """Return sums of rows (by place and cohort) by group of the places."""
    found = np.empty((count, rows.shape[1]), order="F")
    for k in range(rows.shape[1]):
        found[:, k] = np.bincount(group, rows[:, k], count)
    return found


def _oldest_first(rows: Array, count: Array, there: Array) -> Array:
    """Return the oldest `count` rows in each place; `there`: how many it has, in whole rows."""
    taken: Array = np.where((count >= there)[:, None], rows, 0.0)
    part = ((count < there) & (count > 0)).nonzero()[0]
    if part.size:
        mine = rows[part]
        before = mine.cumsum(axis=1) - mine
        taken[part] = np.clip(count[part, None] - before, 0.0, mine)
    return taken


def _first(rows: Array) -> Array:
    """Return the first cohort with a row in each place, -1 for none."""
    if not rows.shape[1]:
        return np.full(len(rows), -1)
    reached = rows.cumsum(axis=1) >= SOME
    return np.where(reached[:, -1], reached.argmax(axis=1), -1)
