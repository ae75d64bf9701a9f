"""Costs of the parts of a task instance: CPU of Spark's tasks per row, from plans that differ by one part."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from benchmarks.evaluation.applications import COLUMNS, clean
from benchmarks.evaluation.capacity import first
from benchmarks.evaluation.cluster import Run
from qod_magics.data.schema import trip_schema
from qod_magics.kafka.topics import create_topics
from qod_magics.spark.plans.parsing import JSON_FORMAT, parsed
from qod_magics.spark.plans.pipeline import GATHERING_READER, Feed, Job, Workshop, schema_of_stream
from qod_magics.spark.servers import stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

ROWS = 80_000
FILL_PER_S = 40_000.0
TRIPS, EDGE, SENT = "parts.trips", "parts.edge", ("parts.sent1", "parts.sent2")

PLAIN = "parse and clean, as plain Spark does"

#: Each part: the plan with it, and the plan with all but it.
STEPS: Mapping[str, tuple[str, str | None]] = {
    "read the topic": ("read", None),
    "parse and clean": ("parse", "read"),
    PLAIN: ("parse plainly", "read"),
    "shed at the source": ("source", "parse"),
    "encode for a stream": ("encode", "source"),
    "write to a stream": ("send", "encode"),
    "write to a second stream": ("send to two", "send"),
    "read the stream": ("read stream", None),
    "decode": ("decode", "read stream"),
    "shed what waited": ("accept", "decode"),
}


def parts(run: Run, scale: float) -> dict[str, Any]:
    """CPU microseconds per row: of each plan in each repeat, and of each part."""
    rows = int(ROWS * max(scale, 0.5))
    create_topics(run.session.kafka, dict.fromkeys((TRIPS, EDGE, *SENT), 1))
    data = {"generator": "taxi-trips", "columns": COLUMNS}
    feed = {"topic": TRIPS, "partitions": 1, "data": data, "rate": FILL_PER_S}
    run.inject({"seed": 1, "duration_s": rows / FILL_PER_S, "topics": [feed]}).wait(60)
    plans = Plans(run)
    plans.cost(plans.filling, "kafka")
    spent: dict[str, list[float]] = {}
    for repeat in range(4 if scale >= 1 else 2):
        for name, plan in plans.all().items():
            us = plans.cost(plan, "kafka" if name.startswith("send") else "noop")
            if repeat > 0:  # the first one warms up
                spent.setdefault(name, []).append(us)
    return {"plans_us": spent, "parts_us": steps(spent)}


def steps(spent: Mapping[str, list[float]]) -> dict[str, float]:
    """Microseconds per row of each part: the median over the repeats of the difference between its plans."""
    return {
        part: median(a - b for a, b in zip(spent[with_it], spent[without] if without else _nothing(), strict=False))
        for part, (with_it, without) in STEPS.items()
    }


def _nothing() -> Iterator[float]:
    while True:
        yield 0.0


@dataclass(frozen=True, slots=True)
class Plans:
    """Plans on the first task manager, each of which reads a topic to its end."""

    run: Run

    @property
    def workshop(self) -> Workshop:
        """Builds plans as for task instances."""
        return self.run.session.runtime.workshop(first(self.run))

    def all(self) -> dict[str, Callable[[], DataStreamWriter]]:
        """The plans by name."""
        return {
            "read": lambda: self._records(TRIPS).select("value").writeStream,
            "parse": lambda: self._trips().writeStream,
            "parse plainly": lambda: self._plain_trips().writeStream,
            "source": lambda: self._instance(self._source()),
            "encode": lambda: self._instance(self._source(SENT[0])),
            "send": lambda: self._instance(self._source(SENT[0])),
            "send to two": lambda: self._instance(self._source(*SENT)),
            "read stream": lambda: self._records(EDGE).select("value", "headers").writeStream,
            "decode": lambda: self._decoded().writeStream,
            "accept": lambda: self._instance(self._reader()),
        }

    def filling(self) -> DataStreamWriter:
        """Writes the stream that other plans read."""
        return self._instance(self._source(EDGE))

    def cost(self, plan: Callable[[], DataStreamWriter], sink: str) -> float:
        """Run the plan and return CPU microseconds of its tasks per row read."""
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = plan().format(sink).option("checkpointLocation", checkpoint)
            query = writer.outputMode("append").trigger(availableNow=True).start()
            if not query.awaitTermination(120):
                query.stop()
                raise TimeoutError(f"{plan} took two minutes")
            reports = [json.loads(report.json) for report in query.recentProgress]
        rows = sum(source["numInputRows"] for report in reports for source in report["sources"])
        return 1e6 * self._cpu_s(str(query.runId)) / rows

    def _cpu_s(self, run_id: str) -> float:
        manager = first(self.run)
        assert manager.ui is not None
        assert manager.application is not None
        for _ in range(20):  # stages are reported with a delay
            by_batch = stages.times_by_batch(stages.completed_stages(manager.ui, manager.application))
            spent = sum(taken.cpu_s for (run, _), taken in by_batch.items() if run == run_id)
            if spent:
                return spent
            time.sleep(0.1)
        raise TimeoutError(f"the task manager reports no CPU of run {run_id}")

    def _records(self, topic: str) -> DataFrame:
        """The bare read of a task instance."""
        options = {**GATHERING_READER, **self.run.session.kafka.spark_options(), "failOnDataLoss": "false"}
        reader = first(self.run).spark.readStream.format("kafka").options(**options).option("includeHeaders", "true")
        return reader.option("assign", json.dumps({topic: [0]})).option("startingOffsets", "earliest").load()

    def _trips(self) -> DataFrame:
        """Each row is parsed once."""
        return clean(parsed(self._records(TRIPS), trip_schema(COLUMNS)))

    def _plain_trips(self) -> DataFrame:
        """Spark pushes the filter below the parse: a row is parsed for each column of the filter, then once more."""
        row = F.from_json(F.col("value").cast("string"), trip_schema(COLUMNS)).alias("row")
        return clean(self._records(TRIPS).select(row).select("row.*"))

    def _decoded(self) -> DataFrame:
        return parsed(self._records(EDGE), self._trips().schema, JSON_FORMAT)

    def _instance(self, job: Job) -> DataStreamWriter:
        """As a task instance is built, with shedders and counts."""
        with self.workshop.result(job) as rows:
            return self.workshop.writer(job, rows) if job.topics else rows.writeStream

    def _source(self, *to: str) -> Job:
        feed = Feed("in", ("in",), TRIPS, (0,), {}, trip_schema(COLUMNS), False)
        return _job(feed, clean, to)

    def _reader(self) -> Job:
        feed = Feed("in>out", ("in",), EDGE, (0,), {}, schema_of_stream(self._trips().schema), True)
        return _job(feed, lambda rows: rows, ())


def _job(feed: Feed, recipe: Callable[[DataFrame], DataFrame], to: tuple[str, ...]) -> Job:
    @contextmanager
    def build(_spark: SparkSession, inputs: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
        yield recipe(inputs["in"])

    outlets = tuple(f"in>{topic}" for topic in to)
    return Job("in", "in.1", 0, (feed,), build, outlets, tuple((t, 1, None) for t in to), None, None, None)
