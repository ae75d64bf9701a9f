"""Measured latencies against true ones: `python benchmarks/latency.py [--rate N] [--cycles N]`.

Sends rows that carry the time at which they were sent, at a rate that rises and falls, to four queries on one local
task manager:

- `real-time` and `batches`: stateless, in real-time mode and in micro-batches,
- `windows`: a windowed aggregation in micro-batches,
- `hop`: stateless micro-batches behind a stream that another task writes, in real-time mode.

After each cycle, p50 and p95 of each query in the snapshot are compared with the truth over the same rows, those of the
batches that ended in the last ten seconds before the query's last report: of a stateless query the time of a row's
result, as Kafka has it, minus the time at which the row was sent; of the aggregation, whose results don't tell their
rows, the end of the batch that read a row, by its offset, minus the time at which that row was sent. The times of
sending are the producer's own, which the measurement does not use. Printed by query: medians over the cycles of truth
and measurement, and the median and the largest error, in ms and as a share of the truth.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qod_magics.controller.cycle import Cycle
from qod_magics.core.optional import LATENCY_P50, LATENCY_P95
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.topics import create_topics
from qod_magics.session.session import Session
from qod_magics.spark.metrics.latency import WINDOWS_S
from qod_magics.spark.queries.progress import Batch

TOPIC, SCHEMA = "timed", "id LONG, sent_ms LONG, at TIMESTAMP"
PERIOD_S = 5.0
SWING, SWING_S = 0.5, 7.0  #: the rate's amplitude, as a share, and its period
SLICE_S = 0.02
WARM_S = 40.0
FIELDS = (LATENCY_P50, LATENCY_P95)
SHARES = (50.0, 95.0)


@dataclass
class Load(threading.Thread):
    """Sends rows until it is stopped."""

    kafka: Kafka
    rate: float  #: rows/s, on average
    sent: list[float] = field(default_factory=list)  #: by offset: when the row was sent, seconds since the epoch

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        producer = Producer({**self.kafka.client_config(), "linger.ms": 5, "enable.idempotence": True})
        begun, due = time.time(), 0.0
        while not self._ended.wait(SLICE_S):
            now = time.time()
            phase = 2 * math.pi * (now - begun) / SWING_S
            due = self.rate * ((now - begun) + SWING * SWING_S / (2 * math.pi) * (1 - math.cos(phase)))
            while len(self.sent) < due:
                at = time.time()
                row = {"id": len(self.sent), "sent_ms": round(1e3 * at), "at": int(at)}
                producer.produce(TOPIC, json.dumps(row).encode(), partition=0, timestamp=row["sent_ms"])
                self.sent.append(at)
            producer.poll(0)
        producer.flush(10)

    def stop(self) -> None:
        self._ended.set()
        self.join()


@dataclass
class Results(threading.Thread):
    """Reads the results of stateless queries: when each was written, and its latency."""

    kafka: Kafka
    topics: Mapping[str, str]  #: query by topic
    seen: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    by_row: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))  #: when written, by id

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        consumer = Consumer({**self.kafka.client_config(), "group.id": "latency", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0) for topic in self.topics])
        while not self._ended.is_set():
            for message in consumer.consume(5000, 0.2):
                if message.error() is None:
                    written = message.timestamp()[1] / 1e3
                    row, query = json.loads(message.value()), self.topics[message.topic()]
                    self.seen[query].append((written, written - row["sent_ms"] / 1e3))
                    self.by_row[query][row["id"]] = written
        consumer.close()

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def between(self, query: str, begin: float, end: float) -> list[float]:
        return [latency for written, latency in list(self.seen[query]) if begin < written <= end]


def declare(session: Session) -> None:
    """The four queries."""

    def passed(source: DataFrame) -> DataFrame:
        return source.select("id", "sent_ms")

    def counts(source: DataFrame) -> DataFrame:
        late = source.withWatermark("at", "2 seconds")
        return late.groupBy(F.window("at", "2 seconds"), F.expr("id % 10").alias("k")).agg(F.sum("_weight").alias("n"))

    also = {"topic": TOPIC, "schema": SCHEMA, "priority": 1, "min_accuracy": 1.0}
    session.stream("real_time", passed, mode="realtime", **also)
    session.stream("batches", passed, mode="microbatch", trigger_s=1.0, **also)
    session.stream("windows", counts, mode="microbatch", trigger_s=2.0, **also)
    session.stream("feed", passed, topic=TOPIC, schema=SCHEMA, mode="realtime", fuse=False)
    session.stream("hop", from_="feed", mode="microbatch", fuse=False, trigger_s=2.0, priority=1, min_accuracy=1.0)


def batches_of(session: Session, query: str, begin: float, end: float) -> list[Batch]:
    """Those of its batches with rows that ended in this interval."""
    (instance,) = (i for i in session.runtime.instances.values() if i.job.task == query)
    return [batch for batch in instance.batches if begin < batch.end <= end and batch.rows]


def truth(session: Session, query: str, sent: list[float], results: Results, end: float) -> list[float]:
    """Latencies of the rows of the batches that ended in the ten seconds up to `end`."""
    found: list[float] = []
    batches = batches_of(session, query, end - WINDOWS_S[0], end)
    if query == "hop":  # its offsets are those of a stream
        return results.between(query, min((batch.start for batch in batches), default=end), end)
    seen = dict(results.by_row[query])
    for batch in batches:
        (feed,) = batch.feeds
        if feed.start is not None:
            rows = range(feed.start[0], feed.end[0])
            found += [(batch.end if query == "windows" else seen.get(row, batch.end)) - sent[row] for row in rows]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Measured latencies against true ones.")
    parser.add_argument("--rate", type=float, default=1500.0, help="rows/s")
    parser.add_argument("--cycles", type=int, default=16)
    words = parser.parse_args()
    with Session.up(task_managers=1, cores=1, period_s=PERIOD_S, jit="c1") as session:
        session.pause(open_shedders=True)
        create_topics(session.kafka, {TOPIC: 1})
        load = Load(session.kafka, words.rate)
        declare(session)
        names = ("real_time", "batches", "windows", "hop")
        results = Results(session.kafka, {session.runtime.deployment.results[n]: n for n in names if n != "windows"})
        load.start()
        results.start()
        time.sleep(WARM_S)
        cycles: list[Cycle] = []
        close = session.controller.subscribe(cycles.append)
        lines: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        while len(cycles) < words.cycles:
            known = len(cycles)
            time.sleep(0.2)
            for cycle in cycles[known:] if len(cycles) > known else []:
                time.sleep(0.5)  # the last results are on their way
                compare(session, cycle, names, load.sent, results, lines)
        close()
        load.stop()
        results.stop()
    print(f"{words.rate:g} rows/s on average, {words.cycles} cycles of {PERIOD_S:g} s")
    print(f"{'query':<12}{'':<16}{'truth':>9}{'measured':>10}{'error, median':>22}{'error, largest':>22}")
    for (query, name), pairs in lines.items():
        errors = [(1e3 * (got - true), 100 * (got - true) / true) for true, got in pairs]
        worst = max(errors, key=lambda error: abs(error[0]))
        truth, got = (1e3 * median(side) for side in zip(*pairs, strict=True))
        typical = median(abs(ms) for ms, _ in errors), median(abs(share) for _, share in errors)
        print(
            f"{query:<12}{name:<16}{truth:7.0f}ms{got:8.0f}ms"
            f"{typical[0]:12.0f} ms {typical[1]:5.1f} %{worst[0]:+12.0f} ms {worst[1]:+5.1f} %"
        )
    return 0


def compare(
    session: Session,
    cycle: Cycle,
    names: tuple[str, ...],
    sent: list[float],
    results: Results,
    lines: dict[tuple[str, str], list[tuple[float, float]]],
) -> None:
    """Add (truth, measurement) of each query in this cycle to `lines`."""
    if cycle.snapshot is None:
        return
    for query in names:
        (task,) = (t for t in cycle.snapshot.tasks if t.id == query)
        (instance,) = (i for i in cycle.snapshot.instances if i.task == query)
        if "window" not in instance.extra:
            continue
        end = instance.extra["window"][1]
        true = truth(session, query, sent, results, end)
        for field_, share in zip(FIELDS, SHARES, strict=True):
            got = field_.of(task)
            if got is not None and true:
                lines[query, field_.name].append((float(np.percentile(true, share)), got))


if __name__ == "__main__":
    sys.exit(main())
