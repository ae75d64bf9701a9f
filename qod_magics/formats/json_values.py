"""JSON values: Spark's `from_json`, and what does not fit in a value that it can't parse.

Spark reports only that a value does not fit. The sample in a batch's report is parsed once more here, in the kernel, so
that the query's plan needs nothing for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from qod_magics.formats.format import EMPTY_VALUE, NO_VALUE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True, slots=True)
class Json:
    """Values that are JSON objects, by options of `from_json`."""

    name: ClassVar[str] = "json"
    label: ClassVar[str] = "JSON"
    prunes: ClassVar[bool] = True
    checks_names: ClassVar[bool] = True

    options: Mapping[str, str] = field(default_factory=dict)
    told: tuple[tuple[str, str], ...] = ()  #: the options that the user gave

    def rows(self, records: DataFrame, schema: StructType | str, also: Sequence[str], marker: str = "") -> DataFrame:
        """See `Format.rows`; a schema may be DDL."""
        from pyspark.sql import functions as F

        options = {**self.options, **({"columnNameOfCorruptRecord": marker} if marker else {})} or None
        row = F.from_json(F.col("value").cast("string"), schema, options)
        if marker:
            none, empty = (F.from_json(F.lit(text), schema, options) for text in (NO_VALUE, EMPTY_VALUE))
            row = F.coalesce(row, F.when(F.col("value").isNull(), none).otherwise(empty))
        return records.select(F.inline(F.array(row)), *also)

    def fields(self, schema: StructType, names: Sequence[str]) -> Column:
        """See `Format.fields`."""
        from pyspark.sql import functions as F

        of_names = type(schema)([schema[name] for name in names])
        return F.from_json(F.col("value").cast("string"), of_names, dict(self.options) or None)

    def misfit(self, sample: str, schema: StructType, cut: bool = False) -> str | None:
        """See `Format.misfit`."""
        if self.told:  # they change what fits
            return "it has no value" if sample.strip() in ("", "null") else None
        return misfit(sample, schema, cut)

    def reason(self, marker: str) -> str:
        """Return SQL of why a value is malformed."""
        return "'not JSON of its schema'"

    def check(self, spark: SparkSession, ddl: str) -> None:
        """Raise what Spark raises for the value of an option. The schema was read as that of JSON."""
        from pyspark.sql import functions as F

        if not self.told:
            return
        tries = [F.from_json(F.lit("{}"), ddl, dict(self.options))]
        for name, value in self.told:
            if name in _PATTERNS:
                tries.append(F.date_format(F.lit(0).cast("timestamp"), value))
            elif name == "timeZone":
                tries.append(F.from_utc_timestamp(F.lit(0).cast("timestamp"), value))
        spark.range(1).select(*tries).collect()

    def needs_plan(self, why: str) -> bool:
        """Return False."""
        return False


_WHOLE = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_FLOATING = ("float", "double")
#: Texts that Spark reads as numbers of a floating type.
_NOT_NUMBERS = ("NaN", "Infinity", "+INF", "INF", "+Infinity", "-INF", "-Infinity")
#: The options of Spark's reader of JSON that say how a value is read whose schema is given. Others say where a value
#: begins, what is done with malformed ones, or how a schema is found.
OPTIONS = (
    *("allowBackslashEscapingAnyCharacter", "allowComments", "allowNonNumericNumbers", "allowNumericLeadingZeros"),
    *("allowSingleQuotes", "allowUnquotedControlChars", "allowUnquotedFieldNames", "dateFormat"),
    *("enableDateTimeParsingFallback", "locale", "timeZone", "timestampFormat", "timestampNTZFormat"),
)
#: Those that are patterns of times.
_PATTERNS = ("dateFormat", "timestampFormat", "timestampNTZFormat")
#: Characters of a value that are shown.
SHOWN_VALUE = 60


def misfit(text: str, schema: StructType, cut: bool = False) -> str | None:
    """Return what does not fit, as a clause: "column a is INT, and 5.0 is not". None: nothing was found.

    Args:
        text: a value that Spark could not parse, or its beginning.
        schema: the columns asked for.
        cut: whether the text is only the beginning of the value.

    """
    text = text.strip()
    if not text or text == "null":
        return "it has no value"
    try:
        value = json.loads(text, parse_float=_Fraction)
    except ValueError as error:
        if cut:
            return None
        at = getattr(error, "pos", 0)
        return f"it is no JSON from character {at + 1} on" if at else "it is no JSON"
    if isinstance(value, list):  # Spark reads an array of objects as several rows
        return "it is an array, not an object" if not all(isinstance(each, dict) for each in value) else None
    if not isinstance(value, dict):
        return f"it is {_shown(value)}, not an object"
    for each in schema.fields:
        if each.name in value and (found := _in(each.name, value[each.name], each.dataType)) is not None:
            return found
    return None


class _Fraction(float):
    """A number with a fraction or an exponent, as it was written."""

    def __new__(cls, text: str) -> _Fraction:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str


def _in(path: str, value: Any, kind: DataType) -> str | None:
    """Return what does not fit in a column, or in a part of it."""
    name = kind.typeName()
    if value is None:
        return None
    made: Any = kind
    if name == "struct":
        if isinstance(value, dict):
            parts = ((f"{path}.{f.name}", value[f.name], f.dataType) for f in made.fields if f.name in value)
            return next((found for part in parts if (found := _in(*part)) is not None), None)
    elif name == "array":
        if isinstance(value, list):
            items = ((f"{path}[{i}]", item, made.elementType) for i, item in enumerate(value))
            return next((found for item in items if (found := _in(*item)) is not None), None)
    elif name == "map":
        if isinstance(value, dict):
            entries = ((f"{path}[{key!r}]", each, made.valueType) for key, each in value.items())
            return next((found for entry in entries if (found := _in(*entry)) is not None), None)
    elif _fits(value, name):
        return None
    return f"column {path} is {kind.simpleString().upper()}, and {_shown(value)} is not{_advice(value, name)}"


def _fits(value: Any, name: str) -> bool:
    """Return whether Spark reads a JSON value as this type; True for types that are not known here."""
    if name in _WHOLE:
        bits = _WHOLE[name]
        return type(value) is int and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
    if name in _FLOATING:
        return type(value) in (int, _Fraction) or value in _NOT_NUMBERS
    if name == "decimal":
        return type(value) in (int, _Fraction) or (isinstance(value, str) and _is_number(value))
    if name == "boolean":
        return isinstance(value, bool)
    if name in ("timestamp", "timestamp_ntz"):
        return (type(value) is int and name == "timestamp") or (isinstance(value, str) and _is_time(value))
    if name == "date":
        return isinstance(value, str) and _is_time(value)
    return True


def _advice(value: Any, name: str) -> str:
    """Return what reads such a value, as the end of a sentence."""
    if name in _WHOLE:
        if isinstance(value, _Fraction):
            return " (DOUBLE reads it)"
        if type(value) is int:
            return " (BIGINT, DECIMAL or STRING reads it)"
    if isinstance(value, str) and (name in _WHOLE or name in _FLOATING) and _is_number(value):
        return " (STRING reads it, and CAST makes it a number)"
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_time(text: str) -> bool:
    """Return whether it begins as a date or time does; Spark also reads years, months, and days without leading
    zeros."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        head = text.partition("T")[0].partition(" ")[0].split("-")
        return all(part.isdigit() for part in head) and 4 <= len(head[0]) <= 6
    return True


def _shown(value: Any) -> str:
    text = value.text if isinstance(value, _Fraction) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_VALUE else f"{text[: SHOWN_VALUE - 1]}…"
