"""What is seen of a session during the soak: its books, cycles, memory and open files, and what its topic holds."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import numpy as np
import psutil
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import functions as F

from benchmarks.soak.application import TOPIC, WINDOW_S
from qod_magics.controller import Cycle
from qod_magics.kafka.offsets import end_offsets
from qod_magics.session.session import Session

SAMPLED_S = 10.0  #: between two looks at the processes
Points = list[tuple[float, float]]  #: time, and a value


class Watch:
    """Sees each cycle of a session and, every ten seconds, all processes. Use it as a context manager.

    Attributes:
        unbalanced: in words, the books of a cycle that do not balance.
        cycles: how long each took, seconds.
        events: how often each kind came.
        resident, files: bytes of memory and open files, by process.

    """

    def __init__(self, session: Session) -> None:
        self.unbalanced: list[str] = []
        self.cycles: Points = []
        self.events: Counter[str] = Counter()
        self.resident: dict[str, Points] = {}
        self.files: dict[str, Points] = {}
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
        self.cycles.append((time.monotonic(), (datetime.now(UTC) - cycle.at).total_seconds()))
        self.events.update(event.kind for event in cycle.events)
        for name, c in (cycle.measured.counts if cycle.measured is not None else {}).items():
            if c.arrived != c.processed + c.dropped + c.waiting + c.unreported or min(c.waiting, c.unreported) < 0:
                self.unbalanced.append(f"cycle {cycle.number}, {name}: {c}")

    def _sample(self) -> None:
        this = psutil.Process()
        while not self._ended.wait(SAMPLED_S):
            for process in [this, *this.children(recursive=True)]:
                with suppress(psutil.Error):
                    name, now = f"{process.name()} {process.pid}", time.monotonic()
                    self.resident.setdefault(name, []).append((now, float(process.memory_info().rss)))
                    self.files.setdefault(name, []).append((now, float(process.num_fds())))


class Truth:
    """The records of the topic by window, read from the broker; `close` it."""

    def __init__(self, session: Session) -> None:
        self.rows: Counter[int] = Counter()  #: by the window's start, milliseconds
        self._session = session
        self._consumer = Consumer({**session.kafka.client_config(), "group.id": "truth", "enable.auto.commit": False})
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
            for message in self._consumer.consume(10_000, timeout=1.0):
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


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Growth in an hour as a fraction of the mean, by least squares over the second half."""
    half = points[len(points) // 2 :]
    if len(half) < 3:
        return 0.0
    at, value = np.array(half).T
    return float(np.polyfit(at - at[0], value, 1)[0] * 3600 / value.mean())
