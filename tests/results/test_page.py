"""What stands on a page, and in a text, about a result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from qod_magics.results.drawing import drawing_of
from qod_magics.results.layout import ANY, Wish, layout_of
from qod_magics.results.page import page_of, text_of
from qod_magics.results.result import Result
from tests.results.rows import NAME, PER_ZONE, TRIPS, ZONE, estimate, per_zone, result

KEYS = ("w", "zone")
LABELS = {"w": "exact", "zone": "exact", "trips": "estimated, with an interval", "fares": "of the rows kept only"}
MISSING = "groups of which no row is kept are missing"
ROWS = [per_zone(number, zone, 10.0 * zone + number) for number in range(3) for zone in (1, 2)]
ACCURACY = "accuracy: measured 62.0%, planned 60.0%, minimum 40.0%"


def page(found: Result, wish: Wish = ANY) -> dict[str, Any]:
    layout = layout_of(found.columns, found.keys, wish)
    return page_of(found, layout, drawing_of(found, layout))


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (
            ANY,
            {"form": "line", "x": "start of w", "y": "trips", "group": "zone", "scale": "time", "groups": ["1", "2"]},
        ),
        (Wish("line", x="zone"), {"form": "line", "x": "zone", "group": "", "scale": "number", "groups": [""]}),
        (Wish("bar"), {"form": "bar", "x": "zone", "y": "trips", "group": "", "scale": "name"}),
        (Wish(x="zone"), {"form": "bar", "x": "zone", "group": "", "scale": "name"}),
        (
            Wish("table"),
            {"form": "table", "y": None, "columns": [["w", False], ["zone", True], ["trips", True], ["fares", True]]},
        ),
    ],
)
def test_axes_are_named_by_columns(wish: Wish, expected: dict[str, Any]) -> None:
    found = page(result(PER_ZONE, KEYS, ROWS), wish)
    assert {name: found[name] for name in expected} == expected


def test_facts_are_of_the_column_on_show() -> None:
    found = result(PER_ZONE, KEYS, ROWS, labels=LABELS, missing=MISSING)
    assert page(found)["facts"] == [ACCURACY, f"trips estimated, with an interval; {MISSING}"]
    assert page(found, Wish(y="fares", rows=2))["facts"] == [
        *(ACCURACY, f"fares of the rows kept only; {MISSING}", "shown: the newest 2 of 3 windows"),
    ]
    assert page(found, Wish("bar"))["facts"][-1] == "shown: only the newest w: 2026-11-21 12:00:20 to 12:00:30"
    assert page(result(PER_ZONE, KEYS, ROWS))["facts"] == [ACCURACY]


def test_what_was_not_read_is_said() -> None:
    found = replace(result(PER_ZONE, KEYS, ROWS), unread=1234)
    assert page(found)["facts"][-1] == "shown: 1,234 older rows are not read"
    single = replace(result((NAME, ZONE), None, [{"name": "a", "zone": 1}]), unread=1234)
    assert page(single)["facts"][-1] == "shown: the newest 1 of 1,235 rows"


def test_groups_that_can_not_be_told_apart_are_said() -> None:
    assert (
        "each update of a group is a row of its own"
        in page(result((TRIPS,), None, [{"trips": estimate(1.0)}]))["facts"][-1]
    )
    assert page(result((NAME,), None, [{"name": "a"}]))["facts"] == [ACCURACY]


def test_a_text_has_the_rows_with_their_intervals_and_what_is_known_of_them() -> None:
    text = text_of(result(PER_ZONE, KEYS, ROWS, labels=LABELS, missing=MISSING), Wish(rows=3))
    assert text.splitlines() == [
        "per_zone, read at 12:00:00 UTC",
        "w                                zone        trips  fares",
        "2026-11-21 12:00:20 to 12:00:30     1  12 [11, 13]     30",
        "2026-11-21 12:00:20 to 12:00:30     2  22 [21, 23]     55",
        "2026-11-21 12:00:10 to 12:00:20     2  21 [20, 22]   52.5",
        ACCURACY,
        f"w, zone exact; trips estimated, with an interval; fares of the rows kept only; {MISSING}",
        "shown: the newest 3 of 6 rows",
    ]
    assert text_of(result(PER_ZONE, KEYS, []), ANY).splitlines()[1] == "no rows yet"
