"""Which columns of a schema can be drawn, and how values of Spark's JSON are read."""

from __future__ import annotations

from datetime import datetime

import pytest
from pyspark.sql import types as t

from qod_magics.results.columns import Column, Interval, Kind, columns_of, measured, milliseconds, moment


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
