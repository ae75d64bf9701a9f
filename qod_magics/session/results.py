"""Reading of a query's results from their topic, as they are written, with what is known of how right they are."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pyspark.sql import Window
from pyspark.sql import functions as F

from qod_magics.application.merging import Merge, Merges, merged_groups
from qod_magics.application.streams.sink import KafkaTopic
from qod_magics.core.load import FULL_ACCURACY
from qod_magics.errors import ApplicationError, TaskManagerError, UsageProblem
from qod_magics.kafka.reading import Record, Tail
from qod_magics.recordings.reading import load
from qod_magics.recordings.verdict import verdict
from qod_magics.results import drawing
from qod_magics.results.drawing import Wish
from qod_magics.results.result import Accuracy, Column, Kind, Newest, NewestBatch, Result, Row, columns_of, key_of
from qod_magics.session.show import ShownResults
from qod_magics.session.status import DECLARED, idle_text, instances_with, printed_text
from qod_magics.spark.plans.labels import WORDS
from qod_magics.spark.plans.parsing import FIRST_TIME, JSON_FORMAT, TOO_LATE
from qod_magics.spark.plans.records import BATCH, ROW, RUN, attempt, batch, record_form
from qod_magics.spark.plans.writing import INSTANCE

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from qod_magics.application.tasks import TaskSpec
    from qod_magics.session.interface import SessionInterface
    from qod_magics.session.live_view import View


# --- Rows of a memory sink --------------------------------------------------------------------------------------------


def read_results(
    spark: SparkSession,
    kafka: Mapping[str, str],
    topic: str,
    schema: StructType,
    whole: bool = False,
    since_s: float = 0.0,
    merges: Merges | None = None,
) -> DataFrame:
    """Return a query's result rows that the broker still retains, from all its instances, unordered; of one that writes
    its `whole` result in each batch those of the newest one, in their order, none of a batch before `since_s` (epoch).
    Of one that lends rows of its keys the newest row of each group, its parts merged as `merges` says.

    They are in a topic with bounded retention, not in a server's heap: they survive moves and lost task managers.
    """
    records = (
        spark.read.format("kafka")
        .options(**kafka)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", str(whole).lower())
        .load()
    )
    row = F.from_json(F.col("value").cast("string"), schema, JSON_FORMAT).alias("_row")
    if merges is not None:
        parts = records.select(row, F.col("partition").alias("_part"), F.col("offset").alias("_offset"))
        return _merged(parts.select("_row.*", "_part", "_offset"), schema, merges)
    if not whole:
        return records.select(row).select("_row.*")
    newest = F.max_by("_attempt", "offset").over(Window.partitionBy(F.lit(0)))  # it has one partition
    rows = records.select(row, batch().alias("_batch"), attempt().alias("_attempt"), "offset").withColumn(
        "_newest", newest
    )
    return rows.where(f"_attempt = _newest AND _batch >= {1e3 * since_s:.0f}").orderBy("offset").select("_row.*")


def _merged(parts: DataFrame, schema: StructType, merges: Merges) -> DataFrame:
    """Return the row of each group from all rows of its parts, of which the newest of each counts."""
    names = {field.name: F.col("`{}`".format(field.name.replace("`", "``"))) for field in schema.fields}
    keys = [column.alias(name) for name, column in names.items() if name not in merges]
    newest = [F.max_by(names[name], "_offset").alias(name) for name in merges]
    rows = parts.groupBy(*keys, "_part").agg(*newest)
    totals = {
        name: _total(name, merge, names).cast(schema[name].dataType).alias(name) for name, merge in merges.items()
    }
    return rows.groupBy(*keys).agg(*totals.values()).select(*names.values())


def _total(name: str, merge: Merge, names: Mapping[str, SparkColumn]) -> SparkColumn:
    """Return the aggregate over parts that is the value of the whole."""
    if merge.kind == "mean":
        counts = F.when(names[name].isNotNull(), names[merge.count])
        return F.sum(names[name] * counts) / F.sum(counts)
    return {"sum": F.sum, "min": F.min, "max": F.max}[merge.kind](names[name])


def times_out_of_range(rows: DataFrame) -> list[str]:
    """Return the columns of times outside of the years 1 to 9999, which Python's times have not."""
    times = [field.name for field in rows.schema.fields if field.dataType.typeName() == "timestamp"]
    if not times:
        return []
    outside = [
        F.max(~F.unix_micros(F.col("`{}`".format(name.replace("`", "``")))).between(FIRST_TIME, TOO_LATE - 1))
        for name in times
    ]
    (found,) = rows.select(*outside).collect()
    return [name for name, is_outside in zip(times, found, strict=True) if is_outside]


#: The columns of a record that are read.
_READ = ("key", "value", "partition")
#: Rows of a partition that are read in one look, where a row may be the newest of its key.
MOST_READ = 200_000


@dataclass(frozen=True, slots=True)
class Source:
    """Where the rows of a query are, and what they look like."""

    topic: str
    starting: Mapping[int, int]  #: offsets by partition before which rows are of others; {}: none are
    schema: str  #: JSON
    recipe: Any  #: of the query: with another one, rows of the topic have another meaning
    instances: int
    key: str | None  #: column by which its input is partitioned over its instances
    record: tuple[str, ...] = ()  #: the columns of a record that its rows are; (): rows are JSON in the value
    whole: bool = False  #: whether each batch writes all of them


class QueryResults:
    """The results of a query of a session. Thread-safe.

    Raises ApplicationError where it is made if there is no such query, or its sink can't be read, and TaskManagerError
    if it does not run yet.

    Args:
        session: the session.
        name: the query.
        open_tail: begins to read a topic, as `Tail` does.

    """

    def __init__(self, session: SessionInterface, name: str, open_tail: Callable[..., Tail] = Tail) -> None:
        self.name = name
        self._open_tail = open_tail
        self._session = session
        self._lock = threading.Lock()
        self._source: Source | None = None
        self._columns: tuple[Column, ...] = ()
        self._newest: Newest | NewestBatch = Newest(())
        self._tail: Tail | None = None
        self._apart = False  #: whether each instance has its own rows of a group
        self._merges: Merges | None = None  #: how the rows of several instances become that of a group; None: not
        self._groups: tuple[str, ...] = ()  #: then: the columns of a group
        self._merged: tuple[Mapping[str, Row], Mapping[str, Row]] = ({}, {})  #: rows of parts, and the rows of groups
        self._unread = 0
        self._numbers = 0  #: rows of whole results so far
        self._find()

    def __repr__(self) -> str:
        return f"results of {self.name}: {self._newest}"

    def read(self, last: bool = False) -> Result:
        """Return the newest rows now, and the accuracies of the last cycle; `last`: also while the session ends.

        Raises:
            ApplicationError: the query is no longer there, or its session has ended.
            KafkaError, TaskManagerError: they can't be read for the moment.

        """
        with self._lock:
            spec, source = self._find(last)
            if source != self._source:
                self._open(spec, source)
            assert self._tail is not None
            news = self._tail.read()
            if isinstance(self._newest, NewestBatch):  # rows of batches before it are not missed
                self._newest.add(self._numbered(news.by_time))
                if news.skipped and len(self._newest) >= len(news.records):  # but some of its own are
                    self._unread = news.skipped
                for instance in instances_with(self._session, self.name):
                    self._newest.empty(1e3 * instance.wrote_nothing_at)
            else:
                self._unread += news.skipped
                forgotten = self._newest.forgotten
                self._newest.add(row for _, row in self._rows(news.by_time))
                self._unread += self._newest.forgotten - forgotten
            accuracy = self._accuracy(spec)
            labels = self._session.runtime.deployment.checked.labels.get(self.name)
            if accuracy.minimum == 1.0 and (accuracy.measured is None or accuracy.measured >= FULL_ACCURACY):
                labels = None  # no row is dropped
            idle = idle_text(instances_with(self._session, self.name))
            merges = self._merges is not None
            return Result(
                self.name,
                tuple(each for each in self._columns if not merges or each.name != INSTANCE),
                self._groups if merges else self._newest.keys,
                self._rows_of_groups() if merges else self._newest.snapshot(),
                datetime.now(UTC),
                accuracy,
                {} if labels is None else {column.name: WORDS[column.label] for column in labels.columns},
                None if labels is None else labels.missing,
                self._unread,
                source.whole,
                tuple(self._session.runtime.incomplete.texts(self.name)),
                f"{self.name} is {idle}" if idle else "",
            )

    def leave(self) -> None:
        """Drop the connection to the broker and the rows: the next look reads them again."""
        with self._lock:
            if self._source is not None:
                self._begin(self._source, self._newest.keys)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _find(self, last: bool = False) -> tuple[TaskSpec, Source]:
        session, name = self._session, self.name
        if not session.alive and not last:
            raise ApplicationError("its session has ended", rule="running")
        application, deployment = session.application, session.runtime.deployment
        declaration = application[name]
        if name in application.waiting:
            raise ApplicationError(f"{name} {DECLARED}")
        if name not in application.queries:
            readers = ", ".join(other for other in application.names if name in application.upstreams[other])
            raise ApplicationError(f"{name} is no query, as {readers} reads it: show {readers}, or what reads that")
        sink = declaration.effective_sink
        spec, schema = deployment.specs.get(name), deployment.checked.schemas.get(name)
        if not sink.read_back:
            told = sink.instead(printed_text(session, name))
            raise ApplicationError(f"{name} writes to {sink}, which is not read: {told}")
        where = sink.where(deployment.results.get(name), deployment.sinks.get(name))
        if spec is None or schema is None or where is None:  # it is being deployed
            raise TaskManagerError(f"{name} does not run yet.")
        record = record_form(schema, sink).columns if isinstance(sink, KafkaTopic) else ()
        instances = deployment.instances(spec)
        columns = json.dumps(schema.jsonValue())
        whole = name in deployment.checked.whole
        return spec, Source(where.topic, where.starting, columns, spec.tail.recipe, instances, spec.key, record, whole)

    def _open(self, spec: TaskSpec, source: Source) -> None:
        """Begin to read; from the start where the query was replaced."""
        deployment = self._session.runtime.deployment
        keys = deployment.result_keys(self.name, self._session.runtime.workshop())
        columns = columns_of(json.loads(source.schema))
        self._apart = deployment.apart(spec, keys)
        if source.record:
            columns = tuple(each for each in columns if each.name.lower() in _READ)
            told = keys is not None and not self._apart and {each.name for each in columns}.issuperset(keys)
            keys, self._apart = keys if told else None, False  # a record does not tell which instance wrote it
        self._merges = deployment.checked.merges.get(self.name) if self._apart else None
        self._groups = keys or ()
        if keys is not None and self._apart:
            keys, columns = (*keys, INSTANCE), (*columns, Column(INSTANCE, Kind.NUMBER))
        self._begin(source, keys)
        self._columns, self._source = columns, source

    def _begin(self, source: Source, keys: Sequence[str] | None) -> None:
        if self._tail is not None:
            self._tail.close()
        # of rows that stand for themselves no more than can be shown
        most = drawing.MOST_ROWS if keys is None and not source.whole else MOST_READ
        self._tail = self._open_tail(
            self._session.runtime.deployment.kafka_of(source.topic), source.topic, most, source.starting
        )
        self._newest = Newest(keys, drawing.MOST_ROWS) if keys is None else Newest(keys)
        if source.whole:
            self._newest = NewestBatch(keys)
        self._unread = 0

    def _rows_of_groups(self) -> Mapping[str, Row]:
        """Return the row of each group, merged from the newest of each instance."""
        parts = self._newest.snapshot()
        if parts is not self._merged[0]:
            assert self._merges is not None
            rows = merged_groups(parts.values(), self._groups, self._merges)
            self._merged = parts, {key_of(row, self._groups): row for row in rows}
        return self._merged[1]

    def _numbered(self, records: Iterable[Record]) -> Iterable[tuple[tuple[int, str], int, Row]]:
        """Return the rows of whole results, each with its batch and its number there."""
        for count, (record, row) in enumerate(self._rows(records), self._numbers):
            self._numbers = count + 1
            headers = record.headers
            try:
                yield (int(headers[BATCH]), headers[RUN].decode()), int(headers.get(ROW, count)), row
            except (KeyError, ValueError):  # others may write to its topic
                self._unread += 1

    def _rows(self, records: Iterable[Record]) -> Iterable[tuple[Record, Row]]:
        names = [column.name for column in self._columns]
        for record in records:
            if self._source is not None and self._source.record:
                yield record, {name: _field(record, name) for name in names if _field(record, name) is not None}
                continue
            try:
                value = json.loads(record.value)
                instance = {INSTANCE: _instance(record)} if self._apart else {}
            except ValueError:
                value, instance = None, {}
            if not isinstance(value, dict):  # others may write to its topic
                self._unread += 1
                continue
            yield record, {**{name: value[name] for name in names if name in value}, **instance}

    def _accuracy(self, spec: TaskSpec) -> Accuracy:
        cycle = self._session.last
        measured = cycle.measured.accuracy.get(self.name) if cycle is not None and cycle.measured is not None else None
        desired = cycle.plan.desired.get(self.name) if cycle is not None and cycle.plan is not None else None
        return Accuracy(measured, desired, spec.min_accuracy)


def _field(record: Record, name: str) -> object:
    """Return a column of a record, text where it is bytes."""
    found = getattr(record, name.lower())
    return found.decode("utf-8", "backslashreplace") if isinstance(found, bytes) else found


def _instance(record: Record) -> object:
    """Return the number of the instance that wrote a record, where each has its own rows of a group: in its key, or
    else the partition of a memory sink tells it. None where neither does; ValueError for a key that is not JSON."""
    if record.key is None:
        return record.partition + 1
    key = json.loads(record.key)
    return key.get(INSTANCE) if isinstance(key, dict) else None


# --- Views ------------------------------------------------------------------------------------------------------------
# What a session shows in a notebook: its dashboard, and results of queries. All of it ends with the session.

#: For what is read and drawn a last time of all results together, seconds.
LAST_S = 10.0


class Views:
    """The views of a session, made on first use.

    Args:
        session: the session.
        results: reads the results of a query of it.

    """

    def __init__(
        self, session: SessionInterface, results: Callable[[SessionInterface, str], QueryResults] = QueryResults
    ) -> None:
        self._session, self._results = session, results
        self._dashboard: View | None = None
        self._shows: WeakSet[ShownResults] = WeakSet()

    def __repr__(self) -> str:
        results = ", ".join(sorted(show.name for show in self._shows)) or "nothing"
        return f"views of session {self._session.id}: {self._dashboard or 'no dashboard'}; results of {results}"

    @property
    def dashboard(self) -> View:
        """Dashboard and controls."""
        if self._dashboard is None:
            from qod_magics.session.live_view import View

            self._dashboard = View(self._session)
        return self._dashboard

    def show(self, name: str, wish: Wish, save: str | os.PathLike[str] | None) -> ShownResults:
        """Return the results of a query. Raises ApplicationError: there is no such query, or its sink can't be read."""
        file = None if save is None else Path(save).expanduser().absolute()  # whatever the working directory is later
        shown = ShownResults(name, self._results(self._session, name), wish, file)
        self._shows.add(shown)
        return shown

    def close(self) -> None:
        """Leave them as they are now: nothing more is read or sent."""
        if self._dashboard is not None:
            with suppress(Exception):  # all others end, too
                self._dashboard.close()
        until = time.monotonic() + LAST_S
        for shown in sorted(self._shows, key=lambda shown: shown.closed):
            with suppress(Exception):
                shown.end(until)


# --- Report of a session ----------------------------------------------------------------------------------------------


def report_so_far(recording: Path, out: Path, began: datetime, write: Callable[..., object] | None = None) -> Path:
    """Write the report of a session that began then, judged on its cycles so far; the recording may have earlier runs.

    Raises UsageProblem while nothing is recorded, and when the page can't be written; RecordingError.
    """
    from qod_magics.reports.page import write_report

    if not recording.is_file() or not recording.stat().st_size:
        raise UsageProblem("nothing is recorded yet: wait for the first cycle")
    records = load(recording, began)
    try:
        (write or write_report)(out, records, None, verdict(records))
    except OSError as error:
        raise UsageProblem(f"{out} can't be written ({error.strerror}): name another file") from None
    return out
