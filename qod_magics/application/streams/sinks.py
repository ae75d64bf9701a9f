"""What `--sink` and `--sink-option` name: the kinds of sinks, and texts of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from qod_magics.application.streams.avro_topic import in_format
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
    TextFiles,
    XmlFiles,
)
from qod_magics.application.streams.tables import DataSource, Delta, Iceberg, Table
from qod_magics.arguments.option import pairs
from qod_magics.errors import ApplicationError, nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
