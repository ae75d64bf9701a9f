"""What instances report of themselves, and what can be seen of it: windows between two reports, late. Pure."""

from __future__ import annotations

from collections import deque

import numpy as np

from qod_magics.simulator.engine import Engine
from qod_magics.simulator.simulation import Metrics
from qod_magics.simulator.totals import Totals
from qod_magics.simulator.wiring import Array


class Reports:
    """The windows over which each instance was last measured.

    A window reaches from the last report that is a period old, or the start of the run, to the newest report that
    can be seen.
    """

    def __init__(self, engine: Engine, metrics: Metrics, period_s: float) -> None:
        self._engine, self._metrics, self._period_s = engine, metrics, period_s
        self.committed = Totals.zero(engine.wiring)  #: at the last report of each, which is also its last commit
        self._older, self._old = Totals.zero(engine.wiring), Totals.zero(engine.wiring)
        self.window_from, self.window_to = Totals.zero(engine.wiring), Totals.zero(engine.wiring)
        count = len(engine.cpu)
        self.next_at = np.full(count, np.inf)
        self.seen = np.zeros(count, bool)  #: whether a report of the present run can be seen
        self.ever = np.zeros(count, bool)  #: whether one of any run could
        self.muted = np.zeros(len(engine.machines), bool)  #: task managers whose metrics do not come
        self._on_the_way: deque[tuple[float, Array, Totals, Totals]] = deque()

    def begin(self, instance: int, offset_s: float) -> None:
        """A run begins: nothing of it has been reported."""
        one = np.array([instance])
        here = self._here()
        for totals in (self.committed, self._older, self._old):
            totals.copy(here, one, *self._parts(one))
        self.next_at[instance] = self._engine.now + self._metrics.report_s + offset_s
        self.seen[instance] = False

    def end(self, instance: int) -> None:
        """A run is over: what it did is committed, and there are no more reports."""
        one = np.array([instance])
        self.committed.copy(self._here(), one, *self._parts(one))
        self.next_at[instance] = np.inf
        self.seen[instance] = False

    def collect(self, batches_over: Array) -> None:
        """After a step: what is reported now, and what can be seen from now."""
        engine = self._engine
        now = engine.now
        realtime = np.flatnonzero((self.next_at <= now + 1e-9) & engine.running)
        if engine.wiring.micro.size:
            realtime = np.setdiff1d(realtime, engine.wiring.micro, assume_unique=True)
        reporting = np.concatenate((realtime, batches_over)) if batches_over.size else realtime
        if reporting.size:
            self._report(reporting)
            self.next_at[realtime] = now + self._metrics.report_s
        while self._on_the_way and self._on_the_way[0][0] <= now + 1e-9:
            _, instances, start, end = self._on_the_way.popleft()
            known = instances[engine.running[instances] & ~self.muted[np.maximum(engine.where[instances], 0)]]
            known = known[end.at[known] > engine.started_at[known]]  # of a run that is over nothing is said
            parts = self._parts(known)
            self.window_from.copy(start, known, *parts)
            self.window_to.copy(end, known, *parts)
            self.seen[known] = self.ever[known] = True

    def _report(self, instances: Array) -> None:
        parts = self._parts(instances)
        here = self._here()
        self.committed.copy(here, instances, *parts)
        rolls = instances[here.at[instances] - self._old.at[instances] >= self._period_s - 1e-9]
        start = Totals.zero(self._engine.wiring)
        if rolls.size:
            self._older.copy(self._old, rolls, *self._parts(rolls))
        start.copy(self._older, instances, *parts)
        if rolls.size:
            self._old.copy(here, rolls, *self._parts(rolls))
        self._on_the_way.append((here.at[instances[0]] + self._metrics.delay_s, instances, start, here))

    def _here(self) -> Totals:
        engine = self._engine
        wiring = engine.wiring
        came = np.bincount(wiring.edge_target, engine.came, len(wiring.tasks)).astype(np.int64)
        return Totals(
            at=np.full(len(engine.cpu), engine.now),
            cpu=engine.cpu.copy(),
            out=engine.out.copy(),
            came=came[wiring.instance_task],
            read=engine.read.copy(),
            kept=engine.kept.copy(),
            sent=engine.sent.copy(),
            unsent=engine.unsent.copy(),
        )

    def _parts(self, instances: Array) -> tuple[Array, Array]:
        """The channels and outlets of these instances."""
        wiring = self._engine.wiring
        if len(instances) == len(wiring.instances):
            return np.arange(len(wiring.channel_instance)), np.arange(len(wiring.outlet_instance))
        mine = np.zeros(len(wiring.instances), bool)
        mine[instances] = True
        return np.flatnonzero(mine[wiring.channel_instance]), np.flatnonzero(mine[wiring.outlet_instance])
