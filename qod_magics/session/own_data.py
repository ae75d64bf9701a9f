"""The part of a session that is about the notebook's own data: topics, rows sent to them, and a Spark session."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from qod_magics.application.recipes.views import MadeViews, View
from qod_magics.application.streams.topic_input import ddl_of
from qod_magics.errors import ApplicationError, KafkaError, TaskManagerError, UsageProblem, counted
from qod_magics.kafka.names import is_own
from qod_magics.kafka.reading import Record, Tail, beginning_offsets, end_offsets, offsets_at
from qod_magics.kafka.rows import By, RowSender, Sent, records
from qod_magics.kafka.topics import create_topics, grow_topics, topic_partitions
from qod_magics.sources.source import LATEST, check_topic
from qod_magics.spark.servers.connection import let_go, offer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from qod_magics.kafka.cluster import Kafka
    from qod_magics.kafka.clusters import Clusters
    from qod_magics.session.deployed_streams import Streams
    from qod_magics.session.slices import Slices
    from qod_magics.spark.runtime import SparkRuntime
    from qod_magics.spark.servers.task_manager import TaskManager

# --- Peeks ------------------------------------------------------------------------------------------------------------

SHOWN = 5  #: records that are shown
SAMPLED = 100  #: records of a partition from which the schema is taken
LATELY_S = 60  #: the time over which the rate is taken
_WIDTH = 160  #: characters of a value that are shown
_NEEDLESS = re.compile(r"(?<!`)`([A-Za-z_][A-Za-z0-9_]*)`(?!`)")


@dataclass(frozen=True, slots=True)
class Peek:
    """What is in a topic."""

    topic: str
    partitions: int
    records: int  #: offsets from the oldest to the newest record, transactions and compaction aside
    rate: float  #: records/s of the last `LATELY_S` seconds
    newest: tuple[Record, ...]  #: at most `SHOWN`
    schema: str  #: DDL of the JSON values, as --schema takes it; "": they are no JSON objects
    sampled: int = 0  #: values from which it was taken

    def __str__(self) -> str:
        head = f"{self.topic}: {counted(self.partitions, 'partition')}, {self.records:,} records"
        lines = [f"{head}, {self.rate:,.1f}/s in the last {LATELY_S} s"]
        lines += [f"  {_shown(record)}" for record in self.newest]
        if self.schema:
            quoted = "'" + self.schema.replace("'", "\\'") + "'" if '"' in self.schema else f'"{self.schema}"'
            lines.append(f"--schema {quoted}  (of {counted(self.sampled, 'value')}; times in text are STRING)")
        elif self.sampled:
            lines.append("no --schema: no task manager is up to infer it")
        elif self.newest:
            lines.append("no --schema: the values are no JSON objects")
        return "\n".join(lines)


def peek(kafka: Kafka, topic: str, spark: SparkSession | None) -> Peek:
    """Return what is in a topic; without a Spark session no schema. Raises KafkaError."""
    ends = end_offsets(kafka, [topic], timeout_s=10.0)[topic]
    first = beginning_offsets(kafka, [topic], timeout_s=10.0)[topic]
    lately = offsets_at(kafka, [topic], int((time.time() - LATELY_S) * 1000), timeout_s=10.0)[topic]
    with closing(Tail(kafka, topic, SAMPLED)) as tail:
        records = tail.read().by_time
    objects = json_objects([record.value for record in records])
    return Peek(
        topic,
        len(ends),
        sum(ends.values()) - sum(first.values()),
        (sum(ends.values()) - sum(lately.values())) / LATELY_S,
        tuple(records[-SHOWN:]),
        schema_of(spark, objects) if spark is not None and objects else "",
        len(objects),
    )


def json_objects(values: Sequence[bytes]) -> list[str]:
    """Return the values that are JSON objects, as text."""
    return [text for value in values if (text := value.decode("utf-8", "replace").strip()) and _is_object(text)]


def schema_of(spark: SparkSession, objects: Sequence[str]) -> str:
    """Return one DDL for all of these JSON objects, as Spark infers it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    [row] = spark.range(1).select(F.schema_of_json(F.lit(f"[{', '.join(objects)}]"))).collect()
    rows: Any = spark.range(0).select(F.from_json(F.lit("[]"), row[0]).alias("rows")).schema["rows"].dataType
    return plain(ddl_of(rows.elementType)) if isinstance(rows.elementType, StructType) else ""


def plain(ddl: str) -> str:
    """Return DDL without the backticks of names that need none."""
    return _NEEDLESS.sub(r"\1", ddl)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _shown(record: Record) -> str:
    value = " ".join(record.value.decode("utf-8", "replace").split())
    cut = value if len(value) <= _WIDTH else f"{value[: _WIDTH - 3]}..."
    key = "" if record.key is None else f"{record.key.decode('utf-8', 'replace')!r}: "
    return f"{record.partition}: {key}{cut if cut.isprintable() else repr(record.value[:40])}"


#: How long the release of a session is waited for, seconds.
RELEASE_S = 2.0
#: How long its answer about a view is waited for, seconds.
ANSWER_S = 10.0


class NotebookSpark:
    """The Spark session for the notebook's batch work: the one that is attached, or one on a task manager that is up.

    It is not ours: what is set on it, or that it is stopped, changes no query.

    Args:
        runtime: the task managers.
        offer: makes a session the one that pyspark's builder returns.
        let_go: releases a session, within seconds.

    """

    def __init__(
        self,
        runtime: SparkRuntime,
        *,
        offer: Callable[[SparkSession], None] = offer,
        let_go: Callable[[SparkSession, float], None] = let_go,
    ) -> None:
        self._runtime, self._offer, self._let_go = runtime, offer, let_go
        self._lock = threading.Lock()
        self._spark: SparkSession | None = None
        self._manager: TaskManager | None = None
        self._views = MadeViews()

    def __repr__(self) -> str:
        return f"Spark session of the notebook on {self._manager.id if self._manager else 'no task manager yet'}"

    def get(self) -> SparkSession:
        """Return the session; another one where its task manager has left or is silent, or it was stopped. Raises
        TaskManagerError: no task manager is up."""
        with self._lock:
            there = any(manager is self._manager for manager in self._runtime.cluster.answering())
            if self._spark is None or not there or getattr(self._spark, "is_stopped", False):
                self._close()
                self._manager = self._runtime.cluster.home()
                self._spark = self._manager.for_notebook()
                if self._spark is not self._manager.notebooks:
                    self._views = MadeViews()
                    self._views.follow(self._spark)
                    self._offer(self._spark)
            return self._spark

    def views(self, names: Collection[str]) -> tuple[View, ...]:
        """Return the temporary views among these names as they are now, for recipes that read them. Of a session that
        is attached there are none: its task manager knows them.

        Raises:
            ApplicationError: queries can't read one of them.
            TaskManagerError: no answer.

        """
        with self._lock:
            spark, manager, made = self._spark, self._manager, self._views
        if spark is None or manager is None or spark is manager.notebooks or not names:
            return ()
        there = manager.ask(lambda: [name for name in names if _is_view(spark, name)], "views", ANSWER_S)
        found = []
        for name in sorted(there):
            view = made.get(name)
            if view is None:
                raise ApplicationError(
                    f"the SQL reads the temporary view {name!r}, which only its own session has; make it by "
                    "createOrReplaceTempView of a DataFrame, or by CREATE OR REPLACE TEMPORARY VIEW name AS query"
                )
            view.check()
            found.append(view)
        return tuple(found)

    def close(self) -> None:
        """Release it, unless it is attached."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        spark, manager, self._spark, self._manager = self._spark, self._manager, None, None
        if spark is not None and manager is not None and spark is not manager.notebooks:
            self._let_go(spark, RELEASE_S if manager.alive() and manager.silent_since is None else 0.5)


class OwnData:
    """What `session.Session` offers for the notebook's own data."""

    kafka: Kafka
    runtime: SparkRuntime
    _clusters: Clusters  #: `kafka` is the user's
    _rows: RowSender
    _streams: Streams
    _spark: NotebookSpark
    _slices: Slices

    @property
    def spark(self) -> SparkSession:
        """A Spark session for batch work beside the streams, such as `qod.spark.read.parquet(...)`: the notebook's own
        where one is attached, else one on the first task manager, apart from those of the queries. Raises
        TaskManagerError: no task manager is up."""
        return self._spark.get()

    @property
    def slices(self) -> Slices:
        """The slices of results that task managers keep in memory."""
        return self._slices

    def query(self, sql: str, args: Mapping[str, Any] = MappingProxyType({})) -> DataFrame:
        """Return the result of an SQL query over the files that a query with a Parquet sink has written so far, a
        DataFrame of `spark`.

        Where it splits (see below) each task manager answers it for some time slices, at once. Under `getafix`
        and `auto`, slices that are asked for often stay in the memory of some of them.

        Split are rows, and groups with count, sum, min, max and avg, of one query; all else is answered by one task
        manager from all files. `%qod status` says how it was answered.

        Args:
            sql: reads queries of this session by name, and what `spark` knows.
            args: the value of each `:name` in it.

        Raises:
            ApplicationError: it reads no query of the session, or one with another sink.
            UsageProblem: Spark refuses the text.
            TaskManagerError: a task manager fails, or none is up.

        """
        return self._slices.query(sql, args, self.spark)

    def topic(self, name: str, partitions: int | None = None) -> str:
        """Create a topic, if there is none of this name, with this number of partitions (default 1). Returns what was
        done, one line. A topic that no stream reads gets more partitions, if more are asked for.

        Raises:
            UsageProblem: the name or the number is wrong, or only sinks write to the broker.
            KafkaError: the topic has another number of partitions, or the broker refuses or does not answer.

        """
        _check(name, partitions)
        there = topic_partitions(self.kafka).get(name)
        if there is not None and partitions in (None, there):
            return f"topic {name} is there, with {counted(there, 'partition')}"
        self._check_writes("%qod topic", name)
        if there is not None and partitions is not None and partitions > there and not self._declared_on(name):
            grow_topics(self.kafka, {name: partitions})
            return f"topic {name} has {counted(partitions, 'partition')} now, {there} before"
        count = partitions or 1
        create_topics(self.kafka, {name: count})  # raises where there are others
        return f"topic {name} created with {counted(count, 'partition')}"

    def topics(self) -> dict[str, int]:
        """Return the partitions of each topic, without those that sessions make for themselves. Raises KafkaError."""
        return {name: n for name, n in sorted(topic_partitions(self.kafka).items()) if not is_own(name)}

    def peek(self, topic: str) -> Peek:
        """Return a look into a topic, to print: its rate, its newest records, and a line that `--schema` takes.

        Raises:
            UsageProblem: this is no name of a topic.
            KafkaError: there is no such topic, or the broker does not answer.

        """
        _check(topic, None)
        try:
            spark = self.spark
        except TaskManagerError:  # none is up: all but the schema
            spark = None
        return peek(self.kafka, topic, spark)

    def send(
        self,
        topic: str,
        rows: Any,
        *,
        key: By | None = None,
        timestamp: By | None = None,
        partitions: int | None = None,
    ) -> Sent:
        """Send rows to a topic, and wait until the broker has them. On the session's own broker the topic is created.

        Args:
            topic: its name.
            rows: dicts, which are written as JSON; bytes or text, written as they are; or a pandas, Arrow, Polars or
                Spark DataFrame. A single dict, bytes or text is one row.
            key: the column, or a function of the row, that gives the record's key.
            timestamp: the same for the record's timestamp, a datetime (UTC unless it has a zone) or milliseconds since
                1970; default the time of sending.
            partitions: of a topic that is created, default 1; given, the topic is created on the user's own Kafka too.

        Raises:
            UsageProblem: only sinks write to the broker, or a row can't be written; nothing was sent then, unless
                `rows` is an iterator.
            KafkaError: there is no such topic on the user's own Kafka, or the broker did not take all rows.

        """
        _check(topic, partitions)
        self._check_writes("qod.send", topic)
        found: Iterable[Any] = records(rows, key, timestamp)
        if not isinstance(rows, Iterator):
            found = list(found)  # a wrong row is found before the first is sent
        created = self._opened(topic, partitions)
        sent = self._rows.send(topic, found)
        unread = self._unread(topic) if sent else ""
        return Sent(topic, sent, "; ".join(note for note in (created, unread) if note))

    def _check_writes(self, what: str, topic: str = "") -> None:
        """Raise UsageProblem if only sinks write to the broker."""
        if self._clusters.internal is not None:
            raise UsageProblem(
                f"{what} must write to a broker that the session may change, got {self.kafka.bootstrap}, to which only "
                "sinks write with --internal-kafka; use a client of your own, or leave --internal-kafka out",
                name=topic,
                rule="writes",
            )

    def _opened(self, topic: str, partitions: int | None) -> str:
        """Create the topic if need be, and return what was done for it; "" if nothing."""
        there = topic_partitions(self.kafka).get(topic)
        if there is None and partitions is None and self._clusters.embedded is None:
            raise KafkaError(
                f"topic {topic!r} must be on your Kafka at {self.kafka.bootstrap}, got none; "
                f"%qod topic {topic} --partitions N creates it",
                name=topic,
                rule="exists",
            )
        if there is not None and partitions in (None, there):
            return ""
        return self.topic(topic, partitions)

    def _declared_on(self, topic: str) -> list[str]:
        """Return the streams that read the topic, or will."""
        return [each.name for each in self._streams.application if each.topic is not None and each.topic.reads(topic)]

    def _unread(self, topic: str) -> str:
        """Say why no stream reads these rows, if none does, and how one can; else ""."""
        declared = self._declared_on(topic)
        if any(name in self._streams.application.live for name in declared):
            return ""
        if declared:
            later = [name for name in declared if _reads_from_now(self._streams.application[name].topic)]
            return f"{later[0]} waits for a query, and reads only rows sent after its start" if later else ""
        return "no stream reads it yet: one declared with --starting earliest reads these rows, too"


def _is_view(spark: SparkSession, name: str) -> bool:
    quoted = "`{}`".format(name.replace("`", "``"))
    return spark.catalog.tableExists(quoted) and bool(spark.catalog.getTable(quoted).isTemporary)


def _reads_from_now(topic: Any) -> bool:
    return bool(topic.starting == LATEST)


def _check(topic: str, partitions: int | None) -> None:
    try:
        check_topic(topic)
    except ApplicationError as error:
        raise UsageProblem(str(error)) from None
    if partitions is not None and (isinstance(partitions, bool) or partitions < 1):
        raise UsageProblem(f"partitions must be 1 or more, got {partitions!r}; leave it out for 1")
