"""JSON values of Kafka records as rows, and what becomes of values that can't be parsed.

Spark's `from_json` turns such a value into a row of nulls, without a word. On topics that others write, these are
counted, with a sample, in an `observe` behind the parser; streams between our own tasks need none of this.

Three more kinds of records are counted there, each with one comparison per row:
 - those without a value, by which the owner of a compacted topic deletes a key (tombstones): never a failure,
 - those with none of the columns that are read: their names may be spelt otherwise in the schema,
 - those with a time outside of the years 1 to 9999: Spark takes a JSON number in a TIMESTAMP column for seconds, and a
   number of milliseconds makes the year 57,000 of today. One such row would move a watermark there for good, and Python
   has no such time. Where rows are kept, the time is null. `--time-unit` reads such numbers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, overload

from pyspark.sql import functions as F

from qod_magics.application.streams.stream import CORRUPT
from qod_magics.spark.plans.shedder import WEIGHT, count_where

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from qod_magics.application.streams.stream import Malformed, TimeUnit

#: JSON on streams keeps microseconds; Spark's default would cut them to milliseconds. A column `_corrupt_record` is one
#: like others there: Spark would look for malformed values, of which there are none, and make it null.
JSON_FORMAT = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "columnNameOfCorruptRecord": "_no_column",
}
#: Internal column: the text of a malformed value; null elsewhere.
MALFORMED = "_malformed"
#: Stands there for a value that is empty, or JSON's `null`.
EMPTY_VALUE = "(empty value)"
#: Stands there for a value that is null.
NO_VALUE = "(no value)"
#: Characters of the sample in a report: enough to find the column that does not fit.
SAMPLE = 1000
#: How the message begins with which such a value ends a query.
FAILS = "malformed JSON: "
#: Characters of it in a message.
SHOWN = 120
#: The years 1 to 9999, which Python's times have, microseconds since 1970; from the first to before the second.
FIRST_TIME, TOO_LATE = -62_135_596_800_000_000, 253_402_300_800_000_000
#: SQL of a time, from a whole number of this unit.
_FROM_NUMBER: Mapping[TimeUnit, str] = {
    "s": "timestamp_seconds({})",
    "ms": "timestamp_millis({})",
    "us": "timestamp_micros({})",
    "ns": "timestamp_micros({} DIV 1000)",
}


def parsed(
    records: DataFrame,
    schema: str | StructType,
    options: Mapping[str, str] | None = None,
    *also: str,
    read: Collection[str] | None = None,
) -> DataFrame:
    """The columns of the records' JSON values, and the columns `also`; values that can't be parsed are null.

    A generator (`inline`) parses, since Spark pushes no filter below one: pushed below a projection that parses, a
    filter would parse once more each column that it reads.

    Args:
        records: have a column `value`.
        schema: of the JSON values; a StructType where `read` is given.
        options: of `from_json`. With `columnNameOfCorruptRecord`, a column of the schema, values that are null have
            `NO_VALUE` there, and empty ones `EMPTY_VALUE`.
        also: columns of the records.
        read: the columns to parse; the others are null. None: all.

    """
    if read is None:
        row = F.from_json(F.col("value").cast("string"), schema, options)
        if options is not None and options.get("columnNameOfCorruptRecord") in (MALFORMED, CORRUPT):
            none, empty = (F.from_json(F.lit(text), schema, options) for text in (NO_VALUE, EMPTY_VALUE))
            row = F.coalesce(row, F.when(F.col("value").isNull(), none).otherwise(empty))
        return records.select(F.inline(F.array(row)), *also)
    assert not isinstance(schema, str)
    needed = [field for field in schema.fields if field.name in read]
    if all(field.name in (MALFORMED, CORRUPT) for field in needed):  # alone, it would tell nothing
        needed = [schema.fields[0], *needed]
    rows = parsed(records, type(schema)(needed), options, *also)
    names = {field.name for field in needed}
    columns = [
        F.col(_quoted(f.name)) if f.name in names else F.lit(None).cast(f.dataType).alias(f.name) for f in schema.fields
    ]
    return rows.select(*columns, *also)


def parsed_input(
    records: DataFrame,
    schema: str | StructType,
    malformed: Malformed,
    counted_as: str,
    *,
    read: Collection[str] | None = None,
    checked: StructType | None = None,
    unit: TimeUnit = "s",
) -> DataFrame:
    """The columns of the records' JSON values, and `_weight`; malformed values are counted, and dropped, kept as rows
    of nulls, or end the query.

    Args:
        records: have the columns `value` and `_weight`.
        schema: of the JSON values; a StructType where `read` is given.
        malformed: "drop", "keep" or "fail".
        counted_as: name of the metrics: `rows`, how many were malformed; `sample`, the beginning of one; `tombstones`,
            values that are null; with `checked`, `columnless` and `implausible`, and `late_time`, one of these times as
            "column=microseconds".
        read: the columns to parse; the others are null. None: all.
        checked: the schema, where rows are to be searched for missing columns and implausible times, too. None: they
            are not, for plans that are only inspected.
        unit: of numbers in columns of times, with `checked`.

    """
    whole = marked(schema)
    column = CORRUPT if whole == schema else MALFORMED
    needed = None if read is None else {*read, column}
    fields = [f for f in checked.fields if f.name != column] if checked is not None else []
    fields = [f for f in fields if read is None or f.name in read]
    times = [f.name for f in fields if f.dataType.typeName() == "timestamp"]
    if checked is not None and times and unit != "s":
        whole = marked(_with_texts(checked, times))
        rows = parsed(records, whole, {"columnNameOfCorruptRecord": column}, WEIGHT, read=needed)
        rows = rows.select(*(_timed(name, times, unit, column) for name in rows.columns))
    else:
        rows = parsed(records, whole, {"columnNameOfCorruptRecord": column}, WEIGHT, read=needed)
    no_value = f"{column} IS NOT NULL AND {column} = '{NO_VALUE}'"
    counts = [
        count_where(f"{column} IS NOT NULL AND {column} <> '{NO_VALUE}'").alias("rows"),
        # nullif() would add a projection, which copies each row
        F.expr(f"max(CASE WHEN {column} <> '{NO_VALUE}' THEN left({column}, {SAMPLE}) END)").alias("sample"),
        count_where(no_value).alias("tombstones"),
    ]
    if fields:
        nothing = " AND ".join(f"{name} IS NULL" for name in (*(_quoted(f.name) for f in fields), column))
        counts.append(count_where(nothing).alias("columnless"))
    too_late = {name: f"unix_micros({_quoted(name)}) NOT BETWEEN {FIRST_TIME} AND {TOO_LATE - 1}" for name in times}
    if times:
        shown = [
            f"WHEN {late} THEN concat('{_text(name)}=', unix_micros({_quoted(name)}))"
            for name, late in too_late.items()
        ]
        counts.append(count_where(" OR ".join(too_late.values())).alias("implausible"))
        counts.append(F.expr(f"max(CASE {' '.join(shown)} END)").alias("late_time"))
    rows = rows.observe(counted_as, *counts)
    if malformed == "drop":
        fit = [f"{column} IS NULL", *(f"coalesce({late}, false) = false" for late in too_late.values())]
        rows = rows.where(" AND ".join(fit))
    elif malformed == "fail":
        told = f"concat('{FAILS}', left({column}, {SHOWN}))"
        rows = rows.where(f"assert_true({column} IS NULL OR {column} = '{NO_VALUE}', {told}) IS NULL")
        for name, late in too_late.items():
            told = f"concat('{FAILS}{_text(name)} is outside of the years 1 to 9999: ', unix_micros({_quoted(name)}))"
            rows = rows.where(f"assert_true(NOT coalesce({late}, false), {told}) IS NULL")
        rows = rows.where(f"{column} IS NULL")
    elif times:
        kept = {name: F.expr(f"CASE WHEN {late} THEN NULL ELSE {_quoted(name)} END") for name, late in too_late.items()}
        rows = rows.select(*(kept[name].alias(name) if name in kept else _quoted(name) for name in rows.columns))
    return rows.drop(MALFORMED)


@overload
def marked(schema: str) -> str: ...
@overload
def marked(schema: StructType) -> StructType: ...
def marked(schema: str | StructType) -> str | StructType:
    """The schema with a column for malformed values: `_malformed`, the last one, unless it has Spark's own."""
    from pyspark.sql.types import StringType, StructField

    if isinstance(schema, str):
        if re.search(rf"\b{CORRUPT}\b", schema):
            return schema
        struct = re.fullmatch(r"\s*struct\s*<(.*)>\s*", schema, re.IGNORECASE | re.DOTALL)
        return f"struct<{struct[1]}, {MALFORMED}: string>" if struct else f"{schema.strip()}, {MALFORMED} STRING"
    if CORRUPT in schema.names:
        return schema
    return type(schema)([*schema.fields, StructField(MALFORMED, StringType())])


def _with_texts(schema: StructType, names: Collection[str]) -> StructType:
    """The schema with texts in these columns: the parser gives numbers as they were written."""
    from pyspark.sql.types import StringType, StructField

    return type(schema)([StructField(f.name, StringType()) if f.name in names else f for f in schema.fields])


def _timed(name: str, times: Collection[str], unit: TimeUnit, malformed: str) -> Column:
    """A column of rows whose times are texts, some of them numbers of this unit. A row with another text there is
    malformed."""
    made = {
        time: f"CASE WHEN {_quoted(time)} RLIKE '^-?[0-9]{{1,19}}$' THEN "
        f"{_FROM_NUMBER[unit].format(f'try_cast({_quoted(time)} AS BIGINT)')} "
        f"ELSE try_cast({_quoted(time)} AS TIMESTAMP) END"
        for time in times
    }
    if name in made:
        return F.expr(made[name]).alias(name)
    if name != malformed:
        return F.col(_quoted(name))
    texts = {time: f"to_json(named_struct('{_text(time)}', {_quoted(time)}))" for time in times}
    bad = [f"WHEN {_quoted(time)} IS NOT NULL AND {sql} IS NULL THEN {texts[time]}" for time, sql in made.items()]
    return F.expr(f"coalesce({malformed}, CASE {' '.join(bad)} END)").alias(malformed)


def _text(name: str) -> str:
    """A column's name within a string literal of SQL."""
    return name.replace("\\", "\\\\").replace("'", "\\'")


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))
