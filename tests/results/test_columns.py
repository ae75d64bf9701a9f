"""Kinds of columns, and their values as numbers and text."""

from __future__ import annotations

from datetime import datetime

import pytest
from pyspark.sql import types as t

from qod_magics.results.result import (
    LONGEST,
    Column,
    Interval,
    Kind,
    cell,
    columns_of,
    measured,
    milliseconds,
    moment,
    table,
)
from tests.results.rows import NAME, TRIPS, ZONE, estimate, window


def struct(**fields: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in fields.items()])


SCHEMA = struct(
    w=struct(start=t.TimestampType(), end=t.TimestampType()),
    at=t.TimestampType(),
    day=t.DateType(),
    local=t.TimestampNTZType(),
    zone=t.IntegerType(),
    total=t.DecimalType(10, 2),
    trips=struct(value=t.DoubleType(), low=t.DoubleType(), high=t.DoubleType()),
    exact=struct(value=t.LongType(), low=t.LongType(), high=t.LongType()),
    name=t.StringType(),
    yes=t.BooleanType(),
    raw=t.BinaryType(),
    list=t.ArrayType(t.IntegerType()),
    pair=struct(value=t.DoubleType(), low=t.DoubleType()),
    names=struct(value=t.StringType(), low=t.StringType(), high=t.StringType()),
    start=struct(start=t.StringType(), end=t.StringType()),
    _weight=t.DoubleType(),
)


def test_columns_are_told_by_their_types() -> None:
    found = columns_of(SCHEMA.jsonValue())
    kinds = {column.name: column.kind for column in found}
    assert kinds == {
        "w": Kind.WINDOW,
        "at": Kind.TIME,
        "day": Kind.TIME,
        "local": Kind.TIME,
        "zone": Kind.NUMBER,
        "total": Kind.NUMBER,
        "trips": Kind.ESTIMATE,
        "exact": Kind.ESTIMATE,
        "name": Kind.TEXT,
        "yes": Kind.TEXT,
        "raw": Kind.OTHER,
        "list": Kind.OTHER,
        "pair": Kind.OTHER,
        "names": Kind.OTHER,
        "start": Kind.OTHER,
    }
    assert [column.name for column in found if column.is_measure] == ["zone", "total", "trips", "exact"]
    assert [column.name for column in found if column.is_time] == ["w", "at", "day", "local"]
    assert found[0] == Column("w", Kind.WINDOW)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-11-21T12:00:10.000000Z", datetime(2026, 11, 21, 12, 0, 10)),
        ("2026-11-21T12:00:10.250000+02:00", datetime(2026, 11, 21, 12, 0, 10, 250000)),
        ("2026-11-21T12:00:10.000000", datetime(2026, 11, 21, 12, 0, 10)),
        ("2026-11-21", datetime(2026, 11, 21)),
        (
            {"start": "2026-11-21T12:00:10.000000Z", "end": "2026-11-21T12:00:20.000000Z"},
            datetime(2026, 11, 21, 12, 0, 10),
        ),
        ({}, None),
        (None, None),
        (12, None),
        ("+12026-11-21T12:00:10.000000Z", None),
    ],
)
def test_a_time_is_what_the_clock_of_sparks_session_showed(value: object, expected: datetime | None) -> None:
    assert moment(value) == expected


def test_a_chart_counts_milliseconds_on_that_clock() -> None:
    assert milliseconds(datetime(1970, 1, 1, 0, 0, 1, 500000)) == 1500.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, Interval(3)),
        (2.5, Interval(2.5)),
        ({"value": 3.0, "low": 1.0, "high": 6.0}, Interval(3.0, 1.0, 6.0)),
        ({"value": 3.0, "low": 1.0}, Interval(3.0, 1.0, None)),
        ({"value": "NaN", "low": "-Infinity"}, Interval(None)),
        ("NaN", Interval(None)),
        (True, Interval(None)),
        (None, Interval(None)),
    ],
)
def test_what_is_not_known_of_a_measure_is_none(value: object, expected: Interval) -> None:
    assert measured(value) == expected


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (estimate(1234.4, 134.0), Kind.ESTIMATE, "1,234 [1,100, 1,368]"),
        (estimate(12.345), Kind.ESTIMATE, "12.35 [-, -]"),
        ({"value": 3, "low": 3, "high": 3}, Kind.ESTIMATE, "3 [3, 3]"),
        (9007199254740993, Kind.NUMBER, "9,007,199,254,740,993"),
        (0.00001234, Kind.NUMBER, "1.234e-05"),
        ("NaN", Kind.NUMBER, "NaN"),
        ("2026-11-21T12:00:10.000000Z", Kind.TIME, "2026-11-21 12:00:10"),
        ("+12026-11-21", Kind.TIME, "+12026-11-21"),
        (window(1), Kind.WINDOW, "2026-11-21 12:00:10 to 12:00:20"),
        (
            {"start": "2026-11-21T23:59:50.000000Z", "end": "2026-11-22T00:00:00.000000Z"},
            Kind.WINDOW,
            "2026-11-21 23:59:50 to 2026-11-22 00:00:00",
        ),
        ("a word", Kind.TEXT, "a word"),
        (True, Kind.TEXT, "true"),
        ([1, {"é": 2}], Kind.OTHER, '[1, {"é": 2}]'),
        (None, Kind.NUMBER, "-"),
    ],
)
def test_a_value_in_words(value: object, kind: Kind, expected: str) -> None:
    assert cell(value, kind) == expected


def test_a_long_text_is_cut() -> None:
    assert cell("x" * 100, Kind.TEXT) == "x" * (LONGEST - 1) + "…"


def test_a_table_has_numbers_to_the_right() -> None:
    rows = [{"name": "north", "zone": 7, "trips": estimate(12.0, 2.0)}, {"zone": 11, "trips": estimate(1000.0, 9.0)}]
    assert table((NAME, ZONE, TRIPS), rows).splitlines() == [
        "name   zone               trips",
        "north     7         12 [10, 14]",
        "-        11  1,000 [991, 1,009]",
    ]
    assert table((NAME,), []) == "name"
