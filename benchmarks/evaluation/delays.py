"""How long a decision takes to show in the output: the turn of a dial, the move of an instance.

Both are read from the records that queries write, by the time at which each was handed to the broker's client.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.evaluation.cluster import Run
from qod_magics.controller import Cycle
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import create_topics

TOPIC, SOURCE, QUERY = "delays", "passing", "counting"
ROWS_PER_S = 500.0
PATIENCE_S = 60.0
LONG_S = 3600.0
SOON_S = 0.5  #: from a row until the cycle that planned it is over


def start_counting(run: Run) -> None:
    """A pass-through source, a query behind it that counts rows by window and key, and a load for them."""
    create_topics(run.session.kafka, {TOPIC: 1})
    data = {"generator": "points", "rows": 5_000, "seed": 3}
    run.inject({"duration_s": LONG_S, "topics": [{"topic": TOPIC, "partitions": 1, "data": data, "rate": ROWS_PER_S}]})

    def counts(passing: DataFrame) -> DataFrame:
        return (
            passing.withWatermark("ts", "10 seconds")
            .groupBy(F.window("ts", "10 seconds"), "label")
            .agg(F.sum("_weight").alias("rows"))
        )

    session = run.session
    session.stream(SOURCE, topic=TOPIC, schema="id LONG, ts TIMESTAMP, label INT", fuse=False)
    session.stream(QUERY, counts, from_=SOURCE, priority=1, min_accuracy=0.0, fuse=False)


def dial_turns(run: Run, turns: int) -> dict[str, list[float]]:
    """Milliseconds to the first row that the source's shedder passed under a new probability: from
    `Session.override`, from the begin of the cycle that applied it, and from the turn of the dial alone."""
    session = run.session
    manager = session.runtime.instances[f"{SOURCE}.1"].task_manager
    assert manager is not None
    by_hand, by_cycle, alone = [], [], []
    begun: list[float] = []
    close = session.controller.subscribe(lambda cycle: begun.append(_begun(cycle)))
    values = (0.5, 0.8)
    with _records(session.kafka, _stream(run)) as arriving:
        for turn in range(turns):
            time.sleep(random.Random(turn).uniform(0, session.controller.period_s))
            d, called = values[turn % 2], time.time()
            session.override(SOURCE, d)
            seen = _first_of(arriving, 1 / d, called)
            by_hand.append(1000 * (seen - called))
            time.sleep(SOON_S)
            by_cycle.append(1000 * (seen - max((at for at in begun if at <= seen), default=called)))
        close()
        session.pause()
        run.cycles(1)
        for turn in range(turns):
            d, called = values[turn % 2] / 2, time.time()
            manager.turn({session.runtime.board.source(SOURCE): d})
            alone.append(1000 * (_first_of(arriving, 1 / d, called) - called))
            time.sleep(SOON_S)
    session.resume()
    session.override(SOURCE, None)
    return {"override_ms": by_hand, "cycle_ms": by_cycle, "dial_ms": alone}


def moves(run: Run, to_and_fro: int) -> dict[str, list[float]]:
    """For each move of the query to a warm task manager and back: seconds from the call to its first row there, and
    the gap in its output meanwhile."""
    session = run.session
    ends = list(session.runtime.task_managers)[:2]
    topic = session.runtime.deployment.results[QUERY]
    totals, gaps = [], []
    with _records(session.kafka, topic) as arriving:
        for number in range(2 * to_and_fro):
            times = [at for at, _ in _for(arriving, 2.0)]
            called = time.time()
            session.move(f"{QUERY}.1", ends[(number + 1) % 2])
            times += [at for at, _ in _for(arriving, 3.0)]
            gap, back = longest_gap(times, called)
            totals.append(back - called)
            gaps.append(gap)
    return {"call_to_first_row_s": totals, "without_a_row_s": gaps}


def longest_gap(times: list[float], since: float) -> tuple[float, float]:
    """The longest gap between two rows, the second of them after `since`, and when it ended.

    Raises ValueError if no row follows `since`.
    """
    ordered = sorted(times)
    return max((later - sooner, later) for sooner, later in pairwise(ordered) if later > since)


def _stream(run: Run) -> str:
    return run.session.runtime.deployment.pipes[f"{SOURCE}>{QUERY}"].topic


def _begun(cycle: Cycle) -> float:
    return cycle.at.timestamp()


Arriving = Iterator["tuple[float, float] | None"]


@contextmanager
def _records(kafka: Kafka, topic: str) -> Iterator[Arriving]:
    """The records of a topic from now on: when each was written, seconds since the epoch, and its weight; None while
    there is no new one."""
    consumer = Consumer({**kafka.client_config(), "group.id": "delays", "enable.auto.commit": False})
    ends = end_offsets(kafka, [topic], timeout_s=10.0)[topic]
    consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in ends.items()])

    def read() -> Arriving:
        while True:
            message = consumer.poll(0.05)
            if message is None or message.error() is not None:
                yield None
            else:
                headers: Mapping[str, Any] = dict(message.headers() or ())
                yield message.timestamp()[1] / 1000, float(headers.get("weight", 1.0))

    try:
        yield read()
    finally:
        consumer.close()


def _first_of(arriving: Arriving, weight: float, since: float) -> float:
    """When the first record of this weight was written. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE_S
    for record in arriving:
        if record is not None and record[0] >= since - 0.001 and abs(record[1] - weight) < 1e-6 * weight:
            return record[0]
        if time.monotonic() > deadline:
            break
    raise TimeoutError(f"no row of weight {weight:g} for a minute")


def _for(arriving: Arriving, seconds: float) -> Iterator[tuple[float, float]]:
    """The records of the next `seconds`, after those that had already arrived."""
    deadline = time.monotonic() + seconds
    for record in arriving:
        if record is not None:
            yield record
        if time.monotonic() > deadline:
            return
