"""Build one task instance as a Spark plan: read, shed, recipe, shed, send.

Kafka records -> observe(read, kept) -> shedder -> rows -> recipe -> observe(out, sent) -> streams | sink
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from qod_magics.application.recipes.recipe import analysis_errors_unprinted, first_line, raise_unless_connection
from qod_magics.application.streams.sink import Output, Sink
from qod_magics.application.streams.stream import CORRUPT, RECORD_KEY, VALUE, Form, columns_of, form_of, rejects_of
from qod_magics.application.weights import WEIGHT, weighed
from qod_magics.errors import ApplicationError, nearest
from qod_magics.formats.format import Format
from qod_magics.kafka.properties import LARGEST_RECORD
from qod_magics.sources.registry import Sources, kind_of
from qod_magics.sources.source import Part, kind_and_place
from qod_magics.spark.plans import shedder
from qod_magics.spark.plans.dial import MOST_S, DialBoard, DialReading, read_sql, waiting_sql
from qod_magics.spark.plans.inlining import runs_python, streaming_plan_of
from qod_magics.spark.plans.parsing import (
    JSON,
    JSON_FORMAT,
    REJECTS_CONF,
    STREAMED,
    columns_read,
    marked,
    parsed,
    parsed_input,
    to_reject,
    without_header,
)
from qod_magics.spark.plans.records import columns_of_record, headers
from qod_magics.spark.plans.shedder import Outlet, SheddingSession, taken_name
from qod_magics.spark.plans.state import keeps_state, state_columns
from qod_magics.spark.plans.timing import AGE_WHEN_READ, WHEN_WRITTEN, Timing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter
    from pyspark.sql.types import StructType

    from qod_magics.application.streams.stream import Malformed, TimeUnit, TopicInput
    from qod_magics.application.tasks import TaskSpec
    from qod_magics.sources.source import Position

#: Why groups that an operator with state reads are aggregated in micro-batches.
GROUPS_ONCE = "an operator with state reads its groups: each is emitted once, when the watermark has passed it"

#: How the message begins with which a row ends a query that is larger than a record may be.
TOO_LARGE = "a row is too large for Kafka: "

#: In the key of a record: the number of the instance that wrote it, where each has its own rows of a group.
INSTANCE = "_instance"

#: At low input rates each row costs a wake-up: batch rows for some hundredths of a second. The user's own options take
#: precedence.
GATHERING_WRITER = {"kafka.linger.ms": "50", "kafka.batch.size": "65536"}
#: A result may be one large row, as of collect_list.
WRITER = {**GATHERING_WRITER, "kafka.max.request.size": str(LARGEST_RECORD)}

#: Columns of event times with a watermark, each with its delay in milliseconds.
Watermarks = tuple[tuple[str, int], ...]
#: Where Spark keeps that delay in a column's metadata.
DELAY = "spark.watermarkDelayMs"

#: The rows of an array; one of nulls where the array is null.
_EACH = f"inline(coalesce({VALUE}, array(null)))"

Build = Callable[["SparkSession", Mapping[str, "DataFrame"]], AbstractContextManager["DataFrame"]]


@dataclass(frozen=True, slots=True)
class Feed:
    """What one instance reads from one topic."""

    name: str  #: in books and dials: the task for a source, "from>to" for a stream
    inputs: tuple[str, ...]  #: the names by which the recipe knows it
    topic: str
    partitions: tuple[int, ...]
    starting: Mapping[int, int]  #: first offset of a new checkpoint, by partition
    schema: str | StructType | None  #: of the columns parsed from values; None: raw records
    stream: bool  #: whether another task of ours writes it
    values: Format = JSON  #: how values are parsed; not of streams
    form: Form = Form.ROW  #: what a JSON value is; not of streams
    malformed: Malformed = "drop"  #: values that are not of the schema; not of streams
    time_unit: TimeUnit = "s"  #: of numbers in its columns of times; not of streams
    record: tuple[str, ...] = ()  #: columns "_key" and so on, taken of the record; not of streams
    #: columns by whose values rows are shed together; those of a stream: by the record's key
    shed_by: tuple[str, ...] = ()
    weighed_since: str | None = None  #: the stream of groups from which on `_weight` counts; None: from the input on
    watermarks: Watermarks = ()  #: of a stream, declared upstream


def source_feed(name: str, head: str, source: TopicInput, partitions: tuple[int, ...], starting: Position) -> Feed:
    """Return what an instance reads of a source, for the stream `head`."""
    return Feed(
        name,
        (head,),
        source.topic,
        partitions,
        starting,
        source.columns,
        stream=False,
        values=source.values,
        form=source.form,
        malformed=source.effective_malformed,
        time_unit=source.time_unit,
        record=source.record_columns,
        shed_by=source.shed_by,
    )


def feed_of(spec: TaskSpec, head: str) -> str:
    """Return the name of the feed from a head's topic: the task's id, or "head>task" if the task has several heads."""
    return spec.id if len(spec.heads) == 1 else f"{head}>{spec.id}"


def feeds_of(spec: TaskSpec) -> list[str]:
    """Return the names of all feeds of a task: of topics, then of streams."""
    return [*(feed_of(spec, head) for head in spec.topics), *(f"{upstream}>{spec.id}" for upstream in spec.upstream)]


def reader(feed: str) -> str:
    """Return the task that reads the feed of this name."""
    return feed.rpartition(">")[2]


@dataclass(frozen=True, slots=True)
class Job:
    """All that is needed to build one instance on any task manager, at any time."""

    task: str
    instance: str
    index: int  #: 0 for the first instance of the task
    feeds: tuple[Feed, ...]  #: (): the recipe reads a source of its own
    build: Build
    outlets: tuple[str, ...]  #: names "from>to" of outgoing streams, in the order of `topics`
    topics: tuple[tuple[str, int, str | None], ...]  #: of the outgoing streams: topic, partitions, key
    sink: Sink | None  #: of a query
    results: str | None  #: the topic behind a memory sink; instance i writes its partition i
    trigger_s: float | None
    max_latency_s: float | None = None  #: how old a row may be when it is in the result, seconds
    aggregates: bool = False  #: whether SQL in its recipes does: its plan can't be explained
    shed_by: tuple[str, ...] = ()  #: columns of its output by whose values the outgoing streams are shed together
    weighed_since: str | None = None  #: the same of its output
    chained: bool = False  #: whether an operator with state reads its groups, here or downstream
    run: str = ""  #: names the directory of a file sink, one per checkpoint
    groups: tuple[str, ...] | None = None  #: columns by which a row in a Kafka sink replaces an earlier one, if known
    apart: bool = False  #: whether each instance has its own rows of a group
    record: tuple[str, ...] = ()  #: the columns of a record in a Kafka sink; (): a row is JSON in its value
    whole: str = ""  #: what needs complete mode, "ORDER BY and LIMIT"; "": nothing does

    @property
    def only_microbatch(self) -> str | None:
        """Return why real-time mode is impossible, or None."""
        if self.chained:
            return GROUPS_ONCE
        refused = next(filter(None, (kind_of(feed.topic).realtime for feed in self.feeds)), None)
        if refused:
            return refused
        if self.whole:
            return f"{self.whole} over groups: each batch writes the whole result"
        if self.sink is not None and not self.sink.realtime:
            return f"real-time mode does not write {self.sink}"
        return None

    @property
    def reads_as(self) -> str:
        """A name for what reads its sources: one for each checkpoint."""
        return f"{self.instance}-{self.run}"

    @property
    def batches_every_s(self) -> float:
        """Seconds between two of its micro-batches, at least: as declared, or as its sources have new rows."""
        return max((self.trigger_s or 0.0, *(kind_of(feed.topic).every_s for feed in self.feeds)))

    @property
    def writes_row_by_row(self) -> bool:
        """Return whether its output is written while it is computed, not when its batch is over."""
        return bool(self.topics) or (self.sink is not None and self.sink.row_by_row)


@dataclass(frozen=True, slots=True)
class Read:
    """The columns read from a topic."""

    schema: StructType  #: of all columns
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """Facts from a job's plan."""

    keeps_state: bool
    read: Mapping[str, Read] = field(default_factory=dict)  #: by topic, if only some columns are read
    runs_python: bool = False  #: whether the plan has functions in Python, or the sink is one
    schemas: Mapping[str, StructType] = field(default_factory=dict)  #: of the values of topics with one feed
    state_columns: frozenset[str] = frozenset()  #: of its only input, in the keys of all its state


def watermarks_of(schema: StructType) -> Watermarks:
    """Return the watermarks on times in such rows. Those on windows are left out: a window is sent once it is
    complete."""
    times = [field for field in schema.fields if field.dataType.typeName() == "timestamp"]
    found = ((field.name, (field.metadata or {}).get(DELAY)) for field in times)
    return tuple((name, int(delay)) for name, delay in found if delay is not None)


def schema_of_stream(schema: StructType) -> StructType:
    """Return the schema of such rows on a stream: `_weight` is in a record header."""
    from pyspark.sql.types import StructType

    return StructType([field for field in schema.fields if field.name != WEIGHT])


def same_columns(one: StructType | None, other: StructType | None, ordered: bool = True) -> bool:
    """Return whether rows of the one can be read as rows of the other: same names and types, if `ordered` in the same
    order. Nullability is ignored: it depends on the rows' path, as all columns read back from JSON are nullable."""
    if one is None or other is None:
        return False
    columns = names_and_types(one), names_and_types(other)
    return columns[0] == columns[1] if ordered else sorted(columns[0]) == sorted(columns[1])


def names_and_types(schema: StructType) -> tuple[tuple[str, str], ...]:
    """Return the names and types of its columns, in their order, without nullability."""
    return tuple((field.name, field.dataType.simpleString()) for field in schema.fields)


@dataclass(frozen=True, slots=True)
class Workshop:
    """Builds jobs on one task manager."""

    spark: SparkSession
    board: DialBoard
    reading: DialReading
    dials: Mapping[str, float]  #: values now, for plans that hold them as literals
    kafka: Mapping[str, str] = field(repr=False)  #: options of Spark's Kafka source and sink; passwords too
    sheds_on_read: bool = False  #: whether it has a Kafka source whose reader drops rows
    sources: Sources | None = None  #: None: nothing is read

    def dial(self, key: str) -> str:
        """SQL that reads this dial, a fraction of 1, on this task manager."""
        return read_sql(key, self.reading, self.dials.get(key, 1.0))

    @contextmanager
    def result(
        self,
        job: Job,
        max_offsets: int | None = None,
        read: Mapping[str, Read] | None = None,
        timing: Timing = AGE_WHEN_READ,
        checks: bool = False,
    ) -> Iterator[DataFrame]:
        """Build the recipe's output over this job's feeds, with shedders and counts. Start the query within the
        context: an SQL recipe's views exist only there.

        Args:
            job: the instance to build.
            max_offsets: maximum records of a topic per micro-batch; None: real-time mode.
            read: the columns to parse, by topic, where those are not all; others are null.
            timing: what to observe of the times of records.
            checks: whether rows are searched for missing columns and implausible times; not in plans that are only
                inspected, in which all columns would seem to be read.

        """
        spark: Any = self.spark
        inputs: dict[str, DataFrame] = {}
        timed: Timing | None = timing
        if timing is AGE_WHEN_READ and not self.reading.reflects:  # SQL can't read the clock
            timed = None if max_offsets is None else WHEN_WRITTEN
        for feed in job.feeds:
            # rows that are shed together by a key are parsed for it first, and plans that are inspected are Spark's own
            settable = self.sheds_on_read and self.reading.reflects
            on_read = settable and checks and not feed.stream and not feed.shed_by and kind_of(feed.topic).sheds_on_read
            rows = self._rows(job, feed, max_offsets, (read or {}).get(feed.topic), timed, checks, on_read)
            inputs.update(dict.fromkeys(feed.inputs, rows))
        if not job.feeds:
            spark = SheddingSession(self.spark, self.dial(self.board.source(job.task)), self.reading.reflects)
        with job.build(spark, inputs) as rows:
            yield rows

    def plan_facts(self, job: Job) -> PlanFacts:
        """Return what its plan says; only what follows from the job itself if Spark can't explain it."""
        sink_runs_python = job.sink is not None and job.sink.runs_python
        times = Counter(feed.topic for feed in job.feeds)  # a plan does not tell feeds of one topic apart
        schemas = {
            feed.topic: self._struct(feed.schema)
            for feed in job.feeds
            if feed.schema is not None and times[feed.topic] == 1 and kind_of(feed.topic).payload != "columns"
        }
        with self.result(job) as rows:
            try:
                plan = streaming_plan_of(rows.select(F.struct("*")))
            except Exception as error:
                if type(error).__name__ != "AnalysisException":
                    raise
                return PlanFacts(keeps_state=job.aggregates, runs_python=sink_runs_python, schemas=schemas)
        of_streams = {feed.topic for feed in job.feeds if feed.stream}
        columns = {
            f"shed.{topic}": schema.names if topic in of_streams else marked(schema).names
            for topic, schema in schemas.items()
        }
        found = {name.removeprefix("shed."): names for name, names in columns_read(plan, columns).items()}
        read = {
            topic: Read(schemas[topic], names)
            for topic, names in found.items()
            if CORRUPT not in names  # it depends on all columns
        }
        return PlanFacts(
            keeps_state=job.aggregates or keeps_state(plan),
            read=read,
            runs_python=sink_runs_python or runs_python(plan),
            schemas=schemas,
            state_columns=state_columns(plan),
        )

    def _struct(self, schema: str | StructType) -> StructType:
        if not isinstance(schema, str):
            return schema
        row: Any = self.spark.range(0).select(F.from_json(F.lit("{}"), schema).alias("row")).schema["row"].dataType
        parsed_schema: StructType = row
        return parsed_schema

    def check_schema(self, ddl: str, shed_by: Sequence[str] = (), record: Sequence[str] = ()) -> None:
        """Raise ApplicationError, one line, for DDL that Spark can't read, that has reserved column names or those
        taken of the `record`, or that lacks a column to shed by."""
        try:
            with analysis_errors_unprinted():
                row = F.from_json(F.lit("{}"), columns_of(ddl)).alias("row")
                parsed = self.spark.range(0).select(row).select("row.*")
                names = (parsed.select(F.expr(_EACH)) if form_of(ddl) is Form.ROWS else parsed).columns
        except Exception as error:
            raise_unless_connection(error)
            raise ApplicationError(f"the schema {ddl!r} can't be read: {first_line(error)}") from error
        taken = WEIGHT if WEIGHT in map(str.lower, names) else taken_name(names)
        if taken is not None:
            raise ApplicationError(
                f"the schema {ddl!r} has a column {taken!r}, which load shedding reserves: leave it out, or read "
                "the record as it is (no --schema) and parse it under another name",
                name=taken,
                rule="reserved column",
            )
        twice = next((name for name in names if name.lower() in record), None)
        if twice is not None:
            raise ApplicationError(
                f"--with {twice[1:]} must make a column that the schema does not have, got {twice!r}; leave one out",
                name=twice,
                option="--with",
                rule="unique",
            )
        for column in shed_by:
            if column not in names and tuple(shed_by) != (RECORD_KEY,):
                raise ApplicationError(
                    f"--shed-by {column}: the schema has no such column.{nearest(column, names)} It has "
                    f"{', '.join(names)}"
                )

    def check_rejects(self, malformed: Malformed) -> None:
        """Raise ApplicationError where this task manager can't send malformed records to a topic."""
        if not self.sheds_on_read or not self.reading.reflects:
            raise ApplicationError(
                f"--malformed must be drop, keep or fail where the session starts no servers, got {malformed}",
                option="--malformed",
                rule="local",
            )

    def check_format(self, values: Format, ddl: str) -> None:
        """Raise ApplicationError, one line, where this task manager can't parse values of a format to these columns."""
        with analysis_errors_unprinted():
            try:
                values.check(self.spark, ddl)
            except ApplicationError:
                raise
            except Exception as error:
                raise_unless_connection(error)
                raise ApplicationError(
                    f"the schema {ddl!r} can't be read from {values.label}: {first_line(error)}"
                ) from error

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
            return self._to_kafka(self._records(job, counted, topic, partition, most))

        counted = rows.observe("out", F.count(F.lit(1)).alias("rows"))
        return job.sink.write(counted, Output(job.index, job.run, job.results, to_topic))

    def _records(self, job: Job, rows: DataFrame, topic: str, partition: int | None, most: int | None) -> DataFrame:
        """Rows as records of a topic: their own columns, where they are those of a record, or as JSON."""
        if job.record:
            columns = columns_of_record([c for c in job.record if not (job.whole and c == "headers")], topic)
            return rows.select(*columns, *self._headers(job))
        to = [F.lit(topic).alias("topic"), *([] if partition is None else [F.lit(partition).alias("partition")])]
        value = self._value(rows.columns, most).alias("value")
        return rows.select(value, *to, *_group_key(job), *self._headers(job))

    def _rows(
        self,
        job: Job,
        feed: Feed,
        max_offsets: int | None,
        read: Read | None,
        timing: Timing | None,
        checks: bool,
        on_read: bool,
    ) -> DataFrame:
        paces = max_offsets is not None and self.reading.reflects and feed is job.feeds[0]
        part = Part(
            feed.topic,
            feed.partitions,
            feed.starting,
            run=job.reads_as if checks else "",
            schema=feed.schema,
            most=max_offsets,
            headers=feed.stream or feed.schema is None or "_headers" in feed.record,
            keep=self.board.source(job.task) if on_read else None,
            pace=self.board.pace(job.instance) if on_read and paces else None,
            due=self.board.due(job.instance) if on_read and paces and not job.batches_every_s else None,
        )
        assert self.sources is not None
        source, records = self.sources.of(feed.topic), self.sources.read(self.spark, part)
        if paces and not on_read:
            records = records.where(waiting_sql(self.board.pace(job.instance), MOST_S))
        kept = self._shed(records, job, feed, timing, on_read)
        return (
            kept
            if feed.schema is None or source.payload == "columns"
            else self.parsed(kept, feed, job.feeds.index(feed), read, checks)
        )

    def _shed(self, records: DataFrame, job: Job, feed: Feed, timing: Timing | None, on_read: bool) -> DataFrame:
        """Return the records that the shedder of this feed keeps, with `_weight`."""
        assert self.sources is not None
        counted_as, key = f"shed.{feed.topic}", self._key(feed)
        if feed.stream:
            dial = self.dial(self.board.accept(job.task))
            return shedder.shed_arrivals(records, dial, counted_as, key, timing, self._sampled(feed.weighed_since))
        if on_read:
            return shedder.shed_on_read(records, counted_as, timing or AGE_WHEN_READ)
        source, dial = self.sources.of(feed.topic), self.dial(self.board.source(job.task))
        noted = source.noted(kind_and_place(feed.topic)[1])
        kept = shedder.shed_source(
            records, dial, counted_as, key=key, timing=timing, identity=source.identity, noted=noted
        )
        return kept.drop(*(name for name in records.columns if taken_name([name])))

    def parsed(self, kept: DataFrame, feed: Feed, number: int, read: Read | None, checks: bool) -> DataFrame:
        """Return the rows of these records, with `_weight`; `number` is the feed's. Plans that are only inspected parse
        JSON."""
        assert self.sources is not None
        assert feed.schema is not None
        source = self.sources.of(feed.topic)
        schema, columns = (feed.schema, None) if read is None else (read.schema, read.columns)
        if feed.stream:
            rows = parsed(kept, schema, STREAMED, WEIGHT, read=columns)
            for name, delay_ms in feed.watermarks:
                rows = rows.withWatermark(name, f"{delay_ms} milliseconds")
            return rows
        counted_as = f"malformed.{number}.{feed.topic}"  # a topic may have several schemas
        rejects = checks and rejects_of(feed.malformed) is not None
        kept = to_reject(kept) if rejects else kept
        kept = kept if feed.form is Form.ROW else kept.withColumn("value", _text(feed.form))
        kept = kept.withColumns({name: F.col(name[1:]) for name in feed.record}) if feed.record else kept
        checked, form = (self._struct(schema), feed.values) if checks else (None, JSON)
        if checked is not None and source.payload == "csv":
            kept = without_header(kept, checked.names)
        schema = schema if checked is None else checked
        if rejects:
            self.check_rejects(feed.malformed)
            self.spark.conf.set(REJECTS_CONF, rejects_options(self.kafka))
        rows = parsed_input(
            kept,
            schema,
            feed.malformed if checks or rejects_of(feed.malformed) is None else "drop",
            counted_as,
            *feed.record,
            read=columns,
            checked=checked,
            unit=feed.time_unit,
            form=form,
            topic=feed.topic,
        )
        return rows.select(F.expr(_EACH), *feed.record, WEIGHT) if feed.form is Form.ROWS else rows

    def _sampled(self, weighed_since: str | None) -> str | None:
        """Reads the accuracy at which the groups were made from which on rows are weighed."""
        return None if weighed_since is None else self.dial(self.board.accuracy(weighed_since))

    def _key(self, feed: Feed) -> Column | None:
        """Return the key by which the records of this feed are shed, as text; None: each by itself."""
        if not feed.shed_by:
            return None
        payload = kind_of(feed.topic).payload
        if payload == "columns":
            return shedder.key_text(*(F.col(name) for name in feed.shed_by))
        if feed.stream or feed.schema is None:
            return shedder.key_text(F.col(RECORD_KEY))
        schema = self._struct(feed.schema)
        if feed.shed_by == (RECORD_KEY,) and RECORD_KEY not in schema.names:
            return shedder.key_text(F.col(RECORD_KEY))
        if feed.form is Form.ROW:
            row = feed.values.fields(schema, feed.shed_by)  # of all values, but only these columns
        else:
            row = F.from_json(_text(feed.form), type(schema)([schema[name] for name in feed.shed_by]))
        return shedder.key_text(*(row[name] for name in feed.shed_by))

    def _value(self, names: Sequence[str], most: int | None) -> Column:
        """A row as JSON; see `writer`."""
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

    def _to_streams(self, job: Job, rows: DataFrame, most: int | None) -> DataStreamWriter:
        rows = weighed(rows)
        accuracy = self.dial(self.board.accuracy(job.task))
        names = [c for c in rows.columns if c != WEIGHT]
        outlets = [
            Outlet(name, topic, partitions, key, self.dial(self.board.send(name)), accuracy)
            for name, (topic, partitions, key) in zip(job.outlets, job.topics, strict=True)
        ]
        key = shedder.key_text(*(F.col(f"`{name}`") for name in job.shed_by)) if job.shed_by else None
        drawn = shedder.draw(rows, outlets, key, self._sampled(job.weighed_since), self.reading.reflects)
        drawn = drawn.observe("out", *shedder.sent_counts(outlets))
        value = self._value(names, most)
        records = shedder.send(drawn, outlets, value, key)
        return self._to_kafka(records).option("includeHeaders", "true")

    def _headers(self, job: Job) -> list[Column]:
        """Return the headers of a record that is a row of a whole result."""
        return [headers("headers" in job.record, self.reading.reflects)] if job.whole else []

    def _to_kafka(self, records: DataFrame) -> DataStreamWriter:
        """Write records to Kafka. Each run of a query has its own producer.

        Queries of one JVM with equal options share a producer, even with stopped queries, and a batch ends only once
        its producer is flushed: rows that a stopped query had left for a deleted topic kept all queries from ending a
        batch until their delivery timeout, two minutes later. Kafka ignores options that it does not know.
        """
        own = {"kafka.qod.run": uuid.uuid4().hex}
        return records.writeStream.format("kafka").options(**{**WRITER, **self.kafka, **own})


def rejects_options(kafka: Mapping[str, str]) -> str:
    """Return the options of the producer of rejects as JSON: those of all sinks in Kafka, as a malformed record may be
    as large as their rows."""
    return json.dumps({name.removeprefix("kafka."): value for name, value in {**WRITER, **kafka}.items()})


def _text(form: Form) -> Column:
    """Return the JSON object that is parsed: a record's value or, where that is no row, an object with it as a
    field."""
    if form is Form.ROW:
        return F.col("value").cast("string")
    text = "CAST(value AS STRING)"
    within = f"""concat('{{"{VALUE}":', {text}, '}}')"""
    return F.expr(f"CASE WHEN trim({text}) IN ('', 'null') THEN {text} ELSE {within} END")


def _group_key(job: Job) -> list[Column]:
    """Return the key of a record in a Kafka sink, where rows replace earlier ones: its group as JSON. All rows of a
    group are then in one partition, in the order in which they were written."""
    if job.groups is None:
        return []
    columns = [F.col(f"`{name}`") for name in job.groups]
    columns += [F.lit(job.index + 1).alias(INSTANCE)] if job.apart else []
    return [(F.to_json(F.struct(*columns), JSON_FORMAT) if columns else F.lit("{}")).alias("key")]
