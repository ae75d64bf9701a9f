"""The load under which engines are compared, and the samples taken of each meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any, Protocol

from benchmarks.evaluation.applications import trips
from benchmarks.evaluation.cluster import Run
from benchmarks.evaluation.scenarios import CALM, LONG_S

#: Phases of a load: name, multiple of the task manager's capacity, seconds at full length.
Course = Sequence[tuple[str, float, float]]
COURSE: Course = (("0.6x", 0.6, 30.0), ("1.5x", 1.5, 50.0), ("3x", 3.0, 50.0), ("back", 0.6, 60.0))
WARM_S = 15.0  #: of calm load before the first phase, for engines without a controller
SEED = 5  #: of the trips that are sent
LOOK_S = 1.0
DRAWN_S = 5.0  #: between points of the chart

#: A window of ten seconds: its `start` (epoch s), how many `rows`, and percentiles 50, 95 and 99 of their ages, ms:
#: `end_to_end` and, where an engine has stages, `inside`.
Window = Mapping[str, Any]


class Watch(Protocol):
    """Is notified of the phases, and waits through them."""

    def phase(self, name: str | None) -> None:
        """The phase of this name begins."""

    def wait(self, seconds: float) -> None:
        """Let the phase last for `seconds`."""


class Engine(Protocol):
    """A stream processor that runs the application without a controller."""

    def waiting(self) -> int | None:
        """The backlog of the topics now, rows, once for each reader; None: unknown."""

    def windows(self) -> Mapping[str, Sequence[Window]]:
        """The windows that its queries reported so far, in order of time."""


@dataclass(slots=True)
class Seen:
    """The samples of one engine. Instants are seconds since 1970."""

    spans: dict[str, tuple[float, float]] = field(default_factory=dict)  #: of each phase, begin and end
    waiting: list[tuple[float, int]] = field(default_factory=list)  #: instant, rows
    windows: Mapping[str, Sequence[Window]] = field(default_factory=dict)  #: by query

    def phase(self, name: str) -> dict[str, Any]:
        """The figures of a phase: the backlog at its end, rows, and the ages of the rows counted in it, ms: the 50th
        percentile is the median over its windows, the others are the worst window's."""
        begin, end = self.spans[name]
        found: dict[str, Any] = {
            "waiting_rows": next((rows for at, rows in reversed(self.waiting) if begin <= at <= end), None)
        }
        for kind in ("end_to_end", "inside"):
            found[f"{kind}_ms"] = {
                query: {
                    "p50": median(ages[0] for ages in values),
                    "p95": max(ages[1] for ages in values),
                    "p99": max(ages[2] for ages in values),
                }
                for query, windows in self.windows.items()
                if (values := [w[kind] for w in windows if kind in w and begin <= w["start"] <= end])
            }
        return found

    def course(self) -> dict[str, Any]:
        """For the chart, in seconds since the first phase began: the begin of each phase, the backlog in rows, and by
        query each window's middle and median age of rows, ms."""
        zero = min(begin for begin, _ in self.spans.values())
        last = max(end for _, end in self.spans.values())
        return {
            "phases": {name: begin - zero for name, (begin, _) in self.spans.items()},
            "waiting": [[at - zero, rows] for at, rows in self._thinned() if zero <= at <= last],
            "age_ms": {
                query: [[w["start"] + 5.0 - zero, w["end_to_end"][0]] for w in windows if zero <= w["start"] <= last]
                for query, windows in self.windows.items()
            },
        }

    def mean_waiting(self) -> float:
        """Mean backlog over all phases, rows: by Little's law, proportional to the mean waiting time."""
        begin, end = min(begin for begin, _ in self.spans.values()), max(end for _, end in self.spans.values())
        return fmean(rows for at, rows in self.waiting if begin <= at <= end)

    def _thinned(self) -> Iterator[tuple[float, int]]:
        before = float("-inf")
        for at, rows in self.waiting:
            if at - before >= DRAWN_S - LOOK_S / 2:
                before = at
                yield at, rows


class Watcher:
    """Samples an engine without a controller every second."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.seen = Seen()
        self._phase: str | None = None

    def phase(self, name: str | None) -> None:
        """The phase of this name begins, and the one before is over."""
        now = time.time()
        if self._phase is not None:
            self.seen.spans[self._phase] = (self.seen.spans[self._phase][0], now)
        if name is not None:
            self.seen.spans[name] = (now, now)
        self._phase = name

    def wait(self, seconds: float) -> None:
        """Sample for `seconds`."""
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0:
            if (rows := self.engine.waiting()) is not None:
                self.seen.waiting.append((time.time(), rows))
            time.sleep(max(min(LOOK_S, left_s), 0.0))


@dataclass(frozen=True, slots=True)
class Load:
    """The load that every engine gets."""

    run: Run
    rates: Mapping[float, float]  #: rows/s of both topics together, by multiple of the task manager's capacity
    phases: Course  #: with their seconds in this run

    def play(self, watch: Watch, warm: Callable[[], object]) -> None:
        """A calm load while the engine warms up, then the phases."""
        watch.phase(None)
        base = self.run.inject(trips(CALM / 2, LONG_S))
        warm()
        base.stop()
        for name, times, seconds in self.phases:
            watch.phase(name)
            load = self.run.inject(trips(max(self.rates[times], 2.0) / 2, LONG_S, seed=SEED))
            watch.wait(seconds)
            load.stop()
        watch.phase(None)

    def lasting(self, share: float) -> Load:
        """The load with phases shortened to `share`."""
        return replace(self, phases=[(name, times, share * seconds) for name, times, seconds in self.phases])

    def watched(self, engine: Engine, warm_s: float = WARM_S) -> Seen:
        """Play it on an engine without a controller that has just started from the newest rows."""
        watcher = Watcher(engine)
        self.play(watcher, lambda: watcher.wait(warm_s))
        watcher.wait(2 * DRAWN_S)
        watcher.seen.windows = engine.windows()
        return watcher.seen

    def mean_waiting(self, engine: Engine) -> float:
        """Play it likewise; only the mean backlog, rows."""
        watcher = Watcher(engine)
        self.play(watcher, lambda: watcher.wait(WARM_S))
        return watcher.seen.mean_waiting()


def last_told(rows: Sequence[Window]) -> list[Window]:
    """The last report of each window, the one that counts most rows; in order of time."""
    last: dict[float, Window] = {}
    for row in rows:
        if row["start"] not in last or row["rows"] >= last[row["start"]]["rows"]:
            last[row["start"]] = row
    return [last[start] for start in sorted(last)]
