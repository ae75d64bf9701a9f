"""What Spark is asked for a query over results: whether it splits, its parts, and the merge of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from qod_magics.application.sql.functions import BUILT_IN, called
from qod_magics.application.sql.names import formatted
from qod_magics.application.sql.splitting import NOW, PARTS, ROWS, NotSplit, Split, as_parsed, split
from qod_magics.errors import UsageProblem
from qod_magics.results.slices import Slice
from qod_magics.session.copies import AS_WRITTEN
from qod_magics.spark.servers.connection import reason
from qod_magics.spark.servers.cpu import setting

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TIMESTAMPS = "spark.sql.timestampType"
#: With these, a text means something else here than there, or than the parser takes it for; by setting, what is fine.
UNDERSTOOD = {_TIMESTAMPS: "TIMESTAMP_LTZ", "spark.sql.functionResolution.sessionOrder": "second"}
#: Settings on which the result of a query depends: those of the notebook's session hold.
_SETTINGS = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive", _TIMESTAMPS)
#: How names of further ones begin, where they are set.
_MEANINGS = tuple(
    f"spark.sql.{each}"
    for each in (
        *("ansi.", "legacy.", "session.", "decimalOperations.", "mapKeyDedupPolicy", "parser.", "parquet."),
        *("groupBy", "orderByOrdinal", "collation.", "json", "csv", "functionResolution."),
    )
)
#: The package of Spark's own functions.
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."


@dataclass(frozen=True, slots=True)
class Table:
    """The results of a query."""

    name: str
    path: str  #: of its sink
    schema: StructType

    @property
    def times(self) -> Mapping[str, str]:
        """SQL of each column of timestamps, or field of a struct at its top, by name in lower case."""
        found = {}
        for each in self.schema.fields:
            if each.dataType.typeName() == "timestamp":
                found[each.name.casefold()] = _quoted(each.name)
            for inner in getattr(each.dataType, "fields", ()):
                if inner.dataType.typeName() == "timestamp":
                    found[f"{each.name}.{inner.name}".casefold()] = f"{_quoted(each.name)}.{_quoted(inner.name)}"
        return found


@dataclass(frozen=True, slots=True)
class Prepared:
    """A query as it is answered in parts."""

    split: Split
    types: Mapping[str, str]  #: of the columns of a part, by name
    part: StructType
    result: StructType


def nullable(schema: StructType) -> StructType:
    """Return the columns as files have them: any may be null."""
    return type(schema)([type(each)(each.name, each.dataType, True) for each in schema.fields])


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))


def used(text: str, args: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the parameters that a text may use."""
    return {name: value for name, value in args.items() if f":{name}" in text} or None


def _files(spark: SparkSession, slices: Sequence[Slice], schema: StructType) -> DataFrame:
    paths = [file.path.translate(AS_WRITTEN) for each in slices for file in each.files]
    return spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)


def _over(spark: SparkSession, text: str, mark: str, rows: DataFrame, args: Mapping[str, Any]) -> DataFrame:
    """Return the result of a text over rows that `mark` stands for there."""
    escaped = text.replace("{", "{{").replace("}", "}}").replace(mark, "{qod_rows}")
    return spark.sql(escaped, args=used(text, args), qod_rows=rows)


def whole(
    spark: SparkSession,
    sql: str,
    args: Mapping[str, Any],
    tables: Mapping[str, Table],
    found: Mapping[str, Sequence[Slice]],
) -> DataFrame:
    """Return the result of a text over all files of these tables."""
    frames = {f"qod_{i}": _files(spark, found[each.name], each.schema) for i, each in enumerate(tables.values())}
    text = formatted(sql, dict(zip(tables, frames, strict=True)))
    return _accepted(lambda: spark.sql(text, args=used(text, args), **frames))


def prepared_for(sql: str, args: Mapping[str, Any], written: str, table: Table, spark: SparkSession) -> Prepared | str:
    """Return how a text is split, or why it is not. Raises UsageProblem: Spark refuses it."""
    from pyspark.errors import AnalysisException, ParseException

    empty = _nulls(spark, table.schema)
    text = formatted(sql, {written: "qod_rows"})
    result = _accepted(lambda: spark.sql(text, args=used(text, args), qod_rows=empty).schema)
    try:
        found = split(sql, written, table.schema.names)
    except NotSplit as why:
        return str(why)
    if replaced := [name for name in sorted(called(sql) - BUILT_IN) if not _is_of_spark(name, spark)]:
        return f"{replaced[0]} is not Spark's own function in this session"
    try:
        return _checked(found, sql, args, written, result, empty, spark)
    except (AnalysisException, ParseException) as error:
        return f"Spark does not take a part of it: {reason(error)}"


def _checked(
    found: Split,
    sql: str,
    args: Mapping[str, Any],
    written: str,
    result: StructType,
    empty: DataFrame,
    spark: SparkSession,
) -> Prepared | str:
    """Return how a text is split, or why Spark tells that it is not."""
    if len(result.fields) != found.columns:
        return "a function makes several columns of its result"
    text = formatted(as_parsed(sql), {written: "qod_rows"})
    expected = spark.sql(text, args=used(text, args), qod_rows=empty)
    if not expected.sameSemantics(_over(spark, found.whole, ROWS, empty, args)):
        return "Spark reads it otherwise than the parser here"
    probed = _over(spark, found.probe, ROWS, empty, {**args, NOW: datetime.now(UTC)}).schema
    if any(each.name.startswith("_a") and each.dataType.typeName() != "double" for each in probed.fields):
        return "averages of decimals and intervals do not split"
    part = type(probed)([each for each in probed.fields if not each.name.startswith("_a")])
    return Prepared(found, {each.name: each.dataType.simpleString() for each in part.fields}, part, result)


def merged(spark: SparkSession, prepared: Prepared, results: Sequence[pa.Table], args: Mapping[str, Any]) -> DataFrame:
    """Return the merge of the results of all parts, with the names and types of the whole."""
    import pyarrow as pa

    rows: Any = pa.concat_tables(results, promote_options="default") if results else []
    parts = spark.createDataFrame(rows, schema=prepared.part)
    merged = _over(spark, prepared.split.merge(prepared.types), PARTS, parts, args)
    return merged.select(
        *(merged[f"_{i}"].cast(each.dataType).alias(each.name) for i, each in enumerate(prepared.result.fields))
    )


def settings_of(spark: SparkSession) -> dict[str, str]:
    """Return the settings of a session on which the result of a query depends."""
    found = {key: value for key in _SETTINGS if (value := setting(spark, key)) is not None}
    return found | {key: value for key, value in spark.conf.getAll.items() if key.startswith(_MEANINGS)}


def kind(value: object) -> str:
    """Return what tells the type that Spark gives a parameter: its class, and all of it where the value counts."""
    if isinstance(value, bool | str | float | bytes | datetime | date):
        zone = getattr(value, "tzinfo", None)
        return f"{type(value).__name__} {zone is not None}"
    if isinstance(value, int):
        return f"int {-(2**31) <= value < 2**31}"  # INT or BIGINT
    return f"{type(value).__name__} {value!r}"


def _is_of_spark(name: str, spark: SparkSession) -> bool:
    """Return whether a function of this name is Spark's own in a session."""
    with suppress(Exception):  # there is none of this name
        lines = [row[0] for row in spark.sql(f"DESCRIBE FUNCTION {_quoted(name)}").collect()]
        return any(line.startswith(f"Class: {_EXPRESSIONS}") for line in lines)
    return False


def _nulls(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return a row of nulls, to analyse queries over these columns."""
    from pyspark.sql import functions as F

    return spark.sql("SELECT 1").select(*(F.lit(None).cast(each.dataType).alias(each.name) for each in schema.fields))


def _accepted(call: Callable[[], Any]) -> Any:
    """Return what Spark answers. Raises UsageProblem, one line: it refuses the query."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        return call()
    except (AnalysisException, ParseException) as error:
        raise UsageProblem(f"qod.query must be a query that Spark takes: {reason(error)}", rule="query") from error
