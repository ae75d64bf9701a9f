"""Samples a broker and a task manager during a run: end offsets of topics, CPU, and the batches that ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence

import psutil
from confluent_kafka import Consumer, TopicPartition

from benchmarks.evaluation.ages import Ends
from benchmarks.evaluation.recipes import SENT
from benchmarks.evaluation.sampling import Sampling
from qod_magics.errors import KafkaError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.reading import end_offsets
from qod_magics.spark.queries.progress import Batch

PLACES, AT_EACH = 40, 25  #: positions in a topic of results, and rows read at each


class Sampler(Sampling):
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
        super().__init__()

    @property
    def found(self) -> list[Batch]:
        """The batches so far, in order of their ends."""
        return sorted([*self._found.values()], key=lambda batch: batch.end)

    def cpu_percent(self, begin: float, end: float) -> float:
        """Mean CPU in this interval, % of one core."""
        return (self.cpu.offset(end) - self.cpu.offset(begin)) / 10.0 / (end - begin)

    def look(self) -> None:
        """Sample end offsets."""
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
