"""Results as text."""

from __future__ import annotations

import pytest

from qod_magics.results.columns import Kind
from qod_magics.results.text import LONGEST, cell, table
from tests.results.rows import NAME, TRIPS, ZONE, estimate, window


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
