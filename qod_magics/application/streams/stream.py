"""What one `%%qod_stream` cell declares."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, get_args

from qod_magics.application.graph import SOURCE, check_stream_name, topic_alias
from qod_magics.application.streams.sink import Memory, Sink
from qod_magics.errors import ApplicationError, nearest
from qod_magics.sources.registry import checked_name, kind_of
from qod_magics.sources.source import is_topic
from qod_magics.sources.starting import ENDS, LATEST, check_start

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from qod_magics.application.recipes.recipe import Recipe


# --- Schemas of topics ------------------------------------------------------------------------------------------------

#: the column of values that are no rows
VALUE = "value"
_ROWS = re.compile(r"\s*array\s*<\s*struct\s*<.*>\s*>\s*", re.IGNORECASE | re.DOTALL)
_VALUE = re.compile(r"\s*(?:(?:array|map)\s*<.*>|\w+(?:\s*\([\d\s,]*\))?)\s*", re.IGNORECASE | re.DOTALL)


class Form(Enum):
    """What the JSON value of a record is."""

    ROW = "row"  #: an object: one row
    ROWS = "rows"  #: an array of objects: a row each
    VALUE = "value"  #: an array of other values, a map, or a scalar: the column `VALUE` of one row


def form_of(schema: str) -> Form:
    """Return the form of the values that a schema, as DDL, describes."""
    if _ROWS.fullmatch(schema):
        return Form.ROWS
    return Form.VALUE if _VALUE.fullmatch(schema) else Form.ROW


def columns_of(schema: str) -> str:
    """Return the DDL of the columns that are parsed: those of the schema, or the column `VALUE` with its type."""
    return schema if form_of(schema) is Form.ROW else f"`{VALUE}` {schema.strip()}"


def as_schema(given: str | DataType | None) -> str | None:
    """Return a schema as DDL. Raises ApplicationError: it is neither DDL nor a type of Spark."""
    if given is None or isinstance(given, str):
        return given
    from pyspark.sql.types import DataType, StructType

    if not isinstance(given, DataType):
        raise ApplicationError(
            f"a schema is DDL such as 'id INT', or a StructType, not {type(given).__name__}", rule="schema"
        )
    return ddl_of(given) if isinstance(given, StructType) else _type(given)


def ddl_of(schema: str | StructType) -> str:
    """Return the columns of rows as DDL."""
    if isinstance(schema, str):
        return schema
    return ", ".join(f"{_quoted(field.name)} {_type(field.dataType)}" for field in schema.fields)


def _type(kind: DataType) -> str:
    """Return a type as DDL, with the names of fields quoted: `simpleString()` leaves them as they are."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{_quoted(field.name)}: {_type(field.dataType)}' for field in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_type(kind.keyType)}, {_type(kind.valueType)}>"
    return str(kind.simpleString())


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))


Mode = Literal["auto", "realtime", "microbatch"]
Malformed = Literal["drop", "keep", "fail"]
MODES: tuple[str, ...] = get_args(Mode)
MALFORMED: tuple[str, ...] = get_args(Malformed)
#: Of numbers in columns of times: Spark takes them for seconds
TimeUnit = Literal["s", "ms", "us", "ns"]
TIME_UNITS: tuple[str, ...] = get_args(TimeUnit)
#: Spark's name for a column of malformed values
CORRUPT = "_corrupt_record"
#: the name of a record's key
RECORD_KEY = "key"
#: to shed by what the queries ask for, in the place of columns: one of this name can't be shed by alone
AUTO = ("auto",)
#: Spark's minimum duration of a real-time batch, in seconds
LEAST_REALTIME_TRIGGER_S = 5.0
#: maximum number of instances of a task whose streams state none
DEFAULT_MAX_PARALLELISM = 8
#: approximate minimum latency of micro-batches, seconds: a query with a lower maximum gets real-time mode
BATCH_LATENCY_S = 1.0
#: the defaults of a query without restrictions: the lowest ordinary priority ...
DEFAULT_PRIORITY = 0
#: ... and no shedding, unless the user allows it
DEFAULT_MIN_ACCURACY = 1.0


@dataclass(frozen=True, slots=True)
class TopicInput:
    """A source that feeds a stream: a Kafka topic, or what `--source` names."""

    topic: str  #: the name of the source: a topic, or kind and place, "json:/data/in"
    #: DDL of the JSON rows, "id INT, fare DOUBLE", or a type of other values; None: the raw Kafka record
    schema: str | None = None
    starting: str = LATEST  #: where a first run begins: see `sources.starting`
    #: what is done with values that are not JSON of the schema, besides being counted; None: they are dropped, or kept
    #: where the schema has a column for them
    malformed: Malformed | None = None
    #: the columns by whose values rows are shed, all rows of a value or none; `RECORD_KEY` alone, where the schema has
    #: no such column: the record's key; (): each row by itself; `AUTO`: as its queries ask for
    shed_by: tuple[str, ...] = ()
    time_unit: TimeUnit = "s"  #: of JSON numbers in the schema's columns of type TIMESTAMP

    def __post_init__(self) -> None:
        object.__setattr__(self, "topic", checked_name(self.topic))
        if self.time_unit not in TIME_UNITS:
            raise ApplicationError(f"time_unit must be one of {', '.join(TIME_UNITS)}, got {self.time_unit!r}")
        if self.schema is not None and not self.schema.strip():
            raise ApplicationError(f"the schema of the topic {self.topic!r} is empty: give DDL such as 'id INT'")
        check_start(self.starting)
        if self.malformed is not None and self.malformed not in MALFORMED:
            raise ApplicationError(f"malformed is 'drop', 'keep' or 'fail', not {self.malformed!r}")
        if len({name.casefold() for name in self.shed_by}) < len(self.shed_by):
            raise ApplicationError(f"shed-by names a column twice: {', '.join(self.shed_by)}")
        self._check_kind()
        if self.schema is None and self.shed_by == AUTO:
            raise ApplicationError(
                f"--shed-by {AUTO[0]} chooses among columns, and raw records have none: give the topic a --schema, or "
                f"take --shed-by {RECORD_KEY}, the record's key",
                rule="columns",
            )
        columns = kind_of(self.topic).payload == "columns"
        if self.schema is None and self.shed_by not in ((), (RECORD_KEY,)) and not columns:
            raise ApplicationError(
                f"raw records have no column {self.shed_by[0]!r} to shed by: give the topic a --schema, or take "
                f"--shed-by {RECORD_KEY}, the record's key"
            )
        if self.form is Form.ROWS and self.time_unit != "s":
            raise ApplicationError(
                f"--time-unit must be left out where each value is an array of rows, got {self.time_unit}: take BIGINT "
                "there, and timestamp_millis() or timestamp_micros() in the query"
            )
        if self.form is not Form.ROW and self.has_corrupt:
            raise ApplicationError(f"a schema with {CORRUPT} must be one of single rows, got {self.schema!r}")
        if self.form is Form.ROWS and self.shed_by not in ((), (RECORD_KEY,), AUTO):
            raise ApplicationError(
                f"--shed-by must be {RECORD_KEY} where each value is an array of rows, got {' '.join(self.shed_by)}"
            )

    def _check_kind(self) -> None:
        """Raise ApplicationError for options that a source of its kind does not take."""
        kind = kind_of(self.topic)
        if is_topic(self.topic):
            return
        stated = {
            "schema": self.schema is not None,
            "starting": self.starting != LATEST,
            "malformed": self.malformed is not None,
            "time_unit": self.time_unit != "s",
            "shed_by": bool(self.shed_by),
        }
        for option, is_stated in stated.items():
            if is_stated and option not in kind.options:
                flag = f"--{option.replace('_', '-')}"
                raise ApplicationError(f"{flag} must be left out for a {kind.unit}, got {self.topic}", option=flag)
        if self.starting not in ENDS:
            raise ApplicationError(
                f"--starting must be {' or '.join(ENDS)} for a {kind.unit}, got {self.starting}", option="--starting"
            )
        if kind.payload != "json" and self.shed_by == AUTO:
            raise ApplicationError(f"--shed-by must name columns for {self.topic}, got {AUTO[0]}", option="--shed-by")
        if kind.payload != "json" and self.form is not Form.ROW:
            raise ApplicationError(f"the schema of {self.topic} must be one of columns, got {self.schema!r}")
        if self.shed_by == (RECORD_KEY,) and not re.search(rf"\b{RECORD_KEY}\b", self.schema or ""):
            raise ApplicationError(
                f"--shed-by must name columns for {self.topic}, got {RECORD_KEY}: it has no keys", option="--shed-by"
            )

    @property
    def form(self) -> Form:
        """Return what a JSON value is: a row, an array of rows, or another value."""
        return Form.ROW if self.schema is None else form_of(self.schema)

    @property
    def columns(self) -> str | None:
        """Return the DDL of the columns that are parsed from a value; None: the raw record."""
        return None if self.schema is None else columns_of(self.schema)

    @property
    def has_corrupt(self) -> bool:
        """Return whether the schema has the column in which Spark puts malformed values."""
        return self.schema is not None and re.search(rf"\b{CORRUPT}\b", self.schema) is not None

    @property
    def effective_malformed(self) -> Malformed:
        """Return what is done with malformed values."""
        return self.malformed or ("keep" if self.has_corrupt else "drop")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names under which a recipe sees this topic: `source`, and its own when that is an identifier."""
        alias = topic_alias(self.topic)
        return (SOURCE,) if alias is None else (SOURCE, alias)


@dataclass(frozen=True, slots=True)
class StreamDeclaration:
    """A stream: a recipe over inputs, and the user's requirements. Validated by itself on creation.

    Restrictions (`priority`, `min_accuracy`) belong to *queries*: streams that nobody reads and that state a sink or a
    restriction. The defaults are priority 0, minimum accuracy 1.0 (no shedding unless the user allows it) and
    the memory sink. A stream that states neither waits until somebody reads it.

    Raises ApplicationError for values out of range and for options that contradict one another.
    """

    name: str
    recipe: Recipe
    inputs: TopicInput | tuple[str, ...] = ()  #: a topic, or streams; (): the recipe reads a source of its own
    priority: int | None = None  #: higher wins
    min_accuracy: float | None = None  #: fraction of 1: minimum share of the input that must reach the result
    parallelism: int = 1  #: instances
    max_parallelism: int | None = None  #: maximum number of instances when it is scaled; None: not stated
    near: str | None = None  #: a stream beside which its instances start, where they have the CPU; None: anywhere
    key: str | None = None  #: column that partitions the inputs' rows over the instances
    sink: Sink | None = None
    mode: Mode = "auto"
    trigger_s: float | None = None  #: seconds between batches; None: the runtime's choice
    #: target of the 95th percentile of latency, from a row's arrival to its result, seconds; None: not stated
    max_latency_s: float | None = None
    utility: float | None = None  #: of meeting the target; None: the priority
    min_juice: float | None = None  #: share of the rows that arrive which must be processed; None: not stated
    fuse: bool = True  #: may share a Spark query with its neighbour

    def __post_init__(self) -> None:
        check_stream_name(self.name)
        self._check_numbers()
        self._check_inputs()
        self._check_mode()

    @property
    def topic(self) -> TopicInput | None:
        """Return the topic that feeds it, if one does."""
        return self.inputs if isinstance(self.inputs, TopicInput) else None

    @property
    def upstream(self) -> tuple[str, ...]:
        """Return the streams that feed it."""
        return () if isinstance(self.inputs, TopicInput) else self.inputs

    @property
    def input_names(self) -> tuple[str, ...]:
        """Return the names by which its recipe sees its inputs."""
        return self.inputs.names if isinstance(self.inputs, TopicInput) else self.inputs

    @property
    def restricted(self) -> bool:
        """Return whether it states a priority or a minimum accuracy."""
        return self.priority is not None or self.min_accuracy is not None

    @property
    def demands(self) -> str:
        """Return what makes it a query, as the user would write it: "--sink memory -p 2"; empty when nothing does."""
        stated = (("--sink", self.sink), ("--priority", self.priority), ("--min-accuracy", self.min_accuracy))
        return " ".join(f"{option} {value}" for option, value in stated if value is not None)

    @property
    def effective_priority(self) -> int:
        """Return the priority it runs at if it is a query."""
        return DEFAULT_PRIORITY if self.priority is None else self.priority

    @property
    def effective_min_accuracy(self) -> float:
        """Return the minimum accuracy it runs at if it is a query."""
        return DEFAULT_MIN_ACCURACY if self.min_accuracy is None else self.min_accuracy

    @property
    def is_hurried(self) -> bool:
        """Return whether its maximum latency is below that of micro-batches."""
        return self.max_latency_s is not None and self.max_latency_s < BATCH_LATENCY_S

    @property
    def effective_sink(self) -> Sink:
        """Return where its rows go if it is a query."""
        return Memory() if self.sink is None else self.sink

    def _check_numbers(self) -> None:
        check_priority(self.priority)
        check_min_accuracy(self.min_accuracy)
        if isinstance(self.parallelism, bool) or not isinstance(self.parallelism, int) or self.parallelism < 1:
            raise ApplicationError(f"parallelism counts instances: a whole number from 1, not {self.parallelism!r}")
        most = self.max_parallelism
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < self.parallelism):
            raise ApplicationError(
                f"max-parallelism is a whole number from the parallelism, {self.parallelism}, not {most!r}"
            )
        if self.trigger_s is not None and not (math.isfinite(self.trigger_s) and self.trigger_s > 0):
            raise ApplicationError(f"trigger is in seconds and above 0, not {self.trigger_s!r}")
        check_max_latency(self.max_latency_s)
        check_utility(self.utility)
        check_min_juice(self.min_juice)

    def _check_inputs(self) -> None:
        if not isinstance(self.inputs, TopicInput) and len(set(self.inputs)) < len(self.inputs):
            twice = next(name for name in self.inputs if self.inputs.count(name) > 1)
            raise ApplicationError(f"{self.name!r} names its input {twice!r} twice; once is enough")
        if self.key is not None and not self.key.strip():
            raise ApplicationError(f"the key of {self.name!r} is empty: name a column of its inputs")
        if self.key is not None and self.topic is not None:
            raise ApplicationError(
                f"{self.name!r} reads the topic {self.topic.topic!r}, whose own partitions spread its rows: remove "
                "--key, or put it on a stream that reads this one"
            )
        if not self.input_names:
            if self.parallelism > 1:
                raise ApplicationError(
                    f"{self.name!r} reads a source of its own, which can't be split among {self.parallelism} "
                    "instances: give it --topic or --from, or parallelism 1"
                )
            if self.key is not None:
                raise ApplicationError(f"{self.name!r} has no input whose rows --key {self.key} could spread")

    def _check_mode(self) -> None:
        if self.mode not in MODES:
            raise ApplicationError(f"unknown mode {self.mode!r}.{nearest(self.mode, MODES)}")
        if self.mode != "realtime":
            return
        if self.sink is not None and not self.sink.realtime:
            raise ApplicationError(f"real-time mode can't write {self.sink}: take --mode auto or microbatch")
        if self.trigger_s is not None and self.trigger_s < LEAST_REALTIME_TRIGGER_S:
            raise ApplicationError(
                f"a real-time batch lasts at least {LEAST_REALTIME_TRIGGER_S:g} s (rows do not wait for its end), "
                f"not {self.trigger_s:g}: leave --trigger out, or take --mode microbatch"
            )


def check_priority(priority: int | None) -> None:
    """ApplicationError unless it is a whole number or None."""
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int)):
        raise ApplicationError(f"priority is a whole number, higher wins, not {priority!r}")


def check_max_latency(seconds: float | None) -> None:
    """ApplicationError unless it is a number of seconds above 0, or None."""
    if seconds is not None and not (_is_number(seconds) and math.isfinite(seconds) and seconds > 0):
        raise ApplicationError(f"the maximum latency is in seconds and above 0, not {seconds!r}")


def check_utility(utility: float | None) -> None:
    """ApplicationError unless it is a finite number of 0 or more, or None."""
    if utility is not None and not (_is_number(utility) and math.isfinite(utility) and utility >= 0):
        raise ApplicationError(f"utility is a number of 0 or more, not {utility!r}")


def check_min_juice(juice: float | None) -> None:
    """ApplicationError unless it is a fraction above 0 and up to 1, or None."""
    if juice is not None and not (_is_number(juice) and 0 < juice <= 1):
        raise ApplicationError(
            f"minimum juice must be a fraction above 0 and up to 1, got {juice!r}", value=juice, rule="in range"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_min_accuracy(min_accuracy: float | None) -> None:
    """ApplicationError unless it is a fraction of 1 or None."""
    if min_accuracy is None:
        return
    number = _is_number(min_accuracy)
    if not number or not 0 <= min_accuracy <= 1:
        percent = number and 1 < min_accuracy <= 100
        hint = f": write {min_accuracy / 100:g} for {min_accuracy:g} %" if percent else ""
        raise ApplicationError(
            f"min-accuracy is a fraction between 0 and 1, not {min_accuracy!r}{hint}", rule="between 0 and 1"
        )
