"""A job: all that one task instance reads and writes, and the facts that its plan tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qod_magics.application.streams.sink import Sink, TableFacts
from qod_magics.application.streams.topic_input import Form
from qod_magics.application.tasks import head_of
from qod_magics.application.weights import WEIGHT
from qod_magics.formats.format import Format
from qod_magics.sources.registry import kind_of
from qod_magics.spark.plans.parsing import JSON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from qod_magics.application.streams.topic_input import Malformed, TimeUnit, TopicInput
    from qod_magics.application.tasks import TaskSpec
    from qod_magics.sources.source import Position

#: Why groups that an operator with state reads are aggregated in micro-batches.
GROUPS_ONCE = "an operator with state reads its groups: each is emitted once, when the watermark has passed it"

#: Columns of event times with a watermark, each with its delay in milliseconds.
Watermarks = tuple[tuple[str, int], ...]
#: Where Spark keeps that delay in a column's metadata.
DELAY = "spark.watermarkDelayMs"

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
    pattern: str | None = None  #: of the topics of its task, which may get more feeds, or fewer, while it runs
    weighed_since: str | None = None  #: the stream of groups from which on `_weight` counts; None: from the input on
    watermarks: Watermarks = ()  #: of a stream, declared upstream

    @property
    def starting_here(self) -> Mapping[int, int]:
        """Return where a new checkpoint begins to read its partitions; 0 for a partition that the row accounting does
        not know yet."""
        return {partition: self.starting.get(partition, 0) for partition in self.partitions}


def source_feed(name: str, head: str, source: TopicInput, partitions: tuple[int, ...], starting: Position) -> Feed:
    """Return what an instance reads of a source, for the stream `head`."""
    return Feed(
        name,
        (head_of(head),),
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
        pattern=source.pattern,
    )


def feed_of(spec: TaskSpec, head: str) -> str:
    """Return the name of the feed from a topic, given as `TaskSpec.topics` does: the task's id, or "head>task" if the
    task has several, or may get more."""
    alone = len(spec.heads) == 1 and len(spec.topics) == 1 and spec.pattern is None
    return spec.id if alone else f"{head}>{spec.id}"


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
    weighed_since: str | None = None  #: the same for its output
    chained: bool = False  #: whether an operator with state reads its groups, here or downstream
    run: str = ""  #: names the directory of a file sink, one per checkpoint
    groups: tuple[str, ...] | None = None  #: columns by which a row in a Kafka sink replaces an earlier one, if known
    apart: bool = False  #: whether each instance has its own rows of a group
    record: tuple[str, ...] = ()  #: the columns of a record in a Kafka sink; (): a row is JSON in its value
    whole: str = ""  #: what needs complete mode, "ORDER BY and LIMIT"; "": nothing does
    lends: frozenset[str] = frozenset()  #: the outgoing streams that may send rows of a key to several instances
    table: TableFacts | None = None  #: into which the sink writes
    refreshes: bool = False  #: whether it restarts from time to time, to read tables beside its streams again

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
        if self.refreshes:
            return "--refresh restarts it, which would have a real-time batch read again"
        return None

    @property
    def reads_as(self) -> str:
        """Return a name for what reads its sources: one for each checkpoint."""
        return f"{self.instance}-{self.run}"

    @property
    def batches_every_s(self) -> float:
        """Return seconds between two of its micro-batches, at least: as declared, or as its sources have new rows."""
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
