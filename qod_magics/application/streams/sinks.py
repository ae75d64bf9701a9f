"""What `--sink` and `--sink-option` name: the kinds of sinks, and texts of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar

from qod_magics.application.recipes.building import analysis_errors_unprinted
from qod_magics.application.streams.sink import (
    AvroFiles,
    Console,
    CsvFiles,
    ForEachBatch,
    JsonFiles,
    KafkaTopic,
    Memory,
    Named,
    Orc,
    Parquet,
    Sink,
    TableFacts,
    TextFiles,
    Where,
    XmlFiles,
)
from qod_magics.application.streams.tables import DataSource, Delta, Iceberg, Table
from qod_magics.application.streams.topic_input import schema_text
from qod_magics.arguments.option import pairs
from qod_magics.errors import ApplicationError, nearest
from qod_magics.formats import avro
from qod_magics.formats.avro import check_written, encoded_sql, schema_of
from qod_magics.formats.schema_registry import SchemaRegistry, registered

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


# --- Kafka topics with Avro -------------------------------------------------------------------------------------------
# A Kafka topic whose values are Avro, as a sink: `--sink kafka:T --sink-option format=avro registry=URL`.


#: The option that says how values are written, its values, and those that go with Avro.
FORMAT, JSON, AVRO = "format", "json", "avro"
_REGISTRY, _SCHEMA = "registry", "schema"


@dataclass(frozen=True, slots=True)
class AvroTopic(KafkaTopic):
    """A topic whose values are Avro: behind the frame of a registry, where their schema becomes the newest of the
    subject TOPIC-value, or bare, by a schema that is given."""

    schema: str = ""  #: as JSON; "": made of the columns
    registry: str = ""  #: its URL; "": values have no frame
    read_back: ClassVar[bool] = False
    in_json: ClassVar[bool] = False
    looks_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        KafkaTopic.__post_init__(self)
        if not (self.schema or self.registry):
            raise ApplicationError(
                "--sink-option format=avro must go with registry=URL or schema=FILE, got neither; a reader needs the "
                "schema",
                option="--sink-option",
                rule="schema",
            )
        if self.schema:
            object.__setattr__(self, "schema", avro.normal(self.schema, "--sink-option"))
        if self.registry:
            SchemaRegistry(self.registry)

    @property
    def form(self) -> str:
        """Say how values are written."""
        if not self.registry:
            return "Avro without a frame"
        return f"Avro of the subject {self._subject} at {SchemaRegistry(self.registry).host}"

    @property
    def _subject(self) -> str:
        return f"{self.topic}-value"

    def found(self, spark: SparkSession, columns: StructType) -> TableFacts | None:
        """Raise ApplicationError where the columns do not fit Avro or the schema, a task manager lacks the package, or
        the registry does not answer. Nothing is registered yet."""
        with analysis_errors_unprinted():
            check_written(spark, columns, self.schema or schema_of(columns))
        if self.registry:
            SchemaRegistry(self.registry).get(f"subjects/{self._subject}/versions/latest")
        return None

    def value(self, rows: DataFrame) -> Column:
        """Return a row as the value of a record; the schema is registered. Raises RegistryError."""
        from pyspark.sql import functions as F

        schema = self.schema or schema_of(rows.schema)
        id = registered(self.registry, self._subject, schema) if self.registry else None
        return F.expr(encoded_sql(rows.columns, schema, id))

    def where(self, results: str | None, begun: Mapping[int, int] | None) -> Where | None:
        """Return None: only JSON is read back."""
        return None

    def instead(self, printed: str) -> str:
        """Say who reads them."""
        return f"a stream of --topic {self.topic} --format avro reads it; --sink memory has its rows shown"


def in_format(sink: KafkaTopic, given: Mapping[str, str]) -> KafkaTopic:
    """Return a topic with the format of its values that options of a sink name. Raises ApplicationError."""
    left = {name: value for name, value in given.items() if name not in (FORMAT, _REGISTRY, _SCHEMA)}
    topic = sink.with_options(left) if left else sink
    assert isinstance(topic, KafkaTopic)
    named = given.get(FORMAT, JSON)
    if named not in (JSON, AVRO):
        raise ApplicationError(
            f"format of a Kafka sink must be {JSON} or {AVRO}, got {named!r}", option="--sink-option", rule="format"
        )
    if named == JSON:
        for name in (_REGISTRY, _SCHEMA):
            if name in given:
                raise ApplicationError(
                    f"{name} of a Kafka sink must go with format={AVRO}, got it alone; add that",
                    option="--sink-option",
                    rule="format",
                )
        return topic
    schema = schema_text(given.get(_SCHEMA, ""), "--sink-option")
    return AvroTopic(topic.topic, topic.partitions, schema, given.get(_REGISTRY, ""))


#: How `--sink` names each kind, and its class.
KINDS: Mapping[str, tuple[str, type[Sink]]] = {
    "memory": ("memory", Memory),
    "kafka": ("kafka:TOPIC", KafkaTopic),
    "parquet": ("parquet:PATH", Parquet),
    "orc": ("orc:PATH", Orc),
    "json": ("json:PATH", JsonFiles),
    "csv": ("csv:PATH", CsvFiles),
    "xml": ("xml:PATH", XmlFiles),
    "avro": ("avro:PATH", AvroFiles),
    "text": ("text:PATH", TextFiles),
    "delta": ("delta:PATH", Delta),
    "table": ("table:NAME", Table),
    "iceberg": ("iceberg:NAME", Iceberg),
    "console": ("console", Console),
    "function": ("function:NAME", Named),
}
SINK_FORMS = (*(form for form, _ in KINDS.values()), "$NAME", "FORMAT:PATH")
#: What names a function of the notebook on a magic line: IPython would write the function itself there.
FUNCTION = re.compile(r"""(--sink[ =]+["']?)\$(\w+)""")
#: From which likeness on a name is taken for a misspelt kind, not for another format.
_ALIKE = 0.75
#: A format of Spark's: a short name, or that of a class.
_FORMAT = re.compile(r"[A-Za-z_][\w.$-]*")


def as_sink(given: Sink | str | Callable[[DataFrame, int], Any] | None) -> Sink | None:
    """Return a sink, its text form, or a function for foreachBatch. Raises ApplicationError for other text."""
    if isinstance(given, str):
        sink = parse_sink(given)
        if isinstance(sink, Named):
            raise ApplicationError(f"sink must be the function itself, got its name {given!r}", name=sink.name)
        return sink
    return given if given is None or isinstance(given, Sink) else ForEachBatch(given)


def parse_sink(text: str) -> Sink:
    """Return the sink that `--sink` names, in one of `SINK_FORMS`. Raises ApplicationError.

    A kind that is not among `KINDS` is a format of Spark's. Whether there is one, the task manager knows.
    """
    if text.startswith("$"):
        return Named.parsed(text[1:])
    kind, colon, place = text.partition(":")
    if kind in KINDS:
        return KINDS[kind][1].parsed(place if colon else None)
    if not colon or not _FORMAT.fullmatch(kind) or get_close_matches(kind, KINDS, n=1, cutoff=_ALIKE):
        raise ApplicationError(f"unknown sink {text!r}.{nearest(kind, KINDS)} The forms are {', '.join(SINK_FORMS)}.")
    return DataSource(kind, place)


def with_options(sink: Sink | None, words: Sequence[str]) -> Sink:
    """Return the sink with options of the form NAME=VALUE. Raises ApplicationError: it does not have them;
    UsageProblem: one is not of this form, or given twice."""
    given = pairs(words)
    if sink is None:
        raise ApplicationError(
            f"--sink-option {next(iter(given))} must go with a topic, files or a table, got no --sink"
        )
    return in_format(sink, given) if isinstance(sink, KafkaTopic) else sink.with_options(given)
