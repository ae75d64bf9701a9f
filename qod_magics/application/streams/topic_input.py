"""What a stream reads of a topic: schema, format and key of its records, and what happens to malformed ones."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from qod_magics.application.graph import SOURCE, topic_alias
from qod_magics.errors import ApplicationError, nearest
from qod_magics.formats import avro
from qod_magics.formats.avro import Avro
from qod_magics.formats.csv_lines import Csv
from qod_magics.formats.format import Format
from qod_magics.formats.json_values import Json
from qod_magics.formats.schema_registry import SchemaRegistry
from qod_magics.sources.registry import checked_name, kind_of
from qod_magics.sources.source import (
    ENDS,
    LATEST,
    check_pattern,
    check_start,
    check_topic,
    is_topic,
    matching,
    parse_start,
    together,
    topics_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import DataType, StructType


#: Marks a field that came after sessions were kept. At its default it is no part of a stream's hash, so that the hashes
#: in their manifests still hold.
LATER = {"later": True}
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


def schema_text(text: str, option: str = "--schema") -> str:
    """Return a schema as it is, or the Avro schema in a file that the text names. Raises ApplicationError about
    `option`: the file can't be read."""
    if not text.strip().endswith(avro.SUFFIXES):
        return text
    try:
        return Path(text.strip()).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ApplicationError(
            f"the file of a schema must be readable, got {text.strip()!r}: {why}", option=option, rule="readable"
        ) from None


def check_malformed(text: str) -> str:
    """Return what is done with malformed values, if it is known. Raises ApplicationError."""
    if text not in MALFORMED and not text.startswith(REJECTS):
        raise ApplicationError(
            f"malformed must be {', '.join(MALFORMED)} or {REJECTS}NAME, got {text!r}.{nearest(text, MALFORMED)}",
            option="--malformed",
        )
    if (rejects := rejects_of(text)) is not None:
        check_topic(rejects)
    return text


def rejects_of(malformed: Malformed) -> str | None:
    """Return the topic to which malformed records go; None: to none."""
    return malformed.removeprefix(REJECTS) if malformed.startswith(REJECTS) else None


def as_schema(given: str | DataType | None) -> str | None:
    """Return a schema as DDL. Raises ApplicationError: it is neither DDL nor a type of Spark."""
    if given is None:
        return None
    if isinstance(given, str):
        return schema_text(given)
    from pyspark.sql.types import DataType, StructType

    if not isinstance(given, DataType):
        raise ApplicationError(
            f"a schema is DDL such as 'id INT', or a StructType, not {type(given).__name__}", rule="schema"
        )
    return ddl_of(given) if isinstance(given, StructType) else _type(given)


def subject_of(topic: str) -> str:
    """Return the subject of a topic's values in a schema registry, by the usual rule."""
    return f"{topic}-value"


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


#: What is done with malformed values: a word of `MALFORMED`, or "topic:NAME"
Malformed: TypeAlias = str
MALFORMED: tuple[str, ...] = ("drop", "keep", "fail")
#: How the name of a topic of rejects begins
REJECTS = "topic:"
#: What a topic's values are.
FormatName = Literal["json", "avro", "csv", "raw"]
FORMATS: tuple[str, ...] = get_args(FormatName)
#: Of numbers in columns of times: Spark takes them for seconds
TimeUnit = Literal["s", "ms", "us", "ns"]
TIME_UNITS: tuple[str, ...] = get_args(TimeUnit)
#: Spark's name for a column of malformed values
CORRUPT = "_corrupt_record"
#: the name of a record's key
RECORD_KEY = "key"
#: What `--with` takes of a record: a column of this name, behind an underscore.
WITH = ("key", "timestamp", "headers", "topic", "partition", "offset")
#: to shed by what the queries ask for, in the place of columns: one of this name can't be shed by alone
AUTO = ("auto",)


@dataclass(frozen=True, slots=True)
class TopicInput:
    """A source that feeds a stream: a Kafka topic, or what `--source` names."""

    #: the name of the source: a topic, several with commas between, or kind and place, "json:/data/in"
    topic: str
    #: DDL of the rows, "id INT, fare DOUBLE", or a type of other JSON values; of Avro, its schema as JSON; None: the
    #: raw Kafka record
    schema: str | None = None
    starting: str = LATEST  #: where a first run begins: see `sources.starting`
    #: what is done with values that are not of the schema, besides being counted; None: they are dropped, or kept
    #: where the schema has a column for them
    malformed: Malformed | None = None
    #: the columns by whose values rows are shed, all rows of a value or none; `RECORD_KEY` alone, where the schema has
    #: no such column: the record's key; (): each row by itself; `AUTO`: as its queries ask for
    shed_by: tuple[str, ...] = ()
    time_unit: TimeUnit = "s"  #: of JSON numbers in the schema's columns of type TIMESTAMP
    format: FormatName | None = None  #: of a topic's values; None: JSON with a schema, else raw
    with_record: tuple[str, ...] = ()  #: what of the record is a column, too, of `WITH`
    json_options: tuple[tuple[str, str], ...] = ()  #: of Spark's reader of JSON, by their names in Spark's spelling
    registry: str | None = None  #: URL of the schema registry with whose frames Avro values begin; None: they have none
    #: a regular expression that names of topics match, also of those that are created later; `topic` has those that are
    #: read so far, "": they have not been looked up
    pattern: str | None = None

    def __post_init__(self) -> None:
        if self.pattern is not None:
            check_pattern(self.pattern)
        if self.pattern is None or self.topic:
            object.__setattr__(self, "topic", checked_name(self.topic))
        if self.time_unit not in TIME_UNITS:
            raise ApplicationError(f"time_unit must be one of {', '.join(TIME_UNITS)}, got {self.time_unit!r}")
        if self.schema is not None and not self.schema.strip():
            raise ApplicationError(f"the schema of the topic {self.topic!r} is empty: give DDL such as 'id INT'")
        check_start(self.starting)
        if self.is_several and parse_start(self.starting).offsets is not None:
            raise ApplicationError(
                f"--starting must be an end, a time or a group for several topics, got offsets {self.starting}; their "
                "partitions have the same numbers",
                option="--starting",
                rule="one topic",
            )
        if self.malformed is not None:
            check_malformed(self.malformed)
            if self.rejects is not None and not is_topic(self.topic):
                raise ApplicationError(
                    f"--malformed must be {', '.join(MALFORMED)} for {self.topic}, got {self.malformed}: its rows have "
                    "no offsets",
                    option="--malformed",
                )
            if self.rejects is not None and self.reads(self.rejects):
                raise ApplicationError(
                    f"--malformed must name another topic than the one that is read, got {self.rejects!r}",
                    option="--malformed",
                )
        if len({name.casefold() for name in self.shed_by}) < len(self.shed_by):
            raise ApplicationError(f"shed-by names a column twice: {', '.join(self.shed_by)}")
        self._check_kind()
        self._check_format()
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
            "format": self.format is not None,
            "registry": self.registry is not None,
            "with_record": bool(self.with_record),
            "json_options": bool(self.json_options),
        }
        for option, is_stated in stated.items():
            if is_stated and option not in kind.options:
                flag = f"--{option.removesuffix('_record').removesuffix('s').replace('_', '-')}"
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

    def _check_format(self) -> None:
        """Raise ApplicationError for a schema and options that its format does not take."""
        named = self.format
        if named is not None and named not in FORMATS:
            raise ApplicationError(f"format must be one of {', '.join(FORMATS)}, got {named!r}", option="--format")
        if self.registry is not None:
            if named != "avro":
                raise ApplicationError("--registry must stand beside --format avro; add that", option="--registry")
            SchemaRegistry(self.registry)
        if named == "raw" and self.schema is not None:
            raise ApplicationError("--schema must be left out for --format raw: a raw record is not parsed")
        if named in ("json", "csv", "avro") and self.schema is None:
            also = ", or --registry URL" if named == "avro" else ""
            raise ApplicationError(
                f"--format {named} must have a --schema, got none; give one{also}", option="--format"
            )
        for each in self.with_record:
            if each not in WITH:
                raise ApplicationError(
                    f"--with must name {', '.join(WITH)}, got {each!r}.{nearest(each, WITH)}", option="--with"
                )
        if len(set(self.with_record)) < len(self.with_record):
            raise ApplicationError(f"--with names a column twice: {', '.join(self.with_record)}", option="--with")
        if self.schema is None and self.with_record:
            raise ApplicationError(
                "--with must stand beside --schema, got none: a raw record has these columns", option="--with"
            )
        if self.schema is None:
            return
        if named == "avro":
            object.__setattr__(self, "schema", avro.normal(self.schema))
        elif avro.is_avro(self.schema):
            raise ApplicationError("an Avro schema must stand beside --format avro; add that", option="--format")
        if self.json_options:
            self._check_json_options()
        if named in ("avro", "csv") and self.time_unit != "s":
            raise ApplicationError(f"--time-unit must be left out for --format {named}: it is about numbers in JSON")
        if named == "csv" and form_of(self.schema) is not Form.ROW:
            raise ApplicationError(f"the schema of --format csv must be one of columns, got {self.schema!r}")

    def _check_json_options(self) -> None:
        """Raise ApplicationError for options that its format does not take, or that say two things."""
        if self.format in ("avro", "csv"):
            raise ApplicationError(
                f"--json-option must be left out for --format {self.format}: it is about JSON", option="--json-option"
            )
        names = [name for name, _ in self.json_options]
        if len(set(names)) < len(names):
            raise ApplicationError(
                f"--json-option must name each option once, got {', '.join(names)}",
                option="--json-option",
                rule="unique",
            )
        if self.time_unit != "s" and "timestampFormat" in names:
            raise ApplicationError(
                f"--json-option timestampFormat must be left out beside --time-unit {self.time_unit}; times are texts "
                "of this format, or numbers of this unit",
                option="--json-option",
                rule="one form",
            )

    @property
    def topics(self) -> tuple[str, ...]:
        """Return the names of what it reads: each topic, or the other source."""
        return topics_of(self.topic)

    @property
    def is_several(self) -> bool:
        """Return whether it reads several topics, or may."""
        return len(self.topics) > 1 or self.pattern is not None

    def reads(self, topic: str) -> bool:
        """Return whether it reads a topic of this name, or will once there is one."""
        return topic in self.topics or (self.pattern is not None and bool(matching(self.pattern, [topic])))

    def with_topics(self, topics: Sequence[str]) -> TopicInput:
        """Return it with the topics that its pattern has."""
        return replace(self, topic=together(topics))

    @property
    def parts(self) -> tuple[TopicInput, ...]:
        """Return it as one for each topic: each has its own partitions, positions and row accounting."""
        return tuple(replace(self, topic=topic) for topic in self.topics) if self.is_several else (self,)

    @property
    def values(self) -> Format:
        """Return how values are parsed."""
        if self.format == "avro":
            assert self.schema is not None
            return Avro(self.schema, self.registry or "", subject_of(self.topic) if self.registry else "")
        if self.format == "csv" or kind_of(self.topic).payload == "csv":
            return Csv()
        return Json(dict(self.json_options), self.json_options)

    @property
    def ddl(self) -> str | None:
        """Return the schema as DDL; None: the raw record."""
        return avro.ddl(self.schema) if self.schema is not None and self.format == "avro" else self.schema

    @property
    def form(self) -> Form:
        """Return what a JSON value is: a row, an array of rows, or another value."""
        return Form.ROW if self.ddl is None else form_of(self.ddl)

    @property
    def columns(self) -> str | None:
        """Return the DDL of the columns that are parsed from a value; None: the raw record."""
        return None if self.ddl is None else columns_of(self.ddl)

    @property
    def has_corrupt(self) -> bool:
        """Return whether the schema has the column in which Spark puts malformed values."""
        return self.ddl is not None and re.search(rf"\b{CORRUPT}\b", self.ddl) is not None

    @property
    def effective_malformed(self) -> Malformed:
        """Return what is done with malformed values."""
        return self.malformed or ("keep" if self.has_corrupt else "drop")

    @property
    def rejects(self) -> str | None:
        """Return the topic to which malformed records go; None: to none."""
        return rejects_of(self.effective_malformed)

    @property
    def record_columns(self) -> tuple[str, ...]:
        """Return the names of the columns that are taken of the record."""
        return tuple(f"_{each}" for each in self.with_record)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names under which a recipe sees this topic: `source`, and its own when that is an identifier."""
        alias = topic_alias(self.topic) if self.pattern is None else None
        return (SOURCE,) if alias is None else (SOURCE, alias)
