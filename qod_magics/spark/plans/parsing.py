"""JSON values of Kafka records as rows, and what becomes of values that can't be parsed.

Spark's `from_json` turns such a value into a row of nulls, without a word. On topics that others write, these are
counted, with a sample, in an `observe` behind the parser; streams between our own tasks need none of this.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, overload

from pyspark.sql import functions as F

from qod_magics.application.streams.stream import CORRUPT
from qod_magics.spark.plans.shedder import WEIGHT, count_where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from qod_magics.application.streams.stream import Malformed

#: JSON on streams keeps microseconds; Spark's default would cut them to milliseconds. A column `_corrupt_record` is one
#: like others there: Spark would look for malformed values, of which there are none, and make it null.
JSON_FORMAT = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "columnNameOfCorruptRecord": "_no_column",
}
#: Internal column: the text of a malformed value; null elsewhere.
MALFORMED = "_malformed"
#: Stands there for a value that is null, empty, or JSON's `null`.
NO_VALUE = "(no value)"
#: Characters of the sample in a report.
SAMPLE = 120


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
        options: of `from_json`. With `columnNameOfCorruptRecord`, a column of the schema, values that are null or empty
            have `NO_VALUE` there.
        also: columns of the records.
        read: the columns to parse; the others are null. None: all.

    """
    if read is None:
        row = F.from_json(F.col("value").cast("string"), schema, options)
        if options is not None and options.get("columnNameOfCorruptRecord") in (MALFORMED, CORRUPT):
            row = F.coalesce(row, F.from_json(F.lit(NO_VALUE), schema, options))
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
) -> DataFrame:
    """The columns of the records' JSON values, and `_weight`; malformed values are counted, and dropped, kept as rows
    of nulls, or end the query.

    Args:
        records: have the columns `value` and `_weight`.
        schema: of the JSON values; a StructType where `read` is given.
        malformed: "drop", "keep" or "fail".
        counted_as: name of the metrics: `rows`, how many were malformed, and `sample`, the beginning of one.
        read: the columns to parse; the others are null. None: all.

    """
    whole = marked(schema)
    column = CORRUPT if whole == schema else MALFORMED
    needed = None if read is None else {*read, column}
    rows = parsed(records, whole, {"columnNameOfCorruptRecord": column}, WEIGHT, read=needed)
    rows = rows.observe(
        counted_as,
        count_where(f"{column} IS NOT NULL").alias("rows"),
        F.expr(f"max(left({column}, {SAMPLE}))").alias("sample"),
    )
    if malformed == "drop":
        rows = rows.where(f"{column} IS NULL")
    elif malformed == "fail":
        told = f"concat('malformed JSON: ', left({column}, {SAMPLE}))"
        rows = rows.where(f"assert_true({column} IS NULL, {told}) IS NULL")
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


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))
