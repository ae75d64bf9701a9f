"""Which chart suits a result, and what a user may ask for instead."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.results.drawing import Layout, Wish, layout_of
from qod_magics.results.result import Column, Kind
from tests.raising import breaks
from tests.results.rows import AT, FARES, NAME, PER_ZONE, TRIPS, WINDOW, ZONE

LISTS = Column("list", Kind.OTHER)


@pytest.mark.parametrize(
    ("columns", "keys", "expected"),
    [
        (PER_ZONE, ("w", "zone"), Layout("line", "w", "trips", ("zone",), None, 60)),
        ((WINDOW, FARES), ("w",), Layout("line", "w", "fares", (), None, 60)),
        ((AT, NAME, ZONE, FARES), ("at", "name", "zone"), Layout("line", "at", "fares", ("name", "zone"), None, 60)),
        ((ZONE, FARES, TRIPS), ("zone",), Layout("bar", None, "trips", ("zone",), None, 30)),
        ((NAME, ZONE, FARES), ("name", "zone"), Layout("bar", None, "fares", ("name", "zone"), None, 30)),
        ((TRIPS, FARES), (), Layout("table", rows=20)),
        ((AT, ZONE, FARES), None, Layout("table", rows=20)),
        ((WINDOW, NAME), ("w", "name"), Layout("table", rows=20)),
        ((NAME, LISTS), ("name",), Layout("table", rows=20)),
        ((AT, WINDOW, FARES), ("at", "w"), Layout("line", "at", "fares", (), "w", 60)),
    ],
)
def test_the_columns_choose_the_chart(columns: tuple[Column, ...], keys: Any, expected: Layout) -> None:
    assert layout_of(columns, keys) == expected


@pytest.mark.parametrize(
    ("columns", "keys", "wish", "expected"),
    [
        (PER_ZONE, ("w", "zone"), Wish("table"), Layout("table", rows=20)),
        (PER_ZONE, ("w", "zone"), Wish("bar"), Layout("bar", None, "trips", ("zone",), "w", 30)),
        (PER_ZONE, ("w", "zone"), Wish(x="zone"), Layout("bar", "zone", "trips", (), "w", 30)),
        (PER_ZONE, ("w", "zone"), Wish(y="fares", rows=7), Layout("line", "w", "fares", ("zone",), None, 7)),
        (PER_ZONE, ("w", "zone"), Wish("line", x="zone"), Layout("line", "zone", "trips", (), "w", 60)),
        ((WINDOW, FARES), ("w",), Wish("bar"), Layout("bar", "w", "fares", (), None, 30)),
        ((AT, ZONE, FARES), None, Wish(y="fares"), Layout("line", "at", "fares", (), None, 60)),
        ((AT, ZONE, FARES), None, Wish("line"), Layout("line", "at", "zone", (), None, 60)),
        ((NAME, FARES), None, Wish("bar", x="name"), Layout("bar", "name", "fares", (), None, 30)),
        ((NAME, ZONE, FARES), ("name", "zone"), Wish(x="zone"), Layout("bar", "zone", "fares", ("name",), None, 30)),
    ],
)
def test_a_user_may_ask_for_another(columns: tuple[Column, ...], keys: Any, wish: Wish, expected: Layout) -> None:
    assert layout_of(columns, keys, wish) == expected


@pytest.mark.parametrize(
    ("columns", "keys", "wish", "rule"),
    [
        (PER_ZONE, ("w", "zone"), Wish(x="zones"), "exists"),
        (PER_ZONE, ("w", "zone"), Wish(y="trip"), "exists"),
        (PER_ZONE, ("w", "zone"), Wish(y="w"), "numbers"),
        (PER_ZONE, ("w", "zone"), Wish("lines"), "exists"),  # type: ignore[arg-type]
        (PER_ZONE, ("w", "zone"), Wish(rows=0), "in range"),
        (PER_ZONE, ("w", "zone"), Wish("table", y="trips"), "all columns"),
        (PER_ZONE, ("w", "zone"), Wish(x="fares", y="fares"), "two columns"),
        ((NAME, FARES), ("name",), Wish("line"), "a column of times"),
        ((NAME, FARES), ("name",), Wish("line", x="name"), "times or numbers"),
        ((WINDOW, NAME), ("w", "name"), Wish("bar"), "a column of numbers"),
        ((NAME, FARES), None, Wish("bar"), "named bars"),
        ((FARES,), (), Wish("bar"), "named bars"),
    ],
)
def test_what_can_not_be_drawn_is_said_in_a_line(columns: tuple[Column, ...], keys: Any, wish: Wish, rule: str) -> None:
    with pytest.raises(UsageProblem, check=breaks(rule)):
        layout_of(columns, keys, wish)
