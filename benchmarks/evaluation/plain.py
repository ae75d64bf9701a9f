"""Plain Spark, without this project: queries as a user would write them who knows `maxOffsetsPerTrigger`."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from benchmarks.evaluation.applications import TIMED, TOPICS, timed_trips, trip_ages
from benchmarks.evaluation.course import Window, last_told
from qod_magics.errors import KafkaError
from qod_magics.kafka.reading import Offsets, end_offsets
from qod_magics.kafka.topics import create_topics, delete_topics
from qod_magics.session.results import read_results
from qod_magics.session.session import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter


class PlainSpark:
    """The timed Taxi Drives as two plain queries on the task manager's own Spark session, one for each sink.

    Each reads both topics itself; the recipes are the same. Micro-batches run back to back, each of at most
    `rows` rows (Kafka's option `maxOffsetsPerTrigger`): that bounds batches and so latency, at the price of the fixed
    work per batch. Nothing is dropped: input beyond the core's capacity adds to the backlog. There are no stages, so
    ages are end to end only.
    """

    def __init__(self, session: Session, rows: int) -> None:
        self.session = session
        self.rows = rows
        run = secrets.token_hex(3)  # never resumes from an earlier checkpoint and topic
        self._topics = {query: f"plain-{query}-{run}" for query in TIMED}
        self._begun = end_offsets(session.kafka, TOPICS)
        self._schemas: dict[str, Any] = {}
        self._queries: dict[str, Any] = {}
        create_topics(session.kafka, dict.fromkeys(self._topics.values(), 1))
        for query, topic in self._topics.items():
            self._queries[query] = self._start(query, topic)

    def _start(self, query: str, topic: str) -> Any:
        workshop = self.session.runtime.workshop()
        options = {**workshop.kafka, "maxOffsetsPerTrigger": str(self.rows)}
        records = records_of(workshop.spark, options, self._begun).withColumn("_weight", F.lit(1.0))
        told = trip_ages(timed_trips(records), query).select(
            F.unix_timestamp("window.start").cast("double").alias("start"), "rows", "end_to_end"
        )
        self._schemas[query] = told.schema
        return writer_of(told, workshop.kafka, topic, f"{self.session.runtime.checkpoints}/{topic}").start()

    def waiting(self) -> int | None:
        """The backlog of both queries, rows: those that no finished batch has counted."""
        try:
            ends = end_offsets(self.session.kafka, TOPICS)
        except KafkaError:  # the broker is busy
            return None
        return sum(_behind(ends, self._counted(query)) for query in self._queries.values())

    def _counted(self, query: Any) -> Offsets:
        if (error := query.exception()) is not None:
            raise RuntimeError(f"plain Spark ended: {error}")
        progress = query.lastProgress
        said = progress["sources"][0]["endOffset"] if progress else None
        return offsets(said) or self._begun

    def windows(self) -> Mapping[str, Sequence[Window]]:
        """The windows that the queries reported."""
        workshop = self.session.runtime.workshop()
        return {
            query: last_told([row.asDict() for row in read_results(workshop, topic, self._schemas[query]).collect()])
            for query, topic in self._topics.items()
        }

    def stop(self) -> None:
        """End the queries and delete their results."""
        for query in self._queries.values():
            with suppress(Exception):
                query.stop()
        delete_topics(self.session.kafka, self._topics.values())


def records_of(spark: SparkSession, options: Mapping[str, str], begun: Offsets) -> DataFrame:
    """Kafka's records of both topics from these offsets on, as a plain query reads them."""
    reader = spark.readStream.format("kafka").options(**options).option("subscribe", ",".join(TOPICS))
    return reader.option("startingOffsets", json.dumps(begun)).load()


def writer_of(rows: DataFrame, options: Mapping[str, str], topic: str, checkpoint: str) -> DataStreamWriter:
    """A plain query that writes its rows to a topic, as JSON; not started."""
    writer = rows.select(F.to_json(F.struct("*")).alias("value")).writeStream.format("kafka").options(**options)
    return writer.option("topic", topic).option("checkpointLocation", checkpoint).outputMode("update")


@contextmanager
def plain_spark(session: Session, rows: int) -> Iterator[PlainSpark]:
    """Plain Spark from the newest rows on, on a session without streams of its own."""
    engine = PlainSpark(session, rows)
    try:
        yield engine
    finally:
        engine.stop()


def offsets(said: Any) -> Offsets:
    """Offsets in a progress report, as JSON or parsed; empty if there are none."""
    found = json.loads(said) if isinstance(said, str) else said
    return {topic: {int(p): int(o) for p, o in parts.items()} for topic, parts in (found or {}).items()}


def _behind(ends: Offsets, counted: Offsets) -> int:
    return sum(
        end - counted.get(topic, {}).get(part, end) for topic, parts in ends.items() for part, end in parts.items()
    )
