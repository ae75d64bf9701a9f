"""Write an instance's output: to the streams that leave its task, or to the sink of its query."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from qod_magics.application.streams.sink import KafkaTopic, Output
from qod_magics.application.weights import WEIGHT, weighed
from qod_magics.kafka.properties import LARGEST_RECORD
from qod_magics.spark.plans import shedder
from qod_magics.spark.plans.dial import DialBoard, lent_sql
from qod_magics.spark.plans.job import Job
from qod_magics.spark.plans.parsing import JSON_FORMAT
from qod_magics.spark.plans.records import columns_of_record, headers
from qod_magics.spark.plans.shedder import Outlet

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming import DataStreamWriter

#: How the message begins with which a row ends a query that is larger than a record may be.
TOO_LARGE = "a row is too large for Kafka: "

#: In the key of a record: the number of the instance that wrote it, where each has its own rows of a group.
INSTANCE = "_instance"

#: At low input rates each row costs a wake-up: batch rows for some hundredths of a second. The user's own options take
#: precedence.
GATHERING_WRITER = {"kafka.linger.ms": "50", "kafka.batch.size": "65536"}
#: A result may be one large row, as of collect_list.
WRITER = {**GATHERING_WRITER, "kafka.max.request.size": str(LARGEST_RECORD)}


@dataclass(frozen=True, slots=True)
class OutputWriter:
    """Writes the output of jobs on one task manager."""

    board: DialBoard
    dial: Callable[[str], str]  #: SQL that reads a dial there, by its key
    reflects: bool  #: whether SQL may call Java there
    #: options of Spark's Kafka sink for a topic, by the cluster that has it; passwords too
    kafka_of: Callable[[str], Mapping[str, str]] = field(repr=False)
    row_by_row: bool = False  #: whether plans there read dials for each row

    def writer(self, job: Job, rows: DataFrame, most: int | None = None) -> DataStreamWriter:
        """Return the writer of this job's output, to its streams or to its sink.

        Args:
            job: the instance.
            rows: its output.
            most: bytes of a row in Kafka, above which the query fails with a message that names the largest column.
                None: it is not measured; Kafka's own message does not say which.

        """
        if job.topics:
            return self._to_streams(job, rows, most)
        assert job.sink is not None

        def to_topic(counted: DataFrame, topic: str, partition: int | None) -> DataStreamWriter:
            return self._to_kafka(self._records(job, counted, topic, partition, most), topic)

        counted = rows.observe("out", F.count(F.lit(1)).alias("rows"))
        return job.sink.write(counted, Output(job.index, job.run, job.results, to_topic, job.table))

    def _records(self, job: Job, rows: DataFrame, topic: str, partition: int | None, most: int | None) -> DataFrame:
        """Return rows as records of a topic: their own columns, where they are those of a record, or as JSON."""
        if job.record:
            columns = columns_of_record([c for c in job.record if not (job.whole and c == "headers")], topic)
            return rows.select(*columns, *self._headers(job))
        to = [F.lit(topic).alias("topic"), *([] if partition is None else [F.lit(partition).alias("partition")])]
        made = job.sink.value(rows) if isinstance(job.sink, KafkaTopic) else None
        value = (self._value(rows.columns, most) if made is None else made).alias("value")
        return rows.select(value, *to, *_group_key(job), *self._headers(job))

    def _headers(self, job: Job) -> list[Column]:
        """Return the headers of a record that is a row of a whole result."""
        return [headers("headers" in job.record, self.reflects)] if job.whole else []

    def _to_streams(self, job: Job, rows: DataFrame, most: int | None) -> DataStreamWriter:
        rows = weighed(rows)
        accuracy = self.dial(self.board.accuracy(job.task))
        names = [c for c in rows.columns if c != WEIGHT]
        outlets = [
            Outlet(name, topic, partitions, key, self.dial(self.board.send(name)), accuracy, self._lent(job, name))
            for name, (topic, partitions, key) in zip(job.outlets, job.topics, strict=True)
        ]
        key = shedder.key_text(*(F.col(f"`{name}`") for name in job.shed_by)) if job.shed_by else None
        drawn = shedder.draw(rows, outlets, key, self._sampled(job), self.reflects)
        drawn = drawn.observe("out", *shedder.sent_counts(outlets))
        value = self._value(names, most)
        records = shedder.send(drawn, outlets, value, key, job.index)
        return self._to_kafka(records, job.topics[0][0]).option("includeHeaders", "true")

    def _lent(self, job: Job, stream: str) -> str | None:
        """Return SQL of what a partition of an outgoing stream lends; None where its rows stay together."""
        return lent_sql(self.board.lent(stream, "")) if stream in job.lends and self.row_by_row else None

    def _sampled(self, job: Job) -> str | None:
        """Read the accuracy at which the groups were made from which on the output is weighed."""
        return None if job.weighed_since is None else self.dial(self.board.accuracy(job.weighed_since))

    def _value(self, names: Sequence[str], most: int | None) -> Column:
        """Return a row as JSON; see `writer`."""
        columns = [F.col("`{}`".format(name.replace("`", "``"))) for name in names]
        value = F.to_json(F.struct(*columns), JSON_FORMAT)
        if most is None:
            return value
        sizes = F.array(
            *(
                F.struct(
                    F.octet_length(F.to_json(F.struct(column), JSON_FORMAT)).alias("bytes"), F.lit(name).alias("name")
                )
                for name, column in zip(names, columns, strict=True)
            )
        )
        largest, size = F.array_max(sizes), F.octet_length(value)
        told = F.concat(
            *(F.lit(TOO_LARGE), F.format_number(size, 0), F.lit(" bytes, of which column ")),
            *(largest["name"], F.lit(" has "), F.format_number(largest["bytes"], 0), F.lit(f", of at most {most:,}")),
        )
        return F.when(size > most, F.raise_error(told)).otherwise(value)

    def _to_kafka(self, records: DataFrame, topic: str) -> DataStreamWriter:
        """Write records to the cluster that has a topic. Each run of a query has its own producer.

        Queries of one JVM with equal options share a producer, even with stopped queries, and a batch ends only once
        its producer is flushed: rows that a stopped query had left for a deleted topic kept all queries from ending a
        batch until their delivery timeout, two minutes later. Kafka ignores options that it does not know.
        """
        own = {"kafka.qod.run": uuid.uuid4().hex}
        return records.writeStream.format("kafka").options(**{**WRITER, **self.kafka_of(topic), **own})


def rejects_options(kafka: Mapping[str, str]) -> str:
    """Return the options of the producer of rejects as JSON: those of all sinks in Kafka, as a malformed record may be
    as large as their rows."""
    options = {**WRITER, **kafka}
    prefix = "kafka."  # other options are Spark's
    return json.dumps({name[len(prefix) :]: value for name, value in options.items() if name.startswith(prefix)})


def _group_key(job: Job) -> list[Column]:
    """Return the key of a record in a Kafka sink, where rows replace earlier ones: its group as JSON. All rows of a
    group are then in one partition, in the order in which they were written."""
    if job.groups is None:
        return []
    columns = [F.col(f"`{name}`") for name in job.groups]
    columns += [F.lit(job.index + 1).alias(INSTANCE)] if job.apart else []
    return [(F.to_json(F.struct(*columns), JSON_FORMAT) if columns else F.lit("{}")).alias("key")]
