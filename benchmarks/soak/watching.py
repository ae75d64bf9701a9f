"""What is seen of a session during the soak: its books, cycles, memory and open files, and what its topic holds."""

from __future__ import annotations

import math
import re
import subprocess
import threading
import time
from array import array
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import psutil
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import functions as F

from benchmarks.soak.application import TOPIC, WINDOW_S
from qod_magics.controller import Cycle
from qod_magics.kafka.reading import end_offsets
from qod_magics.machine.java import find_java
from qod_magics.session.session import Session

SAMPLED_S = 10.0  #: between two looks at the processes
COLLECTED_S = 120.0  #: between two garbage collections of each task manager
#: Of a consumer that keeps few records in memory: it is in the kernel, whose memory is watched.
SMALL = {"queued.max.messages.kbytes": 2048, "fetch.max.bytes": 1 << 25, "fetch.message.max.bytes": 1 << 19}
#: Into how many parts the second half of a series is cut: each part's median is a point of the line through them.
PARTS = 12


class Series:
    """Values and when each was seen, monotonic seconds, in 16 bytes each: the watch itself must not grow."""

    def __init__(self) -> None:
        self.at, self.values = array("d"), array("d")

    def __len__(self) -> int:
        return len(self.values)

    def add(self, value: float) -> None:
        """Add a value of now."""
        self.at.append(time.monotonic())
        self.values.append(value)


@dataclass(frozen=True)
class Slope:
    """Growth in an hour, and its standard error, both as a fraction of the mean."""

    growth: float
    error: float

    def __str__(self) -> str:
        return f"{self.growth:+.1%} ± {self.error:.1%}"


class Watch:
    """Sees each cycle of a session and, every ten seconds, all processes. Use it as a context manager.

    Attributes:
        unbalanced: in words, the books of a cycle that do not balance.
        cycles: how long each took, seconds.
        events: how often each kind came.
        resident, files: bytes of memory and open files, by process.
        live: bytes of the heap that a full garbage collection leaves, by task manager; empty without `jcmd`.

    """

    def __init__(self, session: Session) -> None:
        self.unbalanced: list[str] = []
        self.cycles = Series()
        self.events: Counter[str] = Counter()
        self.resident: dict[str, Series] = {}
        self.files: dict[str, Series] = {}
        self.live: dict[str, Series] = {}
        self._session = session
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="soak-sampler", daemon=True)
        session.controller.subscribe(self._see)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _see(self, cycle: Cycle) -> None:
        self.cycles.add((datetime.now(UTC) - cycle.at).total_seconds())
        self.events.update(event.kind for event in cycle.events)
        for name, c in (cycle.measured.counts if cycle.measured is not None else {}).items():
            if c.arrived != c.processed + c.dropped + c.waiting + c.unreported or min(c.waiting, c.unreported) < 0:
                self.unbalanced.append(f"cycle {cycle.number}, {name}: {c}")

    def _sample(self) -> None:
        this, collected = psutil.Process(), time.monotonic()
        while not self._ended.wait(SAMPLED_S):
            if time.monotonic() > collected + COLLECTED_S:
                collected = time.monotonic()
                self._collect()
            for process in [this, *this.children(recursive=True)]:
                with suppress(psutil.Error):
                    name = f"{process.name()} {process.pid}"
                    memory, files = process.memory_info().rss, process.num_fds()  # it may have ended by now
                    self.resident.setdefault(name, Series()).add(memory)
                    self.files.setdefault(name, Series()).add(files)

    def _collect(self) -> None:
        for id, manager in list(self._session.runtime.task_managers.items()):
            heap = None if manager.server is None else live_heap(manager.server.child.pid)
            if heap is not None:
                self.live.setdefault(id, Series()).add(heap)


def live_heap(pid: int, timeout_s: float = 10.0) -> int | None:
    """Bytes of a JVM's heap in use after a full garbage collection; None without `jcmd`, or if it does not answer."""
    jcmd = find_java().home / "bin" / "jcmd"
    try:
        subprocess.run([jcmd, str(pid), "GC.run"], capture_output=True, check=True, timeout=timeout_s)
        command = [jcmd, str(pid), "GC.heap_info"]
        said = subprocess.run(command, capture_output=True, check=True, timeout=timeout_s, text=True).stdout
    except (OSError, subprocess.SubprocessError):  # a JRE; or it was killed, or is stopped
        return None
    old = re.search(r"tenured generation\s+total \d+K, used (\d+)K", said)  # the young one has been allocated since
    return None if old is None else 1024 * int(old[1])


class Truth:
    """The records of the topic by window, read from the broker; `close` it."""

    def __init__(self, session: Session) -> None:
        self.rows: Counter[int] = Counter()  #: by the window's start, milliseconds
        self._session = session
        options = {"group.id": "truth", "enable.auto.commit": False, **SMALL}
        self._consumer = Consumer({**session.kafka.client_config(), **options})
        self._next: dict[int, int] = {}

    @property
    def total(self) -> int:
        """Records read so far."""
        return self.rows.total()

    def read(self) -> None:
        """Read up to the present end of the topic."""
        ends = end_offsets(self._session.kafka, [TOPIC])[TOPIC]
        self._consumer.assign([TopicPartition(TOPIC, p, self._next.get(p, 0)) for p in ends])
        while any(self._next.get(p, 0) < end for p, end in ends.items()):
            for message in self._consumer.consume(1_000, timeout=1.0):
                if message.error() is None:
                    width = WINDOW_S * 1000
                    self.rows[message.timestamp()[1] // width * width] += 1
                    self._next[message.partition()] = message.offset() + 1

    def close(self) -> None:
        """End the consumer."""
        self._consumer.close()


def estimates(session: Session) -> Mapping[int, tuple[float, float]]:
    """The last result of `counts` by window (its start, milliseconds): estimated rows, and their variance."""
    results = session.results("counts").groupBy("window")
    last = results.agg(F.max_by("rows", "kept").alias("rows"), F.max_by("variance", "kept").alias("variance"))
    return {int(row["window"]["start"].timestamp() * 1000): (row["rows"], row["variance"]) for row in last.collect()}


def deviation(estimate: tuple[float, float], rows: int) -> float:
    """How far an estimate is from the truth, in its standard errors; in rows where none was dropped."""
    found, variance = estimate
    return abs(found - rows) / math.sqrt(variance) if variance > 0 else abs(found - rows)


def slope(series: Series) -> Slope:
    """By least squares through the medians of twelve equal parts of the second half; 0 where that is too short."""
    half = len(series) // 2
    if half < 2 * PARTS:
        return Slope(0.0, 0.0)
    at, values = np.array(series.at[half:]), np.array(series.values[half:])
    medians = np.array([np.median(part) for part in np.array_split(values, PARTS)])
    middles = np.array([np.median(part) for part in np.array_split(at - at[0], PARTS)]) / 3600
    (growth, _), covariance = np.polyfit(middles, medians, 1, cov=True)
    return Slope(float(growth / medians.mean()), float(np.sqrt(covariance[0, 0]) / medians.mean()))
