"""Which part of a value does not fit, by the rules of Spark's JSON parser."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from qod_magics.formats.json_values import misfit

INNER = StructType([StructField("x", IntegerType()), StructField("tags", ArrayType(LongType()))])
SCHEMA = StructType(
    [
        StructField("a", IntegerType()),
        StructField("b", StringType()),
        StructField("d", DoubleType()),
        StructField("at", TimestampType()),
        StructField("day", DateType()),
        StructField("ok", BooleanType()),
        StructField("price", DecimalType(10, 2)),
        StructField("inner", INNER),
        StructField("by", MapType(StringType(), IntegerType())),
    ]
)


@pytest.mark.parametrize(
    ("value", "column", "shown"),
    [
        ('{"a": 5.0}', "a", "5.0"),
        ('{"a": 1e3}', "a", "1e3"),
        ('{"a": "5"}', "a", '"5"'),
        ('{"a": true}', "a", "true"),
        ('{"a": 3000000000}', "a", "3000000000"),
        ('{"a": 1, "d": "much"}', "d", '"much"'),
        ('{"at": 1.5}', "at", "1.5"),
        ('{"at": "1764201600000"}', "at", '"1764201600000"'),
        ('{"at": "soon"}', "at", '"soon"'),
        ('{"day": 20000}', "day", "20000"),
        ('{"ok": "true"}', "ok", '"true"'),
        ('{"price": "much"}', "price", '"much"'),
        ('{"inner": 3}', "inner", "3"),
        ('{"inner": {"x": "1"}}', "inner.x", '"1"'),
        ('{"inner": {"x": 1, "tags": [1, 2.5]}}', "inner.tags[1]", "2.5"),
        ('{"by": {"one": 1, "two": "2"}}', "by['two']", '"2"'),
    ],
)
def test_the_column_and_the_value_are_named(value: str, column: str, shown: str) -> None:
    found = misfit(value, SCHEMA)
    assert found is not None
    assert found.startswith(f"column {column} is ")
    assert f"and {shown} is not" in found


@pytest.mark.parametrize(
    "value",
    [
        '{"a": 5, "b": {"c": 1}, "d": 5, "at": "2026-01-01T12:00:00Z", "day": "2026-01-01", "ok": false}',
        '{"at": 1764201600, "price": 5.25, "d": "NaN", "b": 7}',
        '{"price": "5.25", "a": null, "inner": null, "by": {}, "unknown": []}',
        '{"inner": {"x": 1, "tags": [1, null], "more": 2}, "at": "2026-1-1 1:00"}',
        "{}",
        '[{"a": 1}]',
    ],
)
def test_values_that_spark_reads_fit(value: str) -> None:
    assert misfit(value, SCHEMA) is None


@pytest.mark.parametrize("value", ["not json", '{"a": 1, "b": "cu', "[1]", "3", '"text"', "", "null"])
def test_values_that_are_no_objects_are_said_to_be_none(value: str) -> None:
    found = misfit(value, SCHEMA)
    assert found is not None
    assert "column" not in found


def test_nothing_is_said_of_a_value_of_which_only_the_beginning_is_known() -> None:
    assert misfit('{"a": 1, "b": "cu', SCHEMA, cut=True) is None
    assert misfit('{"a": 5.0, "b": "whole"}', SCHEMA, cut=True) is not None


def test_a_long_value_is_cut() -> None:
    found = misfit('{"a": "%s"}' % ("x" * 500), SCHEMA)
    assert found is not None
    assert len(found) < 150
