"""Rows that reach a query's results, and CPU by process, sampled during a run; throughput, pauses and CPU from that."""

from __future__ import annotations

import time
from collections.abc import Mapping

import psutil

from benchmarks.evaluation.ages import Ends
from benchmarks.evaluation.capacity import cpu_s, pid
from benchmarks.evaluation.cluster import Run
from benchmarks.evaluation.sampling import Sampling
from qod_magics.errors import KafkaError
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.reading import end_offsets

PAUSE_S = 1.0  #: a real-time query writes nothing while it commits, for some tenths of a second
BROKER, INJECTOR = "broker", "injector"


class Flow(Sampling):
    """Samples while its context lasts, on a thread of its own.

    Attributes:
        rows: rows in the topic of the query's results so far, over time.
        cpu: milliseconds of CPU so far, over time: of each task manager by id, the broker and the newest injector.

    """

    def __init__(self, run: Run, query: str) -> None:
        self.rows = Ends()
        self.cpu: dict[str, Ends] = {}
        self._session = run.session
        self._topic = run.session.runtime.deployment.results[query]
        super().__init__()

    def rate(self, begin: float, end: float) -> float:
        """Rows/s that reached the results between these instants."""
        return (self.rows.offset(end) - self.rows.offset(begin)) / (end - begin)

    def cpu_percent(self, name: str, begin: float, end: float) -> float:
        """Mean CPU of a process, % of one core; 0 for one that did not run."""
        known = self.cpu.get(name)
        return 0.0 if known is None else (known.offset(end) - known.offset(begin)) / 10.0 / (end - begin)

    def task_managers_cpu(self, begin: float, end: float) -> float:
        """Mean CPU of all task managers together, % of one core."""
        return sum(self.cpu_percent(name, begin, end) for name in list(self.cpu) if name not in (BROKER, INJECTOR))

    def look(self) -> None:
        """Sample the rows."""
        try:
            asked = time.time()
            ends = end_offsets(self._session.kafka, [self._topic])
        except KafkaError:  # the broker is busy
            return
        self.rows.add((asked + time.time()) / 2, sum(ends[self._topic].values()))

    def collect(self) -> None:
        """Sample the CPU of all processes."""
        for name, process in self._processes().items():
            try:
                used = cpu_s(psutil.Process(process))
            except psutil.NoSuchProcess:
                continue
            self.cpu.setdefault(name, Ends()).add(time.time(), round(1000 * used))

    def _processes(self) -> Mapping[str, int]:
        session = self._session
        found: dict[str, int | None] = {id: pid(each) for id, each in list(session.runtime.task_managers.items())}
        found[BROKER] = session.kafka.pid if isinstance(session.kafka, EmbeddedBroker) else None
        if session.injectors:
            found[INJECTOR] = session.injectors[-1].pid
        return {name: each for name, each in found.items() if each is not None}


def pauses(rows: Ends, begin: float, end: float, at_least_s: float = PAUSE_S) -> list[float]:
    """The lengths in seconds of the times between these instants in which no row arrived for `at_least_s` or more."""
    found = []
    last, known = begin, rows.offset(begin)
    for at, offset in zip(rows.at, rows.offsets, strict=True):
        if begin < at <= end and offset > known:
            found.append(at - last)
            last, known = at, offset
    found.append(end - last)
    return [length for length in found if length >= at_least_s]


def windows(rows: Ends, begin: float, end: float, length_s: float) -> list[float]:
    """Rows/s of each whole window of this length."""
    found = []
    while begin + length_s <= end:
        found.append((rows.offset(begin + length_s) - rows.offset(begin)) / length_s)
        begin += length_s
    return found
