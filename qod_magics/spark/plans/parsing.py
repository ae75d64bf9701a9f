"""Values of records as rows, and what is done with those that can't be parsed.

Spark turns such a value into a row of nulls, silently. On topics that others write, these are counted, with a sample,
in an `observe` behind the parser; streams between our own tasks need none of this. `formats` has the parsers.

Three more kinds of records are counted there, each with one comparison per row:
 - those without a value, by which the owner of a compacted topic deletes a key (tombstones): never a failure,
 - those with none of the columns that are read: their names may be spelt otherwise in the schema,
 - those with a time outside of the years 1 to 9999: Spark takes a JSON number in a TIMESTAMP column for seconds, and a
   number of milliseconds makes the year 57,000 of today. One such row would move a watermark there for good, and Python
   has no such time. Where rows are kept, the time is null. `--time-unit` reads such numbers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, overload

from pyspark.sql import functions as F

from qod_magics.application.streams.topic_input import CORRUPT, rejects_of
from qod_magics.application.weights import WEIGHT
from qod_magics.formats.format import NO_VALUE, Format
from qod_magics.formats.json_values import Json
from qod_magics.spark.plans.plan_text import Node, above, is_cut, nodes_of
from qod_magics.spark.plans.shedder import count_where

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from qod_magics.application.streams.topic_input import Malformed, TimeUnit


# --- Columns that a plan reads ----------------------------------------------------------------------------------------
# Spark prunes the columns of files, but parses every field of a Kafka record's JSON, used or not: in a windowed query
# that reads four of eleven columns, the unused ones are a sixth of the cost per row.

#: Operators whose text lists all columns that they read; they output no others.
_NAMES_ALL = frozenset({"Project", "HashAggregate", "ObjectHashAggregate"})
#: Operators that pass their child's rows through unchanged; their text lists the columns that they read.
_PASS_THROUGH = frozenset({"Filter", "EventTimeWatermark", "CollectMetrics"})
_PARSE = re.compile(r" inline\(array\((?:coalesce\()?from_json\(.*, (?:true|false), \[(?P<out>.*)\]$")
_ID = re.compile(r"#(\d+)")
_OUT_ID = re.compile(r"#(\d+)L?(?=, |$)")
_COUNTED = re.compile(r"^ (shed\.[^,]+),")


def columns_read(plan: str, columns: Mapping[str, Sequence[str]]) -> Mapping[str, frozenset[str]]:
    """Return the columns that a plan reads of each input, where the plan shows it.

    Args:
        plan: the physical plan, as `explain()` shows it, of the rows packed into one struct column.
        columns: those of each input, in order, by the name of its metrics in the plan ("shed.trips").

    Returns:
        The columns read, by name of the input; inputs of which all are read, or for which the plan does not show it,
        are left out. So are all where the text is cut.

    """
    if is_cut(plan):
        return {}
    lines = _lines(plan)
    found: dict[str, set[str]] = {}
    unknown: set[str] = set()
    for at, line in enumerate(lines):
        parse = _PARSE.search(line.text) if line.operator == "Generate" else None
        if parse is None:
            continue
        name = _input_of(lines, at)
        if name is None or name not in columns:
            return {}
        ids = _OUT_ID.findall(parse["out"])
        named = _named_above(lines, at)
        if named is None or len(ids) != len(columns[name]):
            unknown.add(name)
            continue
        found.setdefault(name, set()).update(c for c, i in zip(columns[name], ids, strict=True) if i in named)
    return {n: frozenset(read) for n, read in found.items() if n not in unknown and len(read) < len(columns[n])}


def _lines(plan: str) -> Sequence[Node]:
    """Return the operators of a plan; [] if some line is not an operator, as with a string literal of several lines."""
    texts = [text for text in plan.splitlines() if text.strip() and not text.startswith("==")]
    nodes = list(nodes_of(plan))
    inputs = all(node.depth for node in nodes[1:])
    return nodes if inputs and len(nodes) == len(texts) else []


def _input_of(lines: Sequence[Node], at: int) -> str | None:
    """Return the metrics name of the input whose records this line parses."""
    for line in lines[at + 1 :]:
        if line.depth <= lines[at].depth:
            return None
        if (counted := _COUNTED.search(line.text)) is not None:
            return counted[1]
    return None


def _named_above(lines: Sequence[Node], at: int) -> set[str] | None:
    """Return ids of all columns named from this line up to the next projection or aggregation; None if an operator
    there does not list the columns that it reads."""
    named: set[str] = set()
    for line in above(lines, at):
        if line.operator not in _PASS_THROUGH and line.operator not in _NAMES_ALL:
            return None
        named.update(_ID.findall(line.text))
        if line.operator in _NAMES_ALL:
            return named
    return None


#: JSON on streams keeps microseconds; Spark's default would cut them to milliseconds. A column `_corrupt_record` is one
#: like others there: Spark would look for malformed values, of which there are none, and make it null.
JSON_FORMAT = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "columnNameOfCorruptRecord": "_no_column",
}
#: JSON of other people's topics, and of streams between our own tasks.
JSON, STREAMED = Json(), Json(JSON_FORMAT)
#: Internal column: the text of a malformed value; null elsewhere.
MALFORMED = "_malformed"
#: Characters of the sample in a report: enough to find the column that does not fit.
SAMPLE = 1000
#: How the message begins with which such a value ends a query.
FAILS = "malformed value: "
#: What such a message, or the reason of a reject, says of a column of times.
OUT_OF_RANGE = " is outside of the years 1 to 9999"
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
    form: Format,
    *also: str,
    read: Collection[str] | None = None,
    marker: str = "",
) -> DataFrame:
    """Return the columns of the records' values, and the columns `also`; values that can't be parsed are null.

    Args:
        records: have a column `value`.
        schema: of the values; DDL only for JSON, and where `read` is not given.
        form: how the values are parsed.
        also: columns of the records.
        read: the columns to parse; the others are null. None: all.
        marker: the column of the schema for the text of malformed values; "": there is none.

    """
    if isinstance(schema, str):
        assert isinstance(form, Json)
        return form.rows(records, schema, also, marker)
    if read is None or not form.prunes:
        return form.rows(records, schema, also, marker)
    needed = [field for field in schema.fields if field.name in read]
    if all(field.name in (MALFORMED, CORRUPT) for field in needed):  # alone, it would tell nothing
        needed = [schema.fields[0], *needed]
    rows = form.rows(records, type(schema)(needed), also, marker)
    names = {field.name for field in needed}
    columns = [
        F.col(_quoted(f.name)) if f.name in names else F.lit(None).cast(f.dataType).alias(f.name) for f in schema.fields
    ]
    return rows.select(*columns, *also)


def _value_counts(column: str) -> list[Column]:
    """Return the metrics of values as a whole; `column`: that of malformed ones."""
    return [
        count_where(f"{column} IS NOT NULL AND {column} <> '{NO_VALUE}'").alias("rows"),
        # nullif() would add a projection, which copies each row
        F.expr(f"max(CASE WHEN {column} <> '{NO_VALUE}' THEN left({column}, {SAMPLE}) END)").alias("sample"),
        count_where(f"{column} IS NOT NULL AND {column} = '{NO_VALUE}'").alias("tombstones"),
    ]


def _column_counts(column: str, names: Sequence[str], too_late: Mapping[str, str]) -> list[Column]:
    """Return the metrics of rows without any of these columns, and of times out of range, by conditions on each."""
    counts = []
    if names:
        nothing = " AND ".join(f"{name} IS NULL" for name in (*map(_quoted, names), column))
        counts.append(count_where(nothing).alias("columnless"))
    if too_late:
        shown = [
            f"WHEN {late} THEN concat('{_text(name)}=', unix_micros({_quoted(name)}))"
            for name, late in too_late.items()
        ]
        counts.append(count_where(" OR ".join(too_late.values())).alias("implausible"))
        counts.append(F.expr(f"max(CASE {' '.join(shown)} END)").alias("late_time"))
    return counts


def parsed_input(
    records: DataFrame,
    schema: str | StructType,
    malformed: Malformed,
    counted_as: str,
    *also: str,
    read: Collection[str] | None = None,
    checked: StructType | None = None,
    unit: TimeUnit = "s",
    form: Format = JSON,
    topic: str = "",
) -> DataFrame:
    """Return the columns of the records' values, those `also`, and `_weight`; malformed ones are counted, and dropped,
    kept as rows of nulls, or end the query.

    Args:
        records: have the columns `value` and `_weight`; where malformed ones go to a topic, from `to_reject`.
        schema: of the values; DDL only for JSON, and where `read` is not given.
        malformed: "drop", "keep", "fail", or "topic:NAME".
        counted_as: name of the metrics: `rows`, how many were malformed; `sample`, the beginning of one; `tombstones`,
            values that are null; with `checked`, `columnless` and `implausible`, and `late_time`, one of these times as
            "column=microseconds".
        also: columns of the records.
        read: the columns to parse; the others are null. None: all.
        checked: the schema, where rows are to be searched for missing columns and implausible times, too. None: they
            are not, for plans that are only inspected.
        unit: of numbers in JSON for columns of times, with `checked`.
        form: how the values are parsed.
        topic: the one that is read, where malformed records go to another.

    """
    if (rejects := rejects_of(malformed)) is not None:
        also = (*also, *_REJECTED)
    whole = marked(schema)
    column = CORRUPT if whole == schema else MALFORMED
    needed = None if read is None else {*read, column}
    fields = [f for f in checked.fields if f.name != column] if checked is not None else []
    fields = [f for f in fields if read is None or f.name in read]
    times = [f.name for f in fields if f.dataType.typeName() == "timestamp"]
    if checked is not None and times and unit != "s":
        whole = marked(_with_texts(checked, times))
        rows = parsed(records, whole, form, *also, WEIGHT, read=needed, marker=column)
        rows = rows.select(*(_timed(name, times, unit, column) for name in rows.columns))
    else:
        rows = parsed(records, whole, form, *also, WEIGHT, read=needed, marker=column)
    too_late = {name: f"unix_micros({_quoted(name)}) NOT BETWEEN {FIRST_TIME} AND {TOO_LATE - 1}" for name in times}
    names = [field.name for field in fields] if form.checks_names else []
    counts = [*_value_counts(column), *_column_counts(column, names, too_late)]
    counted = rows.observe(counted_as, *counts)
    if rejects is not None:
        return _rejected(counted, rejects, topic, form, column, too_late).drop(MALFORMED, *_REJECTED)
    return _handled(counted, malformed, column, too_late).drop(MALFORMED)


#: Columns of a record that a topic of rejects gets, and what they are called until then.
_OF_RECORD, _REJECTED = ("key", "value", "partition", "offset"), ("_r0", "_r1", "_r2", "_r3")
#: The setting with the options of the producer, by name without "kafka.", and what sends: `rejects.scala`.
REJECTS_CONF, _SENDER = "spark.qod.secret.rejects", "org.apache.spark.sql.kafka010.Rejects"


def to_reject(records: DataFrame) -> DataFrame:
    """Return records with what a topic of rejects gets of each, before anything is made of their values."""
    return records.withColumns(dict(zip(_REJECTED, map(F.col, _OF_RECORD), strict=True)))


def _rejected(
    rows: DataFrame, rejects: str, topic: str, form: Format, column: str, too_late: Mapping[str, str]
) -> DataFrame:
    """Send the records of malformed values, and those with a time out of range, to a topic, and drop their rows.

    Args:
        rows: with the text of a malformed value in `column`, else null there, and the columns of the record.
        rejects: the topic that they go to.
        topic: the one that they come from.
        form: which says why a value is malformed.
        column: see above.
        too_late: by column of times, a condition that holds for times outside of the years 1 to 9999.

    """

    def sent(reason: str) -> str:
        key, value, partition, offset = _REJECTED
        words = [f"'{_SENDER}', 'send', '{rejects}'", reason, f"'{topic}'", partition, offset]
        return f"reflect({', '.join([*words, f'base64({key})', f'base64({value})'])}) <> 'sent'"

    cases = [f"WHEN {column} = '{NO_VALUE}' THEN false", f"WHEN {column} IS NOT NULL THEN {sent(form.reason(column))}"]
    for name, late in too_late.items():
        reason = f"'{_text(name)}{OUT_OF_RANGE}'"
        cases.append(f"WHEN {late} THEN {sent(reason)}")
    return rows.where(f"CASE {' '.join(cases)} ELSE true END")


def _handled(rows: DataFrame, malformed: Malformed, column: str, too_late: Mapping[str, str]) -> DataFrame:
    """Drop the rows of malformed values, keep them as rows of nulls, or end the query.

    Args:
        rows: with the text of a malformed value in `column`, else null there.
        malformed: "drop", "keep" or "fail".
        column: see above.
        too_late: by column of times, a condition that holds for times outside of the years 1 to 9999.

    """
    if malformed == "drop":
        fit = [f"{column} IS NULL", *(f"coalesce({late}, false) = false" for late in too_late.values())]
        return rows.where(" AND ".join(fit))
    if malformed == "fail":
        told = f"concat('{FAILS}', left({column}, {SHOWN}))"
        rows = rows.where(f"assert_true({column} IS NULL OR {column} = '{NO_VALUE}', {told}) IS NULL")
        for name, late in too_late.items():
            told = f"concat('{FAILS}{_text(name)}{OUT_OF_RANGE}: ', unix_micros({_quoted(name)}))"
            rows = rows.where(f"assert_true(NOT coalesce({late}, false), {told}) IS NULL")
        return rows.where(f"{column} IS NULL")
    if too_late:
        kept = {name: F.expr(f"CASE WHEN {late} THEN NULL ELSE {_quoted(name)} END") for name, late in too_late.items()}
        rows = rows.select(*(kept[name].alias(name) if name in kept else _quoted(name) for name in rows.columns))
    return rows


def without_header(records: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return lines of CSV without those that have the names of the columns."""
    header = ",".join(names).lower()
    line = "lower(translate(value, '\" \r', ''))"  # quotes, spaces
    text = header.replace(" ", "").replace("\\", "\\\\").replace("'", "\\'")
    return records.where(f"value IS NULL OR length(value) < {len(text)} OR {line} <> '{text}'")


@overload
def marked(schema: str) -> str: ...
@overload
def marked(schema: StructType) -> StructType: ...
def marked(schema: str | StructType) -> str | StructType:
    """Return the schema with a column for malformed values: `_malformed`, the last one, unless it has Spark's own."""
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
    """Return the schema with texts in these columns: the parser gives numbers as they were written."""
    from pyspark.sql.types import StringType, StructField

    return type(schema)([StructField(f.name, StringType()) if f.name in names else f for f in schema.fields])


def _timed(name: str, times: Collection[str], unit: TimeUnit, malformed: str) -> Column:
    """Return a column of rows whose times are texts, some of them numbers of this unit. A row with another text there
    is malformed."""
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
    """Return a column's name within a string literal of SQL."""
    return name.replace("\\", "\\\\").replace("'", "\\'")


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))
