"""The protocol of a source: what the runtime asks of it, whatever is behind it.

A source is known by its name, which says its kind: "trips" is a Kafka topic, "json:/data/in" a directory of files,
"rate:1000" Spark's `rate` source. Its rows are numbered in splits: a position is the number of the next row to read in
each. So backlog and input rate are differences of positions, whatever the source counts by itself, and row accounting
(`spark.cluster.books`) is the same for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from qod_magics.errors import ApplicationError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from qod_magics.kafka.cluster import Kafka


# --- Names ------------------------------------------------------------------------------------------------------------
# Names of sources: "trips" is a Kafka topic, "json:/data/in" a source of another kind.

#: The kind of a name without one: a topic.
KAFKA = "kafka"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def divided(name: str) -> tuple[str, str]:
    """Return kind and place of a source by its name: "json:/data" is ("json", "/data"), "trips" ("kafka", "trips")."""
    kind, colon, place = name.partition(":")
    return (kind, place) if colon else (KAFKA, name)


def is_topic(name: str) -> bool:
    """Tell whether a source is a Kafka topic."""
    return divided(name)[0] == KAFKA


def check_topic(topic: str) -> str:
    """Return the topic itself, if Kafka allows the name; raise ApplicationError otherwise."""
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ApplicationError(
            f"{topic!r} can't name a Kafka topic: 1 to 249 letters, digits, dots, underscores and hyphens are allowed."
        )
    return topic


#: By split: the number of the next row.
Position = Mapping[int, int]
#: What a row is when the shedder sees it: a column `value` that is parsed behind the shedder, or columns already.
Payload = Literal["json", "csv", "columns"]
#: Options of a stream that are about its source, beside the source itself: the fields of `TopicInput`.
OPTIONS = frozenset({"schema", "starting", "malformed", "time_unit", "shed_by"})


@dataclass(frozen=True, slots=True)
class Context:
    """What sources of a session share."""

    kafka: Kafka  #: the broker
    directory: Path | None = None  #: for files of their own, which all task managers reach; None: there is none


@dataclass(frozen=True, slots=True)
class Identity:
    """SQL of what tells the rows of a source apart."""

    row: str = "topic, partition, offset"  #: columns: the same for the same row after any replay
    number: str = "offset"  #: a whole number, spread evenly: of which each n-th row is timed
    time: str = "timestamp"  #: when the row came


@dataclass(frozen=True, slots=True)
class Part:
    """What one instance reads of a source."""

    name: str
    splits: tuple[int, ...]
    starting: Position  #: where a new checkpoint begins
    run: str = ""  #: names the checkpoint; "": the plan is only inspected
    schema: str | StructType | None = None  #: of the columns
    most: int | None = None  #: rows of a micro-batch, at most; None: real-time mode
    headers: bool = False  #: whether the headers of records are read
    keep: str | None = None  #: the dial by which the reader sheds; None: the plan sheds
    pace: str | None = None  #: the dial by which the reader delays batches; None: it does not


@dataclass(frozen=True, slots=True)
class Span:
    """Which rows a batch read."""

    start: Position | None  #: None: it is not known
    end: Position
    anew: bool = False  #: whether a new generator of rows has begun at `start`: there are none before


class Source(Protocol):
    """One kind of source, for all sources of this kind in a session. Methods may be called from any thread."""

    payload: ClassVar[Payload]
    identity: ClassVar[Identity]
    options: ClassVar[frozenset[str]]  #: those of `OPTIONS` that it takes
    realtime: ClassVar[str]  #: why real-time mode can't read it, as a clause; "": it can
    every_s: ClassVar[float]  #: seconds between two batches at least: more often there are no new rows
    sheds_on_read: ClassVar[bool]  #: whether a reader of ours drops rows before they are rows of Spark
    has_gaps: ClassVar[bool]  #: whether numbers may be without a row, which a look at the source tells
    unit: ClassVar[str]  #: what a source of this kind is called in messages, and what its splits are
    splits_unit: ClassVar[str]

    def __init__(self, context: Context) -> None: ...

    @staticmethod
    def checked(place: str) -> str:
        """Return what a name has after its kind, in normal form. Raises ApplicationError."""
        ...

    @staticmethod
    def span(place: str, noted: Mapping[str, Any]) -> Span | None:
        """Return which rows a batch read, from what `noted` asked for; None if there were none. A source whose progress
        reports have positions is not asked."""
        ...

    def noted(self, place: str) -> list[Column]:
        """Return aggregates over all rows read, observed in front of the shedder, for `span`."""
        ...

    def splits(self, place: str) -> int:
        """Return among how many instances its rows can be divided. Raises QodError: it is not there."""
        ...

    def begin(self, place: str, starting: str) -> Position:
        """Return where a reader begins that starts at the "latest" or the "earliest" row. Raises QodError."""
        ...

    def ends(self, places: Collection[str]) -> tuple[Mapping[str, Position], Mapping[str, str]]:
        """Return the ends of sources by place, and why others are not known. Raises KafkaError: none are."""
        ...

    def read(self, spark: SparkSession, place: str, part: Part) -> DataFrame:
        """Return the rows of a part as a streaming DataFrame: those of its payload, and those of its `identity`, which
        a recipe does not see where their names begin with an underscore. Raises QodError."""
        ...

    def tend(self, parts: Iterable[Part]) -> None:
        """Look after what instances read, about once a second; `starting` is where each has got to."""
        ...
