"""What is computed of a query again, and what it has written: a batch over the offsets of its topics, and its sink."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from qod_magics.application import graph
from qod_magics.application.merging import merged_groups
from qod_magics.application.streams.sink import Files, KafkaTopic
from qod_magics.application.tasks import TaskSpec
from qod_magics.errors import ApplicationError, TaskManagerError, UsageProblem
from qod_magics.kafka.reading import beginning_offsets, offsets_at
from qod_magics.results.exact import Span, Stretch, stretch
from qod_magics.results.result import Column, Kind, Row, columns_of
from qod_magics.sources.source import is_topic
from qod_magics.spark.plans.batch import Reading, run
from qod_magics.spark.plans.job import DELAY, reader, source_feed
from qod_magics.spark.plans.parsing import JSON_FORMAT
from qod_magics.spark.plans.records import record_form

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from qod_magics.application.streams.stream import StreamDeclaration
    from qod_magics.session.interface import SessionInterface
    from qod_magics.spark.cluster.books import Account
    from qod_magics.spark.cluster.deployment import Deployment
    from qod_magics.spark.servers.task_manager import TaskManager

#: Groups of a span that are compared.
MOST_GROUPS = 200_000
#: How long the broker, or a running query, is waited for, seconds.
ANSWER_S = 10.0
#: How long Spark takes to tell the CPU of stages that have ended, seconds.
_TOLD_S = 3.0


@dataclass(frozen=True, slots=True)
class Query:
    """What is run once more: a query and the streams that lead to it."""

    name: str
    spec: TaskSpec  #: all of them as one task
    schema: StructType  #: of its rows
    columns: tuple[Column, ...]
    keys: tuple[str, ...]  #: of its groups
    by: Column  #: its windows, or the time of a group
    delay_s: float | None  #: for which its watermark waits; None: it has none

    @property
    def where(self) -> str:
        """Return SQL of a group's time, microseconds since 1970: begin and end of its window."""
        name = "`{}`".format(self.by.name.replace("`", "``"))
        parts = (f"{name}.start", f"{name}.end") if self.by.kind is Kind.WINDOW else (name, name)
        start, end = (f"unix_micros(CAST({part} AS TIMESTAMP))" for part in parts)
        return f"{start} >= {{}} AND {end} <= {{}}"


# --- What is run ------------------------------------------------------------------------------------------------------


def query_of(session: SessionInterface, name: str) -> Query:
    """Return what is run once more. Raises ApplicationError, one line: the query has no windows, or reads what is read
    once only; TaskManagerError: it does not run yet."""
    application, deployment = session.application, session.runtime.deployment
    application[name]
    if name not in application.queries:
        raise ApplicationError(f"{name} must be a query, got a stream that others read", name=name, rule="query")
    running = {stream.name: stream for spec in deployment.specs.values() for stream in spec.streams}
    schema = deployment.checked.schemas.get(name)
    of = graph.ancestors(application.upstreams, [name])
    if schema is None or not running.keys() >= of:
        raise TaskManagerError(f"{name} does not run yet.", name=name)
    streams = tuple(running[each] for each in graph.ordered(application.upstreams) if each in of)
    for stream in streams:
        _check_source(stream)
    whole, spec = deployment.checked.whole.get(name), deployment.specs[name]
    keys = deployment.result_keys(name, session.runtime.workshop())
    columns = columns_of(schema.jsonValue())
    by = next(
        (c for kind in (Kind.WINDOW, Kind.TIME) for c in columns if c.kind is kind and c.name in (keys or ())), None
    )
    if whole:
        raise ApplicationError(
            f"{name} must write its groups by themselves, got {whole} over all of them; leave that out, and order the "
            "rows of qod.exact(...).frame",
            name=name,
            rule="groups",
        )
    if keys is None or by is None:
        has = (
            "single rows" if keys is None else f"groups by {', '.join(keys) or 'nothing'}, which go on since its begin"
        )
        raise ApplicationError(
            f"{name} must have groups by windows among its columns, got {has}; its recipe over a batch of its topic "
            "(spark.read) gives them exactly, and a query by window(...) can be compared",
            name=name,
            rule="windows",
        )
    if deployment.apart(spec, keys) and name not in deployment.checked.merges:
        key = next((each for each in keys if each != by.name), "")
        raise ApplicationError(
            f"{name} must have each group in one row, got one of each instance; declare it as one instance"
            + (f", or with --key {key}" if key else ""),
            name=name,
            rule="one row",
        )
    delay = next((field.metadata or {} for field in schema.fields if field.name == by.name), {}).get(DELAY)
    delay_s = None if delay is None else float(delay) / 1e3
    return Query(name, TaskSpec(streams, is_query=True), schema, columns, keys, by, delay_s)


def _check_source(stream: StreamDeclaration) -> None:
    if stream.topic is not None and stream.topic.is_several:
        read = stream.topic.pattern or stream.topic.topic
        raise ApplicationError(
            f"exact must be of streams that read one topic each, and {stream.name} reads {read}; declare a stream for "
            "each, and one over them",
            name=stream.name,
            rule="one topic",
        )
    if not stream.upstream and (stream.topic is None or not is_topic(stream.topic.topic)):
        what = "a source within its recipe" if stream.topic is None else stream.topic.topic
        raise ApplicationError(
            f"exact needs topics of Kafka, whose offsets can be read again, and {stream.name} reads {what}",
            name=stream.name,
            rule="topic",
        )


def idlest(session: SessionInterface) -> TaskManager:
    """Return the task manager whose cores have the most left."""
    found = session.runtime.cluster.answering() or [session.runtime.cluster.home()]
    return min(found, key=lambda manager: manager.busy(session.runtime.period_s) or 0.0)


def stretch_of(
    session: SessionInterface, spec: TaskSpec, stream: StreamDeclaration, span: Span, margin_s: float
) -> Stretch:
    """Return which offsets are read of the topic of a stream."""
    assert stream.topic is not None
    topic = stream.topic.topic

    def at(moment: datetime, more_s: float) -> Mapping[int, int]:
        ms = int((moment.timestamp() + more_s) * 1000)
        return offsets_at(session.kafka, [topic], ms, timeout_s=ANSWER_S)[topic]

    oldest = beginning_offsets(session.kafka, [topic], timeout_s=ANSWER_S)[topic]
    begun = _begun(session.runtime.deployment, spec, topic)
    return stretch(at(span.start, -margin_s), at(span.end, margin_s), oldest, begun)


def accounts_of(deployment: Deployment, spec: TaskSpec, topic: str) -> list[Account]:
    """Return the accounts of a topic that the query reads: its own, or those of the tasks before it."""
    found = {
        reader(feed): account
        for feed, account in deployment.accounts.items()
        if account.topic == topic and set(deployment.specs[reader(feed)].members) & set(spec.members)
    }
    return [found[spec.id]] if spec.id in found else list(found.values())


def _begun(deployment: Deployment, spec: TaskSpec, topic: str) -> dict[int, int]:
    """Return the first offsets of a topic that the query has read."""
    found: dict[int, int] = {}
    for account in accounts_of(deployment, spec, topic):
        for partition, first in account.first.items():
            found[partition] = min(first, found.get(partition, first))
    return found


def recomputed(
    session: SessionInterface,
    manager: TaskManager,
    spark: SparkSession,
    query: Query,
    stretches: Mapping[str, Stretch],
    span: Span,
    cpu: float,
) -> tuple[list[str], int | None, float | None]:
    """Return the groups as JSON, how many records were read, if Spark tells, and the CPU time of that, seconds."""
    deployment, tag = session.runtime.deployment, f"exact-{uuid.uuid4().hex}"
    readings = {
        stream.name: Reading(
            source_feed(stream.name, stream.name, stream.topic, tuple(sorted(part.end)), part.start), part.end
        )
        for stream in query.spec.streams
        if stream.topic is not None and (part := stretches[stream.name])
    }
    workshop = replace(session.runtime.workshop(manager), spark=spark)
    with suppress(Exception):  # a session that knows no tags: its CPU is not known
        spark.addTag(tag)
    found = run(
        workshop,
        query.spec,
        readings,
        deployment.checked.weights,
        query.where.format(*_micros(span)),
        share=cpu,
        key=f"qod.{session.id}.{tag}",
        most=MOST_GROUPS,
        python=_runs_python(session, query),
    )
    if found.too_many:
        raise _too_many()
    deadline, cpu_s = time.monotonic() + _TOLD_S, None
    while not cpu_s and time.monotonic() < deadline:
        time.sleep(0.3)  # its listeners are told a moment later
        cpu_s = manager.tagged_cpu(tag)
    return list(found.texts), found.read, cpu_s


def _runs_python(session: SessionInterface, query: Query) -> bool:
    """Return whether a plan of a running task with a stream of the query has functions in Python, as far as known."""
    instances = session.runtime.instances.values()
    running = session.runtime.deployment.specs
    return any(
        each.facts is not None and each.facts.runs_python
        for each in instances
        if each.job.task in running and set(running[each.job.task].members) & set(query.spec.members)
    )


# --- What was written -------------------------------------------------------------------------------------------------


def written_by(session: SessionInterface, query: Query, span: Span, spark: SparkSession) -> list[Row] | None:
    """Return the rows that the query has written of the span, the newest of each group; None where its sink can't be
    read."""
    from pyspark.sql import functions as F

    sink, deployment = session.application[query.name].effective_sink, session.runtime.deployment
    if isinstance(sink, Files) and sink.kind in ("parquet", "orc", "json"):
        return _in_files(session, query, sink, span, spark)
    schema, where = query.schema, sink.where(deployment.results.get(query.name), deployment.sinks.get(query.name))
    if where is None or (isinstance(sink, KafkaTopic) and record_form(schema, sink).columns):
        return None
    records = (
        spark.read.format("kafka")
        .options(**deployment.kafka_of(where.topic).spark_options())
        .option("subscribe", where.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    for partition, first in where.starting.items():
        records = records.where(f"partition <> {partition} OR offset >= {first}")
    text = F.col("value").cast("string")
    rows = records.select(
        F.from_json(text, schema, JSON_FORMAT).alias("_row"),
        text.alias("_text"),
        F.struct("timestamp", "offset").alias("_place"),
        F.col("partition").alias("_part"),
    )
    within = rows.select("_text", "_place", "_part", "_row.*").where(query.where.format(*_micros(span)))
    merges = deployment.checked.merges.get(query.name)
    parts = [] if merges is None else ["_part"]  # instance i writes partition i
    newest = within.groupBy(*_columns(query.keys), *parts).agg(F.max_by("_text", "_place").alias("_text"))
    found = _collected(newest.select("_text"))
    return found if merges is None else merged_groups(found, query.keys, merges)


def _in_files(session: SessionInterface, query: Query, sink: Files, span: Span, spark: SparkSession) -> list[Row]:
    """Return the rows of this session's runs."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    columns = StructType([*query.schema.fields, StructField("run", StringType())])
    files = spark.read.format(sink.kind).schema(columns).load(sink.path)
    ours = files.where(F.col("run").startswith(f"{session.runtime.deployment.session}-"))
    rows = ours.where(query.where.format(*_micros(span))).select(
        F.to_json(F.struct(*_columns(query.schema.names)), JSON_FORMAT).alias("value")
    )
    return _collected(rows)


def _collected(texts: DataFrame) -> list[Row]:
    """Return the rows of JSON in the only column. Raises UsageProblem: there are too many."""
    found = [json.loads(row[0]) for row in texts.limit(MOST_GROUPS + 1).collect()]
    if len(found) > MOST_GROUPS:
        raise _too_many()
    return found


def _too_many() -> UsageProblem:
    return UsageProblem(
        f"the span must have at most {MOST_GROUPS:,} groups, got more; take a later --from or an earlier --to",
        option="--to",
        rule="size",
    )


def _columns(names: Iterable[str]) -> list[SparkColumn]:
    from pyspark.sql import functions as F

    return [F.col("`{}`".format(name.replace("`", "``"))) for name in names]


def _micros(span: Span) -> tuple[int, int]:
    """Return begin and end, microseconds since 1970."""
    return round(span.start.timestamp() * 1e6), round(span.end.timestamp() * 1e6)
