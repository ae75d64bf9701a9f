"""Latencies of queries, and how much instances have to do, as observations give them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qod_magics.core.optional import BUSY, LATENCY_P50, LATENCY_P95, OLDEST, WAITING
from qod_magics.simulator.engine.engine import Engine
from qod_magics.simulator.engine.wiring import Array, Wiring


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

    def tasks(self) -> Mapping[int, Mapping[str, Any]]:
        """The fields of each query's row, by task."""
        names = LATENCY_P50.name, LATENCY_P95.name, OLDEST.name
        columns = (np.round(each, 3).tolist() for each in (self.p50, self.p95, self.oldest))
        rows = zip(self.queries.tolist(), zip(*columns, strict=True), strict=True)
        found = {task: dict(zip(names, row, strict=True)) for task, row in rows}
        for task in self.queries[np.isnan(self.p95)].tolist():
            found[task] = {OLDEST.name: found[task][OLDEST.name]}
        return found

    def instances(self, cpu: Array) -> list[dict[str, Any]]:
        """The fields of each instance's row. `cpu`: of each, % of one core."""
        busy = np.minimum(cpu / 100.0, 1.0)
        micro = self.wiring.micro
        busy[micro] = np.minimum(self.batching[micro], 1.0)
        waiting_name, busy_name = WAITING.name, BUSY.name
        rows = zip(self.waiting.astype(int).tolist(), np.round(busy, 4).tolist(), strict=True)
        return [{waiting_name: waiting, busy_name: share} for waiting, share in rows]

    def latency_s(self, active: Array) -> dict[str, float]:
        """95th percentile by query, of the `active` tasks, where there is one."""
        known = active[self.queries] & ~np.isnan(self.p95)
        names = [self.wiring.tasks[t].id for t in self.queries[known].tolist()]
        return dict(zip(names, np.round(self.p95[known], 3).tolist(), strict=True))


class Timing:
    """Measures an engine whose rows are told apart by their arrival."""

    def __init__(self, engine: Engine) -> None:
        assert engine.cohorts is not None
        self._engine, self._cohorts = engine, engine.cohorts
        self._batch_s = engine.batch_s.copy()
        self._batching = np.zeros(len(engine.batch_s))

    def __repr__(self) -> str:
        return f"timing of {len(self._cohorts.queries)} queries"

    def look(self, elapsed: float) -> Timed:
        """Measure now; `elapsed`: seconds since the last time."""
        engine, cohorts = self._engine, self._cohorts
        if elapsed > 0:
            self._batching = (engine.batch_s - self._batch_s) / elapsed
            self._batch_s = engine.batch_s.copy()
        p50, p95 = cohorts.percentiles(engine.now)
        return Timed(
            engine.wiring,
            cohorts.queries,
            p50.copy(),
            p95.copy(),
            cohorts.oldest(engine.now, engine.wiring),
            engine.wiring.by_instance(engine.queues.waiting),
            self._batching,
        )
