"""Where the rows of a query go: the class `Sink`, and the kinds that need no table; paths that task managers open.

A new kind is a subclass of `Sink`, and a line of `KINDS` in `sinks.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from qod_magics.errors import ApplicationError
from qod_magics.sources.source import check_topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
    from pyspark.sql.types import StructType

AT_LEAST_ONCE = (
    "at least once: rows of a batch that is tried again are written again, and `--with topic,partition,offset` adds "
    "columns by which to tell them"
)
EXACTLY_ONCE = "exactly once: each row of its input is written once, also where a batch is tried again"
#: What is added for a query whose input is another stream.
TWICE_BETWEEN = "a stream between tasks may have rows twice"
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What the catalog says of a table into which rows are written."""

    provider: str  #: "delta", "iceberg", "parquet" ...
    columns: tuple[tuple[str, str], ...]  #: names and types
    location: str = ""  #: of its files, where the catalog tells
    definition: tuple[str, ...] = ()  #: SQL with which a task manager that has a catalog of its own gets it
    #: whether each batch is an INSERT; Spark allows one writer at a time into a table of files
    by_insert: bool = False

    def define(self, spark: SparkSession) -> None:
        """Make the table known to a task manager, if the catalog that it is in does not outlive one."""
        for statement in self.definition:
            spark.sql(statement)


@dataclass(frozen=True, slots=True)
class Output:
    """What the runtime tells a sink that is written by an instance."""

    index: int  #: of the instance, from 0
    run: str  #: names its checkpoint
    results: str | None  #: the session's topic for the rows of a memory sink
    #: writes rows as records to a topic, all to one partition if it is given
    to_topic: Callable[[DataFrame, str, int | None], DataStreamWriter]
    table: TableFacts | None = None  #: what `Sink.found` has found


@dataclass(frozen=True, slots=True)
class Where:
    """The topic in which the rows of a query can be read back."""

    topic: str
    starting: Mapping[int, int]  #: offsets by partition before which rows are of others; {}: none are


class Sink:
    """Where rows go. Kinds are immutable, and equal where they write to the same place."""

    __slots__ = ()
    kind: ClassVar[str]
    realtime: ClassVar[bool] = True  #: whether Spark's real-time mode can write it
    row_by_row: ClassVar[bool] = False  #: whether a row is written when it is computed, not when its batch is over
    appends: ClassVar[bool] = False  #: whether a group is written once, when it is complete, to files of its run
    exactly_once: ClassVar[bool] = False  #: whether a batch that is tried again leaves no row twice
    read_back: ClassVar[bool] = False  #: whether its newest rows can be shown
    inspects: ClassVar[bool] = False  #: whether only people look at its rows
    prints: ClassVar[bool] = False  #: whether rows are printed by the task manager
    looks_up: ClassVar[bool] = False  #: whether a task manager is asked for its place before anything is written
    runs_python: ClassVar[bool] = False  #: whether it calls a function of the notebook's

    @classmethod
    def parsed(cls, place: str | None) -> Sink:
        """Return the sink that `--sink KIND:PLACE` names; None: there is no colon. Raises ApplicationError."""
        if place is not None:
            raise ApplicationError(f"the sink {cls.kind!r} takes nothing after it, not '{cls.kind}:{place}'")
        return cls()

    def with_options(self, given: Mapping[str, str]) -> Sink:
        """Return the sink with options. Raises ApplicationError: it does not have them."""
        raise ApplicationError(f"--sink-option {next(iter(given))} must go with a topic, files or a table, got {self}")

    def found(self, spark: SparkSession, columns: StructType) -> TableFacts | None:
        """Ask a task manager whether it can write there; return what it says of the table, if it is one.

        Args:
            spark: a session on the task manager.
            columns: those of the rows.

        Raises ApplicationError, one line: there is no such table or format, or the table lacks a column.

        """
        return None

    @property
    def file_log(self) -> str:
        """Return the directory in which Spark may log batches by their numbers, so that it is of one query with one
        instance; "": none."""
        return ""

    def check_new(self) -> None:
        """Raise ApplicationError where rows of a query that begins on a new checkpoint would be lost there."""

    def begin(self, writer: DataStreamWriter, table: TableFacts | None) -> StreamingQuery:
        """Start the query of a writer that `write` has returned."""
        return writer.start()

    def write(self, rows: DataFrame, output: Output) -> DataStreamWriter:
        """Return the writer of the rows of an instance."""
        raise NotImplementedError

    @property
    def guarantee(self) -> str:
        """Say how often a row is written where a batch is tried again; "" where only people look at it."""
        if self.inspects:
            return ""
        return EXACTLY_ONCE if self.exactly_once else AT_LEAST_ONCE

    def guarantee_in(self, table: TableFacts | None) -> str:
        """Return the guarantee, given what was found of the table."""
        return self.guarantee

    def where(self, results: str | None, begun: Mapping[int, int] | None) -> Where | None:
        """Return where its newest rows are read; None while it is being deployed.

        Args:
            results: the topic of a memory sink, if there is one.
            begun: from which offsets on a topic has rows of this query, if it is known.

        """
        return None

    def instead(self, printed: str) -> str:
        """Say how to see rows that can't be read back. `printed`: where those that are printed are."""
        return f"{printed}; declare it with --sink memory to have them shown"


@dataclass(frozen=True, slots=True)
class Memory(Sink):
    """A topic of the session's broker with bounded retention, from which results are read back; for inspection. It
    survives moves and lost task managers."""

    kind: ClassVar[str] = "memory"
    inspects: ClassVar[bool] = True
    read_back: ClassVar[bool] = True
    row_by_row: ClassVar[bool] = True

    def __str__(self) -> str:
        return "memory"

    def write(self, rows: DataFrame, output: Output) -> DataStreamWriter:
        """Write to the partition of the instance."""
        assert output.results is not None
        return output.to_topic(rows, output.results, output.index)

    def where(self, results: str | None, begun: Mapping[int, int] | None) -> Where | None:
        """Return its topic, all of whose rows are of this query."""
        return None if results is None else Where(results, {})


@dataclass(frozen=True, slots=True)
class KafkaTopic(Sink):
    """A topic of the broker that cells read, rows as JSON; `sinks.py` has rows as Avro. Where rows replace earlier
    ones of their group, and the plan tells its columns, the key of a record is these, as JSON."""

    topic: str
    partitions: int | None = None  #: which the topic must have, and gets if there is none; None: any number, and 1
    kind: ClassVar[str] = "kafka"
    read_back: ClassVar[bool] = True
    row_by_row: ClassVar[bool] = True
    in_json: ClassVar[bool] = True  #: whether a row is JSON, unless its columns are those of a record

    def __post_init__(self) -> None:
        check_topic(self.topic)
        if self.partitions is not None and self.partitions < 1:
            raise ApplicationError(f"partitions of a sink's topic must be 1 or more, got {self.partitions}")

    def __str__(self) -> str:
        return f"kafka:{self.topic}"

    @classmethod
    def parsed(cls, place: str | None) -> Sink:
        """Return the sink of a topic."""
        if not place:
            raise ApplicationError("the sink 'kafka' needs a topic: kafka:TOPIC")
        return cls(place)

    def with_options(self, given: Mapping[str, str]) -> Sink:
        """Return the topic with the number of partitions that these options give it."""
        unknown = sorted(given.keys() - {"partitions"})
        if unknown:
            raise ApplicationError(
                f"a Kafka sink must have options among partitions, format, registry, schema, got {unknown[0]!r}"
            )
        if not given["partitions"].isdigit():
            raise ApplicationError(f"partitions must be a whole number, got {given['partitions']!r}")
        return replace(self, partitions=int(given["partitions"]))

    @property
    def form(self) -> str:
        """Say how values are written."""
        return "JSON"

    def value(self, rows: DataFrame) -> Column | None:
        """Return a row as the value of a record; None: as JSON."""
        return None

    def write(self, rows: DataFrame, output: Output) -> DataStreamWriter:
        """Write by the key of a record, if it has one."""
        return output.to_topic(rows, self.topic, None)

    def where(self, results: str | None, begun: Mapping[int, int] | None) -> Where | None:
        """Return the topic, from where it has rows of this query."""
        return None if begun is None else Where(self.topic, begun)


@dataclass(frozen=True, slots=True)
class Files(Sink):
    """Files of a format of Spark's under a directory that the task managers reach, partitioned by instance: `run=...`
    is a column for readers of the whole."""

    path: str  #: a URL, or made absolute where it is declared: a task manager's own directory ends with it
    options: tuple[tuple[str, str], ...] = ()  #: of Spark's writer, such as compression
    realtime: ClassVar[bool] = False
    appends: ClassVar[bool] = True
    exactly_once: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.path.strip():
            raise ApplicationError(f"the sink {self.kind!r} needs a path: {self.kind}:/data/out")
        object.__setattr__(self, "path", absolute(self.path))

    def __str__(self) -> str:
        return f"{self.kind}:{self.path}"

    @classmethod
    def parsed(cls, place: str | None) -> Sink:
        """Return the sink of a path."""
        return cls(place or "")

    def with_options(self, given: Mapping[str, str]) -> Sink:
        """Return the files with options of Spark's writer."""
        return replace(self, options=options_of_writer(given))

    def write(self, rows: DataFrame, output: Output) -> DataStreamWriter:
        """Write to a directory of the run: Spark skips batches whose ids are in a directory's log, whichever query
        wrote them."""
        path = f"{self.path.rstrip('/')}/run={output.run}"
        return rows.writeStream.format(self.kind).options(**dict(self.options)).option("path", path)

    def instead(self, printed: str) -> str:
        """Name the call that reads them."""
        reads = f"spark.read.format({self.kind!r}).load({self.path!r})"
        return f"read its files by {reads}, or declare it with --sink memory"


#: Where Spark logs in a directory which files each batch has written.
FILE_LOG = "_spark_metadata"
#: Options of Spark's writer that are not the user's.
_OWN_OPTIONS = frozenset({"path", "checkpointlocation"})


def options_of_writer(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return options of Spark's writer in the order of their names. Raises ApplicationError: one is given twice, or is
    the session's own."""
    if len({name.casefold() for name in given}) < len(given):
        raise ApplicationError(f"options of a writer ignore case, got one twice: {', '.join(given)}", rule="unique")
    for name in given:
        if name.casefold() in _OWN_OPTIONS:
            raise ApplicationError(
                f"{name} must be left out of --sink-option, as the session sets it, got {given[name]!r}", name=name
            )
    return tuple(sorted(given.items()))


class Parquet(Files):
    """Parquet files."""

    __slots__ = ()
    kind: ClassVar[str] = "parquet"


class Orc(Files):
    """ORC files."""

    __slots__ = ()
    kind: ClassVar[str] = "orc"


class JsonFiles(Files):
    """Files with a JSON value in each line."""

    __slots__ = ()
    kind: ClassVar[str] = "json"


class TextFiles(Files):
    """Files with the only column of a row, a text, in each line."""

    __slots__ = ()
    kind: ClassVar[str] = "text"


class CsvFiles(Files):
    """Files with comma-separated values in each line."""

    __slots__ = ()
    kind: ClassVar[str] = "csv"


class XmlFiles(Files):
    """XML files with an element for each row, called ROW unless `--sink-option rowTag=NAME` names it."""

    __slots__ = ()
    kind: ClassVar[str] = "xml"

    def write(self, rows: DataFrame, output: Output) -> DataStreamWriter:
        """Write to a directory of the run; Spark asks for the name of the element."""
        writer = Files.write(self, rows, output)
        named = any(name.casefold() == "rowtag" for name, _ in self.options)
        return writer if named else writer.option("rowTag", "ROW")


class AvroFiles(Files):
    """Avro files, by a package of Spark's: `%qod up --packages org.apache.spark:spark-avro_2.13:VERSION`."""

    __slots__ = ()
    kind: ClassVar[str] = "avro"


@dataclass(frozen=True, slots=True)
class Console(Sink):
    """The standard output of the task manager."""

    kind: ClassVar[str] = "console"
    inspects: ClassVar[bool] = True
    prints: ClassVar[bool] = True

    def __str__(self) -> str:
        return "console"

    def write(self, rows: DataFrame, output: Output) -> DataStreamWriter:
        """Print whole values."""
        return rows.writeStream.format("console").option("truncate", "false")


@dataclass(frozen=True, slots=True)
class ForEachBatch(Sink):
    """A function of the user, called with each micro-batch and its number (Python API only)."""

    function: Callable[[DataFrame, int], Any]
    kind: ClassVar[str] = "foreachbatch"
    realtime: ClassVar[bool] = False
    runs_python: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"foreachBatch:{getattr(self.function, '__name__', 'function')}"

    def write(self, rows: DataFrame, output: Output) -> DataStreamWriter:
        """Call the function."""
        return rows.writeStream.foreachBatch(self.function)

    def instead(self, printed: str) -> str:
        """Say who has them."""
        return "your function has each batch; declare it with --sink memory to have them shown"


@dataclass(frozen=True, slots=True)
class Named(Sink):
    """A function of the notebook by its name, until the cell looks it up."""

    name: str
    kind: ClassVar[str] = "function"

    def __str__(self) -> str:
        return f"function:{self.name}"

    @classmethod
    def parsed(cls, place: str | None) -> Sink:
        """Return the sink of a name."""
        if not (place or "").isidentifier():
            raise ApplicationError("the sink 'function' needs a name: function:NAME")
        return cls(place or "")

    def function_in(self, namespace: Mapping[str, Any]) -> Sink:
        """Return the function in this name space as a sink. Raises ApplicationError."""
        function = namespace.get(self.name)
        if not callable(function):
            what = "no such name" if self.name not in namespace else f"a {type(function).__name__}"
            raise ApplicationError(
                f"--sink {self} must name a function of the notebook that takes a batch (a DataFrame) and its number, "
                f"got {what}",
                name=self.name,
                rule="function",
            )
        return ForEachBatch(function)


def absolute(path: str) -> str:
    """Return a URL unchanged; a path made absolute, with `~`, as each task manager has its own working directory. `..`
    is removed as Hadoop does, whatever is a symbolic link."""
    return path if is_url(path) else os.path.abspath(os.path.expanduser(path))


def is_url(path: str) -> bool:
    """Tell whether a path has a scheme, such as `s3a:` or `file:`."""
    return _SCHEME.match(path) is not None
