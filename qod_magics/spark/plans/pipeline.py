"""Build one task instance as a Spark plan: read, shed, recipe, shed, send.

Kafka records -> observe(read, kept) -> shedder -> rows -> recipe -> observe(out, sent) -> streams | sink
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from qod_magics.application.recipes.building import analysis_errors_unprinted, first_line, raise_unless_connection
from qod_magics.application.streams.topic_input import CORRUPT, RECORD_KEY, VALUE, Form, columns_of, form_of, rejects_of
from qod_magics.application.weights import WEIGHT
from qod_magics.errors import ApplicationError, nearest
from qod_magics.formats.format import Format
from qod_magics.formats.json_values import Json
from qod_magics.sources.registry import Sources, kind_of
from qod_magics.sources.source import Part, kind_and_place
from qod_magics.spark.plans import shedder
from qod_magics.spark.plans.dial import DialBoard, DialReading, read_sql, waiting_sql
from qod_magics.spark.plans.inlining import runs_python, streaming_plan_of
from qod_magics.spark.plans.job import Feed, Job, PlanFacts, Read
from qod_magics.spark.plans.parsing import (
    JSON,
    REJECTS_CONF,
    STREAMED,
    columns_read,
    marked,
    parsed,
    parsed_input,
    to_reject,
    without_header,
)
from qod_magics.spark.plans.plan_text import lacks_operators
from qod_magics.spark.plans.shedder import SheddingSession, taken_name
from qod_magics.spark.plans.state import keeps_state, state_columns
from qod_magics.spark.plans.timing import AGE_WHEN_READ, WHEN_WRITTEN, Timing
from qod_magics.spark.plans.writing import OutputWriter, rejects_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter
    from pyspark.sql.types import StructType

    from qod_magics.application.streams.topic_input import Malformed

#: The rows of an array; one of nulls where the array is null.
_EACH = f"inline(coalesce({VALUE}, array(null)))"


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

    def kafka_of(self, topic: str) -> Mapping[str, str]:
        """Return the options for the cluster that has a topic; those of the broker may be of another one."""
        context = None if self.sources is None else self.sources.context
        return self.kafka if context is None or context.users is None else context.of(topic).spark_options()

    def dial(self, key: str) -> str:
        """Return SQL that reads this dial, a fraction of 1, on this task manager."""
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
            for name in feed.inputs:
                inputs[name] = inputs[name].union(rows) if name in inputs else rows
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
        unseen = lacks_operators(plan)  # which may be of any kind
        return PlanFacts(
            keeps_state=job.aggregates or keeps_state(plan) or unseen,
            read=read,
            runs_python=sink_runs_python or runs_python(plan) or unseen,
            schemas=schemas,
            state_columns=state_columns(plan),
        )

    def _struct(self, schema: str | StructType) -> StructType:
        if not isinstance(schema, str):
            return schema
        row: Any = self.spark.range(0).select(F.from_json(F.lit("{}"), schema).alias("row")).schema["row"].dataType
        parsed_schema: StructType = row
        return parsed_schema

    def writer(self, job: Job, rows: DataFrame, most: int | None = None) -> DataStreamWriter:
        """Return the writer of this job's output: see `OutputWriter.writer`."""
        row_by_row = self.reading is DialReading.ROW
        writer = OutputWriter(self.board, self.dial, self.reading.reflects, self.kafka_of, row_by_row)
        return writer.writer(job, rows, most)

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
            records = records.where(waiting_sql(self.board.pace(job.instance)))
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
            options = dict(feed.values.options) if isinstance(feed.values, Json) else {}
            row = F.from_json(_text(feed.form), type(schema)([schema[name] for name in feed.shed_by]), options or None)
        return shedder.key_text(*(row[name] for name in feed.shed_by))


def _text(form: Form) -> Column:
    """Return the JSON object that is parsed: a record's value or, where that is no row, an object with it as a
    field."""
    if form is Form.ROW:
        return F.col("value").cast("string")
    text = "CAST(value AS STRING)"
    within = f"""concat('{{"{VALUE}":', {text}, '}}')"""
    return F.expr(f"CASE WHEN trim({text}) IN ('', 'null') THEN {text} ELSE {within} END")
