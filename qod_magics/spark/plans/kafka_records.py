"""The records of a Kafka sink: a row's own columns, as Spark's sink writes them, or the row as JSON. Pure but for
`columns_of_record`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

VALUE = "value"
_TEXT = ("string", "binary")
#: The columns of a record by name, with the types that Spark's sink takes.
_TYPES: Mapping[str, Sequence[str]] = {
    "key": _TEXT,
    VALUE: _TEXT,
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}
#: The columns of a record that was read, which tell where it was.
_WHERE = ("topic", "partition", "offset", "timestamp", "timestamptype")


@dataclass(frozen=True, slots=True)
class RecordForm:
    """How rows are written."""

    columns: tuple[str, ...]  #: of the record, in lower case; (): each row is JSON in the value
    why: str = ""  #: why it is JSON although the row has a column `value`, or what is left out

    def words(self, topic: str, groups: Sequence[str] | None) -> str:
        """Return what the cell says of records in this topic; `groups`: the columns of a JSON key, if there is one."""
        why = f"; {self.why}" if self.why else ""
        if self.columns:
            where = f" (the topic where it is not null, else {topic})" if "topic" in self.columns else ""
            return f"writes {', '.join(self.columns)} of a record as they are{where}, as Spark's own sink does{why}"
        key = "" if groups is None else f", with the key {', '.join(groups) or '{}'} as JSON"
        return f"writes each row as JSON in the value of a record{key}{why}"


def record_form(schema: StructType) -> RecordForm:
    """Return how rows with these columns are written: as records, if all columns are those of a record and `value` is
    among them."""
    types = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    if VALUE not in types:
        return RecordForm(())
    if {"offset", "timestamp"} <= types.keys() <= {*_TYPES, *_WHERE}:  # records that were read, as they are
        left_out = ", ".join(name for name in types if name in _WHERE)
        written = tuple(name for name in types if name not in _WHERE)
        return RecordForm(written, f"{left_out} are those of the record that was read, and left out")
    for name, kind in types.items():
        if name not in _TYPES:
            return RecordForm((), f"{name} is no column of a record: without it {VALUE} would be the record's")
        if kind not in _TYPES[name]:
            wanted = " or ".join(map(str.upper, _TYPES[name]))
            return RecordForm((), f"{name} must be {wanted} to be the record's, got {kind.upper()}")
    return RecordForm(tuple(types))


def columns_of_record(columns: Sequence[str], topic: str) -> list[Column]:
    """Return the columns for Spark's sink."""
    found = [F.col(name) for name in columns if name != "topic"]
    to = F.lit(topic)
    return [*found, (F.coalesce(F.col("topic"), to) if "topic" in columns else to).alias("topic")]
