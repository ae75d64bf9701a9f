"""CSV values: one line each, by Spark's `from_csv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from qod_magics.formats.format import EMPTY_VALUE, NO_VALUE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_WHOLE = ("byte", "short", "integer", "long")
_NUMBERS = (*_WHOLE, "float", "double", "decimal")


@dataclass(frozen=True, slots=True)
class Csv:
    """Values that are lines of CSV. All columns are parsed: each stands where the one before it ends."""

    name: ClassVar[str] = "csv"
    label: ClassVar[str] = "CSV"
    prunes: ClassVar[bool] = False
    checks_names: ClassVar[bool] = True

    def rows(self, records: DataFrame, schema: StructType, also: Sequence[str], marker: str = "") -> DataFrame:
        """See `Format.rows`."""
        from pyspark.sql import functions as F

        line, columns = _line(), ddl(schema)
        row = F.from_csv(line, columns, {"columnNameOfCorruptRecord": marker} if marker else None)
        if marker:
            none, empty = (_only(schema, marker, text) for text in (NO_VALUE, EMPTY_VALUE))
            row = F.when(F.col("value").isNull(), none).when(F.trim(line) == "", empty).otherwise(row)
        return records.select(F.inline(F.array(row)), *also)

    def fields(self, schema: StructType, names: Sequence[str]) -> Column:
        """See `Format.fields`."""
        from pyspark.sql import functions as F

        row = F.from_csv(_line(), ddl(schema))
        return F.struct(*(row[name].alias(name) for name in names))

    def misfit(self, sample: str, schema: StructType, cut: bool = False) -> str | None:
        """See `Format.misfit`."""
        if sample in (NO_VALUE, EMPTY_VALUE):
            return "it has no value"
        if cut:
            return None
        lines = list(csv.reader(io.StringIO(sample, newline="")))
        if len(lines) > 1:
            return "it has several lines"
        words = lines[0] if lines else []
        if len(words) != len(schema.fields):
            return f"it has {len(words)} columns, and the schema {len(schema.fields)}"
        for word, field in zip(words, schema.fields, strict=True):
            kind = field.dataType.typeName()
            if word and kind in _NUMBERS and not _is_number(word, whole=kind in _WHOLE):
                return f"column {field.name} is {field.dataType.simpleString().upper()}, and {word[:60]!r} is not"
        return None

    def reason(self, marker: str) -> str:
        """Return SQL of why a value is malformed."""
        return "'not CSV of its schema'"

    def check(self, spark: SparkSession, ddl: str) -> None:
        """Raise what Spark raises for columns that lines can't have, such as arrays."""
        from pyspark.sql import functions as F

        _ = spark.range(0).select(F.from_csv(F.lit(""), ddl)).schema

    def needs_plan(self, why: str) -> bool:
        """Return False."""
        return False


def ddl(schema: StructType) -> str:
    """Return the columns of lines as DDL: none has parts."""
    return ", ".join(f"`{each.name.replace('`', '``')}` {each.dataType.simpleString()}" for each in schema.fields)


def _line() -> Column:
    from pyspark.sql import functions as F

    return F.rtrim(F.col("value").cast("string"), F.lit("\r"))


def _only(schema: StructType, marker: str, text: str) -> Column:
    """Return a row with this text in one column, and null in the others."""
    from pyspark.sql import functions as F

    values = ((F.lit(text if each.name == marker else None), each) for each in schema.fields)
    return F.struct(*(value.cast(each.dataType).alias(each.name) for value, each in values))


def _is_number(word: str, *, whole: bool) -> bool:
    try:
        int(word) if whole else float(word)
    except ValueError:
        return False
    return True
