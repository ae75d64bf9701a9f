"""How long micro-batches get after a step of the input rate beyond a task's capacity.

They run back to back, each over the rows that arrived meanwhile. Until the step nothing is shed; from then on the
controller sheds, in the running batch, too."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.evaluation.cluster import Run
from qod_magics.kafka.injector import Injector
from qod_magics.kafka.topics import create_topics
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.progress import Batch

TOPIC, TASK = "steps", "stepping"
ROUNDS = 700  #: of the hash that makes a row expensive: some tenths of a millisecond
GUESSED_ROWS_S = 2_000.0  #: rough capacity of one core
BACKLOG_S = 20.0  #: of its capacity
CALM, STEP = 0.5, 3.0  #: times its capacity
CALM_S, STEP_S = 20.0, 60.0
PATIENCE_S = 120.0
LEAST = 0.05  #: minimum accuracy of the query


def longest_batches(run: Run, scale: float) -> dict[str, Any]:
    """Seconds that the longest micro-batch took in each phase."""
    session = run.session
    create_topics(session.kafka, {TOPIC: 1})
    fast = 4 * GUESSED_ROWS_S
    _inject(run, fast, BACKLOG_S * GUESSED_ROWS_S / fast).wait(PATIENCE_S)
    session.pause(open_shedders=True)
    session.stream(
        TASK,
        hashed,
        topic=TOPIC,
        schema="id LONG",
        starting="earliest",
        priority=1,
        min_accuracy=LEAST,
        mode="microbatch",
    )
    try:
        instance = session.runtime.instances[f"{TASK}.1"]

        def longest(seconds: float, until: Callable[[], bool] = lambda: False) -> float:
            """Duration of the longest batch running within `seconds`, or before `until`."""
            begun = time.time()
            while not until() and time.time() < begun + seconds:
                time.sleep(0.5)
            over, patience = time.time(), time.monotonic() + PATIENCE_S
            while not any(b.end > over for b in _batches(instance)) and time.monotonic() < patience:
                time.sleep(0.5)  # the last one reports when it ends
            return max(b.end - b.start for b in _batches(instance) if b.end > begun and b.start < over)

        total = BACKLOG_S * GUESSED_ROWS_S
        backlog_s = longest(PATIENCE_S, lambda: _records(_batches(instance)) >= 0.8 * total)
        takes = _takes(instance)
        _inject(run, CALM * takes, CALM_S)
        calm_s = longest(0.8 * CALM_S)
        session.resume()
        load = _inject(run, STEP * takes, 2 * STEP_S)
        step_s = longest(max(scale, 0.5) * STEP_S)
        load.stop()
    finally:
        session.stop_all()
        session.resume()
    return {
        "period_s": session.controller.period_s,
        "longest_batch_s": max(calm_s, step_s),
        "backlog_s": backlog_s,
        "calm_s": calm_s,
        "step_s": step_s,
        "rows_s": takes,
    }


def hashed(source: DataFrame) -> DataFrame:
    """Rows that take an expensive Python function."""

    def work(id: int) -> int:
        return hashlib.pbkdf2_hmac("sha256", str(id).encode(), b"salt", ROUNDS)[0]

    return source.withColumn("hash", F.udf(work, "int")("id"))


def _inject(run: Run, rows_s: float, seconds: float) -> Injector:
    data = {"generator": "points", "rows": 5_000, "seed": 3}
    feed = {"topic": TOPIC, "partitions": 1, "data": data, "rate": rows_s}
    return run.inject({"duration_s": seconds, "topics": [feed]})


def _batches(instance: Instance) -> list[Batch]:
    return [batch for _, batch in list(instance.meter.spans)]


def _records(batches: list[Batch]) -> int:
    return sum(feed.read or 0 for batch in batches for feed in batch.feeds)


def _takes(instance: Instance) -> float:
    """Rows/s of the batch with the most rows, where fixed costs matter least."""
    most = max(_batches(instance), key=lambda batch: _records([batch]))
    return _records([most]) / (most.end - most.start)
