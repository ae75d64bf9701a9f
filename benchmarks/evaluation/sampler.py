"""Samples a broker and a task manager during a run: end offsets of topics, CPU, and the batches that ended."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType

import psutil
from confluent_kafka import Consumer, TopicPartition

from benchmarks.evaluation.ages import Ends
from benchmarks.evaluation.recipes import SENT
from qod_magics.errors import KafkaError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.offsets import end_offsets
from qod_magics.spark.progress import Batch

EVERY_S = 0.25
PLACES, AT_EACH = 40, 25  #: positions in a topic of results, and rows read at each


class Sampler:
    """Samples while its context lasts, on a thread of its own.

    Args:
        kafka: the broker.
        topics: of one partition each; their end offsets are sampled.
        process: the task manager's; its children's CPU is included.
        batches: returns batches that have ended; polled once a second, may repeat some.

    """

    def __init__(
        self, kafka: Kafka, topics: Sequence[str], process: int, batches: Callable[[], Iterable[Batch]]
    ) -> None:
        self.ends = {topic: Ends() for topic in topics}
        self.cpu = Ends()  #: milliseconds of CPU so far
        self._kafka = kafka
        self._process = psutil.Process(process)
        self._batches = batches
        self._found: dict[tuple[str, int], Batch] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._error: Exception | None = None

    def __enter__(self) -> Sampler:
        self._look()
        self.collect()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(10.0)
        if kind is None and self._error is not None:
            raise self._error

    @property
    def found(self) -> list[Batch]:
        """The batches so far, in order of their ends."""
        return sorted([*self._found.values()], key=lambda batch: batch.end)

    def cpu_percent(self, begin: float, end: float) -> float:
        """Mean CPU in this interval, % of one core."""
        return (self.cpu.offset(end) - self.cpu.offset(begin)) / 10.0 / (end - begin)

    def _run(self) -> None:
        turn = 0
        try:
            while not self._over.wait(EVERY_S):
                self._look()
                turn += 1
                if turn % round(1 / EVERY_S) == 0:
                    self.collect()
            self.collect()
        except Exception as error:
            self._error = error

    def _look(self) -> None:
        try:
            asked = time.time()
            ends = end_offsets(self._kafka, self.ends)
        except KafkaError:  # the broker is busy
            return
        at = (asked + time.time()) / 2
        for topic, parts in ends.items():
            self.ends[topic].add(at, sum(parts.values()))

    def collect(self) -> None:
        """Sample CPU and batches now."""
        at = time.time()
        used = 0.0
        for process in (self._process, *self._process.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            used += times.user + times.system
        self.cpu.add(at, round(1000 * used))
        for batch in self._batches():
            self._found[batch.run_id, batch.batch_id] = batch


def result_ages(kafka: Kafka, topic: str, first: float, last: float) -> list[tuple[float, float]]:
    """(age in seconds, 1) of rows between these offsets of a topic of results: from the row's sending (its
    `SENT`) until its result was handed to the broker's client. Rows are sampled at evenly spaced positions."""
    if last - first < 1:
        return []
    consumer = Consumer({**kafka.client_config(), "group.id": "ages", "enable.auto.commit": False})
    found = []
    try:
        for place in range(PLACES):
            offset = int(first + (place + 0.5) / PLACES * (last - first))
            consumer.assign([TopicPartition(topic, 0, offset)])
            for message in consumer.consume(AT_EACH, 1.0):
                if message.error() is None and message.offset() < last:
                    sent = json.loads(message.value())[SENT]
                    found.append(((message.timestamp()[1] - sent) / 1000, 1.0))
    finally:
        consumer.close()
    return found
