"""The protocol of a source: what the runtime asks of it, whatever is behind it.

A source has a name, which says its kind: "trips" is a Kafka topic, "json:/data/in" a directory of files, and
"rate:1000" Spark's `rate` source. It consists of splits, such as the partitions of a topic; rows are numbered within
each. A position holds the number of the next row to read, by split. Backlog and input rate are differences of
positions, and row accounting (`spark.cluster.books`) is the same for all kinds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from qod_magics.errors import ApplicationError
from qod_magics.kafka.names import is_of, is_own

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from qod_magics.kafka.cluster import Kafka

# --- Names ------------------------------------------------------------------------------------------------------------

#: The kind of a name without one: a topic.
KAFKA = "kafka"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
#: Between the topics of a stream that reads several.
_BETWEEN = ","


def kind_and_place(name: str) -> tuple[str, str]:
    """Return kind and place of a source by its name: "json:/data" is ("json", "/data"), "trips" ("kafka", "trips")."""
    kind, colon, place = name.partition(":")
    return (kind, place) if colon else (KAFKA, name)


def is_topic(name: str) -> bool:
    """Tell whether a source is a Kafka topic."""
    return kind_and_place(name)[0] == KAFKA


def topics_of(name: str) -> tuple[str, ...]:
    """Return the names of the sources that a stream of this source reads: of each topic, or the name itself."""
    return tuple(filter(None, name.split(_BETWEEN))) if is_topic(name) else (name,)


def together(topics: Iterable[str]) -> str:
    """Return the name of the source of a stream that reads these topics."""
    return _BETWEEN.join(topics)


def check_topics(names: str) -> str:
    """Return the names of topics, "east,west", without spaces; raise ApplicationError unless Kafka allows each, and
    each is there once."""
    if re.search(r"[*+?|()\[\]^$]|^pattern:", names):
        raise ApplicationError(
            f"--topic must name each topic, got the pattern {names!r}; write them with commas between, or a pattern as "
            "--topic-pattern",
            value=names,
            option="--topic",
            rule="names",
        )
    topics = [check_topic(name.strip()) for name in names.split(_BETWEEN)]
    if len(set(topics)) < len(topics):
        raise ApplicationError(
            f"--topic must name each topic once, got {names!r}", value=names, option="--topic", rule="unique"
        )
    return _BETWEEN.join(topics)


def check_pattern(pattern: str) -> str:
    """Return a pattern of names of topics; raise ApplicationError unless it is a regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        why = f"got {pattern!r} ({error})"
    else:
        if pattern.strip():
            return pattern
        why = "got none"
    raise ApplicationError(
        f"--topic-pattern must be a regular expression, {why}; write one such as 'trips-.*'",
        value=pattern,
        option="--topic-pattern",
        rule="regular expression",
    )


def matching(pattern: str, topics: Iterable[str]) -> list[str]:
    """Return the topics whose whole names match a pattern, sorted; never those that sessions make for themselves."""
    whole = re.compile(pattern)
    return sorted(topic for topic in topics if whole.fullmatch(topic) and not is_own(topic))


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
OPTIONS = frozenset(
    {
        *("schema", "starting", "malformed", "time_unit", "json_options", "shed_by"),
        *("format", "registry", "with_record"),
    }
)


@dataclass(frozen=True, slots=True)
class Context:
    """What sources of a session share."""

    kafka: Kafka  #: the broker
    directory: Path | None = None  #: for files of their own, which all task managers reach; None: there is none
    users: Kafka | None = None  #: the cluster that has the topics which cells name; None: the broker
    session: str = ""  #: id of the session, which its own topics have in their names

    @property
    def clusters(self) -> tuple[Kafka, ...]:
        """Return the Kafka clusters."""
        return (self.kafka,) if self.users is None else (self.users, self.kafka)

    def of(self, topic: str) -> Kafka:
        """Return the cluster that has a topic: those that this session has made for itself are on its broker."""
        return self.kafka if self.users is None or is_of(self.session, topic) else self.users


@dataclass(frozen=True, slots=True)
class Identity:
    """SQL of what tells the rows of a source apart."""

    row: str = "topic, partition, offset"  #: columns whose hash decides whether a row is kept
    number: str = "offset"  #: a whole number; rows whose number is a multiple of n are timed
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
    due: str | None = None  #: the dial by which the reader has batches take turns; None: it does not


@dataclass(frozen=True, slots=True)
class Span:
    """Which rows a batch read."""

    start: Position | None  #: None: it is not known
    end: Position
    restarted: bool = False  #: whether a new generator of rows has begun at `start`: there are none before


#: Takes what a reader reads, and a position in front of which nothing is left to read.
GoOn = Callable[[Part, Position], None]


def read_on(part: Part, position: Position) -> None:
    """Leave a reader's position to its batches."""


class Source(Protocol):
    """One kind of source, for all sources of this kind in a session. Methods may be called from any thread."""

    payload: ClassVar[Payload]
    identity: ClassVar[Identity]
    options: ClassVar[frozenset[str]]  #: those of `OPTIONS` that it takes
    realtime: ClassVar[str]  #: why real-time mode can't read it, as a clause; "": it can
    every_s: ClassVar[float]  #: minimum seconds between two batches, as new rows come no more often; 0: no minimum
    sheds_on_read: ClassVar[bool]  #: whether a reader of ours drops rows before they are rows of Spark
    has_gaps: ClassVar[bool]  #: whether some numbers have no row, so that a backlog has to be looked up
    unit: ClassVar[str]  #: what messages call a source of this kind
    splits_unit: ClassVar[str]  #: what messages call its splits

    def __init__(self, context: Context) -> None: ...

    @staticmethod
    def checked(place: str) -> str:
        """Return the place, which is what a name has after its kind, in normal form. Raises ApplicationError."""
        ...

    @staticmethod
    def span(place: str, noted: Mapping[str, Any]) -> Span | None:
        """Return which rows a batch read, by the values of the aggregates of `noted`; None: it read none, or Spark's
        own progress reports have the positions."""
        ...

    def noted(self, place: str) -> list[Column]:
        """Return aggregates that are observed over all rows read, before any is dropped; `span` takes their values."""
        ...

    def splits(self, place: str) -> int:
        """Return the number of splits, and so of instances that can read it. Raises QodError: it is not there."""
        ...

    def begin(self, place: str, starting: str) -> Position:
        """Return where a reader begins that starts at the "latest" or the "earliest" row. Raises QodError."""
        ...

    def ends(self, places: Collection[str]) -> tuple[Mapping[str, Position], Mapping[str, str]]:
        """Return the ends of sources by place, and by place why an end is not known. Raises QodError: none is known."""
        ...

    def read(self, spark: SparkSession, place: str, part: Part) -> DataFrame:
        """Return the rows of a part as a streaming DataFrame. Its columns are those of the payload and of `identity`;
        the recipe does not see the latter where their names begin with an underscore. Raises QodError."""
        ...

    def tend(self, parts: Iterable[Part], go_on: GoOn = read_on) -> None:
        """Look after what instances read, about once a second; `starting` is where each has got to. `go_on` is called
        for those whose next rows can't be read any more."""
        ...


# --- Where a source starts --------------------------------------------------------------------------------------------

#: The ends of a source, which every kind of source knows.
LATEST, EARLIEST = "latest", "earliest"
ENDS = (LATEST, EARLIEST)
#: All forms, as help and messages show them.
FORMS = "latest, earliest, -15m, 2026-01-31T10:00, group:NAME or '{\"0\": 12}'"
_GROUP = "group:"
_AGO = re.compile(r"-(\d+(?:\.\d+)?)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class Start:
    """A parsed starting point: one of these is given."""

    end: str = ""  #: one of `ENDS`
    ago: timedelta | None = None  #: before the moment at which the first run begins
    at: datetime | None = None
    group: str = ""  #: a consumer group, whose committed offsets are taken
    offsets: dict[int, int] | None = None  #: by partition

    def instant_ms(self, now: datetime) -> int | None:
        """Return the time from which rows are read, in milliseconds since 1970; None: it is not a time."""
        at = self.at if self.ago is None else now - self.ago
        return None if at is None else int(at.timestamp() * 1000)


def parse_start(text: str) -> Start:
    """Return the starting point of a text. A time without an offset is in UTC. Raises ApplicationError."""
    if text in ENDS:
        return Start(end=text)
    if ago := _AGO.fullmatch(text):
        try:
            start = Start(ago=timedelta(**{_UNITS[ago[2]]: float(ago[1])}))
            start.instant_ms(datetime.now(UTC))
            return start
        except OverflowError:
            raise _wrong(text) from None
    if text.startswith(_GROUP) and len(text) > len(_GROUP):
        return Start(group=text.removeprefix(_GROUP))
    if text.startswith("{"):
        return Start(offsets=_offsets(text))
    try:
        at = datetime.fromisoformat(text)
        return Start(at=at if at.tzinfo is not None else at.replace(tzinfo=UTC))
    except (TypeError, ValueError):
        raise _wrong(text) from None


def check_start(text: str) -> str:
    """Return the text if it is a starting point. Raises ApplicationError."""
    parse_start(text)
    return text


def _offsets(text: str) -> dict[int, int]:
    try:
        found = {int(partition): offset for partition, offset in json.loads(text).items()}
    except ValueError:
        raise _wrong(text) from None
    if not found or not all(type(offset) is int and offset >= 0 for offset in found.values()) or min(found) < 0:
        raise _wrong(text)
    return found


def _wrong(text: str) -> ApplicationError:
    return ApplicationError(f"--starting must be {FORMS}, got {text!r}", value=text, rule="starting point")
