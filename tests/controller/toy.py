"""A closed loop in a hundred lines: one source and one query that share a task manager, as a fluid in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from qod_magics.controller import ManualClock
from qod_magics.core.plan import Action, Plan
from qod_magics.core.runtime import Dials, Measured, Observation
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager

STEP_S = 0.05
LIGHT_S, HEAVY_S = 0.0001, 0.0004  #: CPU seconds for each row that a task keeps; one of each: 2000 rows/s fill a core


class Toy:
    """Src -> Snk on one core. `rate` is the input in rows/s at an instant of the clock, in seconds.

    Where the query is the heavy one, a backlog lies on the edge; where the source is, in its topic.
    """

    supports: frozenset[type[Action]] = frozenset()

    def __init__(self, clock: ManualClock, rate: Callable[[float], float], minimum: float, heavy: str = "Snk") -> None:
        self.clock, self.rate, self.minimum = clock, rate, minimum
        self.src_cost_s, self.snk_cost_s = (HEAVY_S, LIGHT_S) if heavy == "Src" else (LIGHT_S, HEAVY_S)
        self.src_queue = 0.0  #: rows in the topic
        self.snk_queue: deque[list[float]] = deque()  #: [rows, probability with which they were kept so far]
        self.dials = Dials({(None, "Src"): 1.0, ("Src", "Snk"): 1.0}, {"Src": 1.0, "Snk": 1.0})
        self.totals = dict.fromkeys(("arrived", "src", "sent", "snk", "src_cpu", "snk_cpu"), 0.0)
        self.since = clock.monotonic()

    def run(self, seconds: float) -> None:
        """Let the application work for so long, in virtual time."""
        for _ in range(round(seconds / STEP_S)):
            self._step(self.rate(self.clock.monotonic()) * STEP_S)
            self.clock.advance(STEP_S)

    @property
    def edge_lag(self) -> float:
        return sum(rows for rows, _ in self.snk_queue)

    def observe(self) -> Observation:
        seconds = self.clock.monotonic() - self.since
        per_s = {key: value / seconds if seconds else 0.0 for key, value in self.totals.items()}
        self.totals, self.since = dict.fromkeys(self.totals, 0.0), self.clock.monotonic()
        src_cpu, snk_cpu = 100 * per_s["src_cpu"], 100 * per_s["snk_cpu"]
        snapshot = Snapshot(
            (TaskManager("tm1", 1.0, src_cpu + snk_cpu),),
            (Task("Src", (), per_s["arrived"], None, None), Task("Snk", ("Src",), None, 1, self.minimum)),
            (Stream("Src", "Snk", per_s["src"]),),
            (
                Instance("Src.1", "Src", "tm1", per_s["src"], src_cpu, False),
                Instance("Snk.1", "Snk", "tm1", per_s["snk"], snk_cpu, False),
            ),
        )
        lag = {"Src": round(self.src_queue), "Src>Snk": round(self.edge_lag)}
        return Observation(snapshot, Measured(lag, {"Src": per_s["arrived"], "Src>Snk": per_s["sent"]}))

    def apply(self, plan: Plan, dials: Dials) -> None:
        self.dials = dials

    def _step(self, arriving: float) -> None:
        self.totals["arrived"] += arriving
        self.src_queue += arriving
        keep_src, keep_edge = self.dials.keep[None, "Src"], self.dials.keep["Src", "Snk"]
        src_wants = self.src_queue * keep_src * self.src_cost_s
        snk_wants = sum(rows * self._accept(kept) * self.snk_cost_s for rows, kept in self.snk_queue)
        half = STEP_S / 2  # the operating system shares the core fairly among who wants it
        src_gets = min(src_wants, max(half, STEP_S - snk_wants))
        snk_gets = min(snk_wants, STEP_S - src_gets)
        self._read_source(src_gets, src_wants, keep_src, keep_edge)
        self._read_edge(snk_gets)

    def _read_source(self, gets: float, wants: float, keep: float, keep_edge: float) -> None:
        read = self.src_queue * (gets / wants if wants else 1.0)
        self.src_queue -= read
        self.totals["src"] += read * keep
        self.totals["sent"] += read * keep * keep_edge
        self.totals["src_cpu"] += gets
        if read:
            self.snk_queue.append([read * keep * keep_edge, keep * keep_edge])

    def _read_edge(self, budget: float) -> None:
        while self.snk_queue:
            rows, kept = self.snk_queue[0]
            cost = self._accept(kept) * self.snk_cost_s
            read = rows if rows * cost <= budget else budget / cost
            self.totals["snk"] += read * self._accept(kept)
            self.totals["snk_cpu"] += read * cost
            budget -= read * cost
            if read < rows:
                self.snk_queue[0][0] -= read
                return
            self.snk_queue.popleft()

    def _accept(self, kept: float) -> float:
        return min(1.0, self.dials.accept["Snk"] / kept) if kept else 0.0
