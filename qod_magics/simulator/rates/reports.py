"""Reports of instances, and latencies of queries: what the metrics of a live cluster would show, and when.

Reports arrive late and cover a window, as on a live cluster; `Timing` gives latencies of queries and how busy instances
are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qod_magics.simulator.rates.engine import Engine
from qod_magics.simulator.rates.simulation import Metrics
from qod_magics.simulator.rates.wiring import Array, Parts, Totals, Wiring

NOBODY: Array = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Report:
    """Windows of some instances, in transit until they can be seen."""

    seen_at: float
    parts: Parts
    start: Totals
    end: Totals

    def only(self, which: Array, wiring: Wiring) -> _Report:
        """Return the report of only the instances in a mask."""
        if which.all():
            return self
        chosen = np.zeros(len(wiring.instances), bool)
        chosen[self.parts.instances[which]] = True
        of_channel = wiring.channel_instance[self.parts.channels]
        of_outlet = wiring.outlet_instance[self.parts.outlets]
        masks = Parts(which, chosen[of_channel], chosen[of_outlet])
        parts = Parts(
            self.parts.instances[which], self.parts.channels[masks.channels], self.parts.outlets[masks.outlets]
        )
        return _Report(self.seen_at, parts, self.start.of(masks), self.end.of(masks))


class Reports:
    """The windows over which each instance was last measured.

    A window reaches from a report that is a period old, or the start of the run, to the newest report that can be
    seen. It is one period long when instances report that often, and up to two when they report more often.
    """

    def __init__(self, engine: Engine, metrics: Metrics, period_s: float) -> None:
        self._engine, self._metrics, self._period_s = engine, metrics, period_s
        self.committed = Totals.zero(engine.wiring)  #: totals at the last report of each, which is also its last commit
        self._older, self._old = Totals.zero(engine.wiring), Totals.zero(engine.wiring)
        self.window_from, self.window_to = Totals.zero(engine.wiring), Totals.zero(engine.wiring)
        count = len(engine.cpu)
        self.next_at = np.full(count, np.inf)
        self._soonest = np.inf  #: time of the next report of any instance
        self.seen = np.zeros(count, bool)  #: whether a report of the present run can be seen
        self.ever = np.zeros(count, bool)  #: whether a report of any run could ever be seen
        self.muted = np.zeros(len(engine.machines), bool)  #: task managers with missing metrics
        self._on_the_way: deque[_Report] = deque()

    def __repr__(self) -> str:
        return f"reports of {len(self.seen)} instances, {self.seen.sum()} of them seen"

    def begin(self, instances: Array, offsets_s: Array) -> None:
        """Begin runs, without a report so far. `offsets_s`: delay of the first report of each."""
        parts = Parts.of(instances, self._engine.wiring)
        here = _here(self._engine, parts)
        for totals in (self.committed, self._older, self._old):
            totals.put(parts, here)
        self.next_at[instances] = self._engine.now + self._metrics.report_s + offsets_s
        self._soonest = 0.0
        self.seen[instances] = False

    def end(self, instance: int) -> None:
        """End a run: its work is committed, and it reports no more."""
        parts = Parts.of(np.array([instance]), self._engine.wiring)
        self.committed.put(parts, _here(self._engine, parts))
        self.next_at[instance] = np.inf
        self.seen[instance] = False

    def renew(self, instances: Collection[int], retired: Collection[int]) -> None:
        """Forget what stopped instances reported, since they will read other partitions; those `retired`, none."""
        self.ever[list(instances)] = self.seen[list(instances)] = False
        for instance in retired:
            mine = Parts.of(np.array([instance]), self._engine.wiring)
            self.window_from.put(mine, self.window_to.of(mine))

    def collect(self, batches_over: Array) -> None:
        """Make the reports that are due after a step, and show those whose delay is over."""
        engine = self._engine
        now = engine.now
        realtime = self._due(now)
        reporting = np.concatenate((realtime, batches_over)) if batches_over.size else realtime
        if reporting.size:
            self._report(reporting)
            self.next_at[realtime] = now + self._metrics.report_s
        while self._on_the_way and self._on_the_way[0].seen_at <= now + 1e-9:
            report = self._on_the_way.popleft()
            instances = report.parts.instances
            known = engine.running[instances] & ~self.muted[np.maximum(engine.where[instances], 0)]
            known &= report.end.at > engine.started_at[instances]  # not those of an ended run
            report = report.only(known, engine.wiring)
            self.window_from.put(report.parts, report.start)
            self.window_to.put(report.parts, report.end)
            self.seen[report.parts.instances] = self.ever[report.parts.instances] = True

    def _due(self, now: float) -> Array:
        """Return instances in real-time mode that report now."""
        if self._soonest > now + 1e-9:
            return NOBODY
        due = (self.next_at <= now + 1e-9) & self._engine.running
        due[self._engine.wiring.micro] = False
        self._soonest = float(np.where(due, now + self._metrics.report_s, self.next_at).min(initial=np.inf))
        return due.nonzero()[0]

    def _report(self, instances: Array) -> None:
        engine = self._engine
        parts = Parts.of(instances, engine.wiring)
        here = _here(engine, parts)
        self.committed.put(parts, here)
        rolling = here.at - self._old.at[instances] >= self._period_s - 1e-9
        rolls = parts if rolling.all() else Parts.of(instances[rolling], engine.wiring)
        self._older.put(rolls, self._old.of(rolls))
        start = self._older.of(parts)
        self._old.put(rolls, self.committed.of(rolls))
        self._on_the_way.append(_Report(engine.now + self._metrics.delay_s, parts, start, here))


def _here(engine: Engine, parts: Parts) -> Totals:
    """Return the engine's counters of some parts, in their order."""
    wiring = engine.wiring
    came = np.bincount(wiring.edge_target, engine.came, len(wiring.tasks)).astype(np.int64)
    return Totals(
        at=np.full(len(parts.instances), engine.now),
        cpu=engine.cpu[parts.instances],
        out=engine.out[parts.instances],
        came=came[wiring.instance_task[parts.instances]],
        read=engine.read[parts.channels],
        kept=engine.kept[parts.channels],
        sent=engine.sent[parts.outlets],
        unsent=engine.unsent[parts.outlets],
    )


@dataclass(frozen=True, slots=True)
class Timed:
    """What was measured at one instant."""

    wiring: Wiring
    queries: Array  #: tasks
    p50: Array  #: by query, s; NaN: no result so far
    p95: Array
    oldest: Array  #: by query, s
    waiting: Array  #: by instance, rows
    batching: Array  #: by instance: share of the time in micro-batches
    interval_s: Array  #: by instance: from one micro-batch to the next; 0: none

    def tasks(self) -> Mapping[int, Mapping[str, Any]]:
        """Return the fields of each query's row, by task."""
        names = "latency_p50_s", "latency_p95_s", "oldest_s"
        columns = (np.round(each, 3).tolist() for each in (self.p50, self.p95, self.oldest))
        rows = zip(self.queries.tolist(), zip(*columns, strict=True), strict=True)
        found = {task: dict(zip(names, row, strict=True)) for task, row in rows}
        for task in self.queries[np.isnan(self.p95)].tolist():
            found[task] = {"oldest_s": found[task]["oldest_s"]}
        return found

    def instances(self, cpu: Array) -> list[dict[str, Any]]:
        """Return the fields of each instance's row. `cpu`: of each, % of one core."""
        busy = np.minimum(cpu / 100.0, 1.0)
        micro = self.wiring.micro
        busy[micro] = np.minimum(self.batching[micro], 1.0)
        rows = zip(self.waiting.astype(int).tolist(), np.round(busy, 4).tolist(), strict=True)
        found: list[dict[str, Any]] = [{"waiting": waiting, "busy": share} for waiting, share in rows]
        for i in micro.tolist():
            found[i]["batch_interval_s"] = round(float(self.interval_s[i]), 4)
        return found

    def latency_s(self, active: Array) -> dict[str, float]:
        """Return the 95th percentile by query, of the `active` tasks, where there is one."""
        known = active[self.queries] & ~np.isnan(self.p95)
        names = [self.wiring.tasks[t].id for t in self.queries[known].tolist()]
        return dict(zip(names, np.round(self.p95[known], 3).tolist(), strict=True))


class Timing:
    """Measures an engine that keeps rows by the time of their arrival."""

    def __init__(self, engine: Engine) -> None:
        assert engine.cohorts is not None
        self._engine, self._cohorts = engine, engine.cohorts
        self._batch_s = engine.batch_s.copy()
        self._batching = np.zeros(len(engine.batch_s))
        self._batches = engine.batches.copy()
        self._interval_s = np.zeros(len(engine.batch_s))

    def __repr__(self) -> str:
        return f"timing of {len(self._cohorts.queries)} queries"

    def look(self, elapsed: float) -> Timed:
        """Measure now; `elapsed`: seconds since the last time."""
        engine, cohorts = self._engine, self._cohorts
        if elapsed > 0:
            self._batching = (engine.batch_s - self._batch_s) / elapsed
            self._batch_s = engine.batch_s.copy()
            begun = engine.batches - self._batches
            self._interval_s = np.where(begun > 0, elapsed / np.maximum(begun, 1), 0.0)
            self._batches = engine.batches.copy()
        p50, p95 = cohorts.percentiles(engine.now)
        return Timed(
            engine.wiring,
            cohorts.queries,
            p50.copy(),
            p95.copy(),
            cohorts.oldest(engine.now, engine.wiring),
            engine.wiring.by_instance(engine.queues.waiting),
            self._batching,
            self._interval_s,
        )
