"""What is drawn of a result, and what a page and a text show of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.results.drawing import ANY, MOST_GROUPS, Drawing, Layout, Wish, drawing_of, layout_of, page_of, text_of
from qod_magics.results.result import Result
from tests.results.rows import (
    AT,
    BEGAN,
    FARES,
    NAME,
    PER_ZONE,
    TRIPS,
    WINDOW,
    ZONE,
    at,
    estimate,
    per_zone,
    result,
    window,
)
from tests.texts import tells

DEFAULT = Wish()
KEYS = ("w", "zone")
MS = 1000.0 * BEGAN.timestamp()


def drawn(found: Result, wish: Wish = DEFAULT, before: tuple[str, ...] = ()) -> Drawing:
    return drawing_of(found, layout_of(found.columns, found.keys, wish), before)


def test_a_line_has_a_point_for_each_window_and_group_as_it_was_written_last() -> None:
    rows = [per_zone(0, 1, 5.0), per_zone(0, 2, 7.0), per_zone(1, 1, 3.0, None), per_zone(0, 1, 8.0, 2.0)]
    found = drawn(result(PER_ZONE, KEYS, rows))
    first, second = "2026-11-21 12:00:00 to 12:00:10", "2026-11-21 12:00:10 to 12:00:20"
    assert list(found.items.values()) == [
        {"x": MS, "name": first, "group": "1", "order": 0, "value": 8.0, "low": 6.0, "high": 10.0},
        {"x": MS, "name": first, "group": "2", "order": 1, "value": 7.0, "low": 6.0, "high": 8.0},
        {"x": MS + 10_000, "name": second, "group": "1", "order": 2, "value": 3.0, "low": None, "high": None},
    ]
    assert found.groups == ("1", "2")
    assert found.notes == ()
    assert found.rows == (rows[3], rows[1], rows[2])


def test_a_plain_number_has_no_interval() -> None:
    found = drawn(result(PER_ZONE, KEYS, [per_zone(0, 1, 4.0)]), Wish(y="fares"))
    (point,) = found.items.values()
    assert (point["value"], point["low"], point["high"]) == (10.0, None, None)


@given(numbers=st.lists(st.integers(0, 200), min_size=1), rows=st.integers(1, 30))
def test_a_line_has_the_newest_windows(numbers: list[int], rows: int) -> None:
    found = drawn(result(PER_ZONE, KEYS, [per_zone(n, 1, 1.0) for n in numbers]), Wish(rows=rows))
    expected = sorted(set(numbers))[-rows:]
    assert [point["x"] for point in found.items.values()] == [MS + 10_000 * n for n in expected]
    left_out = len(set(numbers)) - len(expected)
    assert found.notes == ((f"the newest {rows} of {len(set(numbers))} windows",) if left_out else ())


@given(
    trips=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(0, 100)), max_size=60),
    before=st.sets(st.integers(0, 40).map(str), max_size=MOST_GROUPS),
)
def test_of_many_groups_the_largest_are_drawn_and_those_drawn_before_stay(
    trips: list[tuple[int, int, int]], before: set[str]
) -> None:
    found = drawn(result(PER_ZONE, KEYS, [per_zone(*each) for each in trips]), before=tuple(before))
    last = {(number, zone): value for number, zone, value in trips}
    sums: dict[str, int] = {}
    for (_, zone), value in last.items():
        sums[str(zone)] = sums.get(str(zone), 0) + value
    chosen = set(found.groups)
    assert len(chosen) == min(len(sums), MOST_GROUPS)
    assert before & sums.keys() <= chosen
    others = chosen - before
    least = min((sums[group] for group in others), default=0)
    assert all(sums[group] <= least for group in sums.keys() - chosen) or not others
    assert {point["group"] for point in found.items.values()} == chosen
    assert (f"{MOST_GROUPS} of {len(sums)} groups" in found.notes) == (len(sums) > MOST_GROUPS)


def test_bars_stand_for_groups_the_highest_first() -> None:
    rows = [{"zone": zone, "trips": estimate(trips, 1.0)} for zone, trips in ((3, 5.0), (1, 9.0), (2, 5.0), (3, 6.0))]
    found = drawn(result((ZONE, TRIPS), ("zone",), rows))
    assert [(bar["x"], bar["group"], bar["value"], bar["low"], bar["high"]) for bar in found.items.values()] == [
        ("1", "", 9.0, 8.0, 10.0),
        ("3", "", 6.0, 5.0, 7.0),
        ("2", "", 5.0, 4.0, 6.0),
    ]
    assert drawn(result((ZONE, TRIPS), ("zone",), rows), Wish(rows=2)).notes == ("the 2 largest of 3 bars",)


def test_bars_of_windows_are_of_the_newest_one() -> None:
    rows = [per_zone(0, 1, 50.0), per_zone(2, 2, 7.0), per_zone(1, 1, 9.0), per_zone(2, 1, 3.0)]
    found = drawn(result(PER_ZONE, KEYS, rows), Wish("bar"))
    assert [(bar["x"], bar["value"]) for bar in found.items.values()] == [("2", 7.0), ("1", 3.0)]


def test_bars_beside_each_other_stand_for_a_second_key() -> None:
    rows = [
        {"name": name, "zone": zone, "fares": fares} for name, zone, fares in (("a", 1, 5), ("b", 1, 6), ("a", 2, 7))
    ]
    found = drawn(result((NAME, ZONE, FARES), ("name", "zone"), rows), Wish(x="zone"))
    assert [(bar["x"], bar["group"]) for bar in found.items.values()] == [("2", "a"), ("1", "a"), ("1", "b")]
    assert found.groups == ("a", "b")


def test_a_table_of_keys_has_the_newest_times_first_and_keys_in_order() -> None:
    rows = [per_zone(0, 2, 1.0), per_zone(1, 2, 2.0), per_zone(0, 1, 3.0), per_zone(1, 1, 4.0)]
    found = drawn(result(PER_ZONE, KEYS, rows), Wish("table", rows=3))
    assert [row["cells"][1:] for row in found.items.values()] == [
        ["1", "4 [3, 5]", "10"],
        ["2", "2 [1, 3]", "5"],
        ["1", "3 [2, 4]", "7.5"],
    ]
    assert found.items["0"]["cells"][0] == "2026-11-21 12:00:10 to 12:00:20"
    assert found.notes == ("the newest 3 of 4 rows",)


def test_a_table_of_single_rows_has_the_one_that_was_written_last_first() -> None:
    rows = [{"name": "a"}, {"name": "b"}, {}, {"name": "a"}]
    found = drawn(result((NAME,), None, rows))
    assert [row["cells"] for row in found.items.values()] == [["a"], ["-"], ["b"], ["a"]]
    timed = drawn(result((AT, NAME), None, [{"at": at(2), "name": "a"}, {"at": at(1), "name": "b"}, {"name": "c"}]))
    assert [row["cells"][1] for row in timed.items.values()] == ["a", "b", "c"]


def test_rows_without_a_place_on_the_axis_are_not_drawn() -> None:
    rows = [{"zone": 1, "trips": estimate(1.0)}, {"w": window(0), "zone": 1, "fares": 1.0}]
    found = drawn(result((WINDOW, ZONE, TRIPS), KEYS, rows))
    (point,) = found.items.values()
    assert (point["x"], point["value"]) == (MS, None)


def test_of_nothing_nothing_is_drawn() -> None:
    for layout in (
        Layout("table"),
        Layout("line", "w", "trips", ("zone",)),
        Layout("bar", None, "trips", ("zone",), "w"),
    ):
        found = drawing_of(result(PER_ZONE, KEYS, []), layout)
        assert (dict(found.items), found.rows, found.groups, found.notes) == ({}, (), (), ())


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
    assert page(found)["facts"][0] == ACCURACY
    assert tells(page(found)["facts"][1], "trips estimated", MISSING)
    accuracy, columns, shown = page(found, Wish(y="fares", rows=2))["facts"]
    assert accuracy == ACCURACY
    assert tells(columns, "fares", MISSING)
    assert tells(shown, 2, 3)
    assert tells(page(found, Wish("bar"))["facts"][-1], "w", "2026-11-21 12:00:20 to 12:00:30")
    assert page(result(PER_ZONE, KEYS, ROWS))["facts"] == [ACCURACY]


def test_what_was_not_read_is_said() -> None:
    found = replace(result(PER_ZONE, KEYS, ROWS), unread=1234)
    assert "1,234" in page(found)["facts"][-1]
    assert page(replace(found, incomplete=("late", "anew")))["facts"][-3:-1] == ["incomplete: late", "incomplete: anew"]
    single = replace(result((NAME, ZONE), None, [{"name": "a", "zone": 1}]), unread=1234)
    assert tells(page(single)["facts"][-1], 1, "1,235")


def test_groups_that_can_not_be_told_apart_are_said() -> None:
    assert len(page(result((TRIPS,), None, [{"trips": estimate(1.0)}]))["facts"]) > 1
    assert page(result((NAME,), None, [{"name": "a"}]))["facts"] == [ACCURACY]


def test_a_text_has_the_rows_with_their_intervals_and_what_is_known_of_them() -> None:
    text = text_of(result(PER_ZONE, KEYS, ROWS, labels=LABELS, missing=MISSING), Wish(rows=3))
    lines = text.splitlines()
    assert lines[:5] == [
        "per_zone, read at 12:00:00 UTC",
        "w                                zone        trips  fares",
        "2026-11-21 12:00:20 to 12:00:30     1  12 [11, 13]     30",
        "2026-11-21 12:00:20 to 12:00:30     2  22 [21, 23]     55",
        "2026-11-21 12:00:10 to 12:00:20     2  21 [20, 22]   52.5",
    ]
    assert lines[5] == ACCURACY
    assert tells(lines[6], "zone exact", "trips estimated", "fares", MISSING)
    assert tells(lines[7], 3, 6)
    assert not any("12:00:20" in line for line in text_of(result(PER_ZONE, KEYS, []), ANY).splitlines())
