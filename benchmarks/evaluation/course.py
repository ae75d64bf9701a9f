"""The load that engines are compared under, and what is seen of each while it lasts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any, Protocol

from benchmarks.evaluation.applications import trips
from benchmarks.evaluation.cluster import Run
from benchmarks.evaluation.scenarios import CALM, LONG_S

#: Phases of a load: name, how many times what the task manager carries, seconds at full length.
Course = Sequence[tuple[str, float, float]]
COURSE: Course = (("0.6x", 0.6, 30.0), ("1.5x", 1.5, 50.0), ("3x", 3.0, 50.0), ("back", 0.6, 60.0))
WARM_S = 15.0  #: of calm load before the first phase, where nobody decides
SEED = 5  #: of the trips that are sent
LOOK_S = 1.0
DRAWN_S = 5.0  #: between points of the chart

#: A window of ten seconds: its `start` (epoch s), how many `rows`, and percentiles 50, 95 and 99 of their ages, ms:
#: `end_to_end` and, where an engine has stages, `inside`.
Window = Mapping[str, Any]


class Watch(Protocol):
    """Who is told of the phases, and waits."""

    def phase(self, name: str | None) -> None:
        """The phase of this name begins."""

    def wait(self, seconds: float) -> None:
        """Let it go on for so long."""


class Engine(Protocol):
    """A stream processor with the application under way, which nobody controls."""

    def waiting(self) -> int | None:
        """Rows in the topics that wait to be counted now, once for each reader they have; None: it does not tell."""

    def windows(self) -> Mapping[str, Sequence[Window]]:
        """What its queries told so far, in order of time."""


@dataclass(slots=True)
class Seen:
    """What was seen of one engine. Instants are seconds since 1970."""

    spans: dict[str, tuple[float, float]] = field(default_factory=dict)  #: of each phase, begin and end
    waiting: list[tuple[float, int]] = field(default_factory=list)  #: instant, rows
    windows: Mapping[str, Sequence[Window]] = field(default_factory=dict)  #: by query

    def phase(self, name: str) -> dict[str, Any]:
        """The figures of a phase: rows that wait at its end, and the ages of the rows that were counted in it, ms: the
        median over its windows of the 50th percentile, of the others the worst window's."""
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
        """For the chart: seconds since the first phase began; at what time each phase did, rows waiting, and of each
        query's windows the middle and the median age of the rows, ms."""
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
        """Rows that waited, on average over all phases: by Little's law, in proportion to how long each did."""
        begin, end = min(begin for begin, _ in self.spans.values()), max(end for _, end in self.spans.values())
        return fmean(rows for at, rows in self.waiting if begin <= at <= end)

    def _thinned(self) -> Iterator[tuple[float, int]]:
        before = float("-inf")
        for at, rows in self.waiting:
            if at - before >= DRAWN_S - LOOK_S / 2:
                before = at
                yield at, rows


class Watcher:
    """Looks every second at an engine that nobody controls."""

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
        """Look until so much time has passed."""
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0:
            if (rows := self.engine.waiting()) is not None:
                self.seen.waiting.append((time.time(), rows))
            time.sleep(max(min(LOOK_S, left_s), 0.0))


@dataclass(frozen=True, slots=True)
class Load:
    """What every engine is put through."""

    run: Run
    rates: Mapping[float, float]  #: rows/s of both topics together, by how many times what the task manager carries
    phases: Course  #: with the seconds that they last here

    def play(self, watch: Watch, warm: Callable[[], object]) -> None:
        """A calm load while the engine gets warm, then the phases."""
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
        """The same, shortened."""
        return replace(self, phases=[(name, times, share * seconds) for name, times, seconds in self.phases])

    def watched(self, engine: Engine, warm_s: float = WARM_S) -> Seen:
        """Put an engine that nobody controls, and that has just started on the newest rows, through it."""
        watcher = Watcher(engine)
        self.play(watcher, lambda: watcher.wait(warm_s))
        watcher.wait(2 * DRAWN_S)
        watcher.seen.windows = engine.windows()
        return watcher.seen

    def mean_waiting(self, engine: Engine) -> float:
        """The same, of which only the rows that waited on average matter."""
        watcher = Watcher(engine)
        self.play(watcher, lambda: watcher.wait(WARM_S))
        return watcher.seen.mean_waiting()


def last_told(rows: Sequence[Window]) -> list[Window]:
    """The last that a query told of each of its windows: the one that counts most rows. In order of time."""
    last: dict[float, Window] = {}
    for row in rows:
        if row["start"] not in last or row["rows"] >= last[row["start"]]["rows"]:
            last[row["start"]] = row
    return [last[start] for start in sorted(last)]
