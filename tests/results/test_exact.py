"""Which offsets and windows an exact run counts, and which intervals held."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.results.exact import (
    Compared,
    Exact,
    Span,
    chosen,
    compared,
    covers,
    span_of,
    stretch,
    unknown,
    whole_from,
)
from qod_magics.results.result import Column, Interval, Kind
from qod_magics.session.exact import last_read
from qod_magics.spark.cluster.books import Account
from tests.raising import breaks

NOW = datetime(2026, 11, 27, 12, 0, 30, tzinfo=UTC)
COLUMNS = (
    Column("w", Kind.WINDOW),
    Column("zone", Kind.NUMBER),
    Column("trips", Kind.ESTIMATE),
    Column("most", Kind.NUMBER),
)
KEYS = ("w", "zone")


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-27T{text}+00:00")


def span(start: str = "10:00:00", end: str = "10:01:00") -> Span:
    return Span(at(start), at(end))


def window(start: str, seconds: float = 10.0, zone: str = "Z") -> dict[str, str]:
    """A window as Spark's JSON has it."""
    end = at(start) + timedelta(seconds=seconds)
    return {"start": f"2026-11-27T{start}.000000{zone}", "end": f"{end:%Y-%m-%dT%H:%M:%S.%f}{zone}"}


def group(start: str, zone: int, trips: float, half: float | None = 0.0, **more: Any) -> dict[str, Any]:
    ends = {} if half is None else {"low": trips - half, "high": trips + half}
    return {"w": window(start), "zone": zone, "trips": {"value": trips, **ends}, **more}


# --- the span ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("10:00", "2026-11-27T10:00:00"),
        ("9:05:30", "2026-11-27T09:05:30"),
        ("12:00:29", "2026-11-27T12:00:29"),
        ("12:01", "2026-11-26T12:01:00"),
        ("2026-11-27T10:00", "2026-11-27T10:00:00"),
        ("2026-11-27T10:00+02:00", "2026-11-27T08:00:00"),
        ("-15m", "2026-11-27T11:45:30"),
        (datetime(2026, 11, 27, 10, 0), "2026-11-27T10:00:00"),
    ],
)
def test_a_time_is_in_utc_and_one_of_day_the_last_that_passed(given: str | datetime, meant: str) -> None:
    assert span_of(given, "12:00:30", NOW).start == datetime.fromisoformat(f"{meant}+00:00")


@pytest.mark.parametrize(
    ("start", "end", "option", "rule"),
    [
        ("soon", "10:00", "--from", "time"),
        ("25:00", "10:00", "--from", "time"),
        ("10:00", "-9e999h", "--to", "time"),
        ("10:00", "10:00", "--from", "past"),
        ("10:01", "10:00", "--from", "past"),
        ("10:00", "2026-11-27T12:01", "--to", "past"),
        ("-99999999d", "10:00", "--from", "time"),
    ],
)
def test_a_span_must_be_of_the_past(start: str, end: str, option: str, rule: str) -> None:
    with pytest.raises(UsageProblem, check=breaks(rule, option=option)):
        span_of(start, end, NOW)


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_offsets_begin_no_earlier_than_the_query() -> None:
    found = stretch(since={0: 100, 1: 40}, until={0: 900, 1: 50}, oldest={0: 0, 1: 0}, begun={0: 250, 1: -7})
    assert (found.start, found.end) == ({0: 250, 1: 40}, {0: 900, 1: 50})
    assert found.cut == frozenset()
    assert found.offsets == 660


def test_a_span_before_the_query_has_no_offsets() -> None:
    found = stretch({0: 100}, {0: 200}, {0: 0}, {0: 500})
    assert (found.start, found.end, found.offsets) == ({0: 500}, {0: 500}, 0)


def test_retention_may_have_deleted_rows_where_the_oldest_row_is_within_the_span() -> None:
    found = stretch(
        {0: 300, 1: 300, 2: 0, 3: 300}, dict.fromkeys(range(4), 900), {0: 300, 1: 200, 2: 0, 3: 300}, {3: 300}
    )
    assert found.cut == {0}  # 1 has older rows, 2 was never cut, and of 3 the query has read no earlier one


# --- windows ----------------------------------------------------------------------------------------------------------


def starts(rows: Any) -> list[str]:
    return [row["w"]["start"][11:19] for row in rows]


def test_windows_count_that_lie_in_the_span_as_a_whole() -> None:
    rows = [group(each, 1, 5) for each in ("09:59:55", "10:00:00", "10:00:50", "10:00:55", "10:01:00")]
    assert starts(chosen(rows, "w", span()).rows) == ["10:00:00", "10:00:50"]


def test_a_window_is_an_instant_whatever_zone_it_is_written_in() -> None:
    rows = [
        {"w": window("12:00:00", zone="+02:00")},
        {"w": {"start": "2026-11-27T10:00:10", "end": "2026-11-27T10:00:20"}},
    ]
    assert len(chosen(rows, "w", span()).rows) == 2


def test_windows_without_all_their_rows_are_left_out_and_counted() -> None:
    rows = [group(each, 1, 5) for each in ("10:00:00", "10:00:10", "10:00:20", "10:00:30")]
    found = chosen(rows, "w", span(), whole_since=at("10:00:05"), began=at("10:00:20"))
    assert (starts(found.rows), found.cut, found.partial) == (["10:00:20", "10:00:30"], 1, 1)


def test_a_time_is_the_begin_of_a_window_as_long_as_the_least_distance() -> None:
    rows = [{"at": f"2026-11-27T10:00:{second}.000Z"} for second in ("20", "30", "50")]
    assert [row["at"][17:19] for row in chosen(rows, "at", span(end="10:00:59")).rows] == ["20", "30"]
    assert len(chosen(rows, "at", span()).rows) == 3


def test_groups_without_a_window_count_nowhere() -> None:
    assert chosen([{"w": None}, {}, {"w": {"start": None}}], "w", span()).rows == ()


# --- intervals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exact", "low", "high", "is_held"),
    [
        (5.0, 4.0, 6.0, True),
        (4.0, 4.0, 6.0, True),
        (3.9, 4.0, 6.0, False),
        (6.1, 4.0, 6.0, False),
        (100.0, 4.0, None, True),
        (-100.0, None, 6.0, True),
        (7.0, None, 6.0, False),
        (0.1 + 0.2, 0.3, 0.3, True),
        (5.0, None, None, None),
    ],
)
def test_an_interval_holds_what_lies_between_its_ends(
    exact: float, low: float | None, high: float | None, is_held: bool | None
) -> None:
    assert covers(Interval(5.0, low, high), exact) is is_held


def result() -> Exact:
    exact = [group("10:00:00", 10, 40, most=9), group("10:00:00", 9, 12, most=7), group("10:00:10", 1, 3, most=1)]
    written = [
        group("10:00:00", 10, 44, 2),
        group("10:00:00", 9, 5, 1),
        {**group("10:00:00", 9, 11, 2, most=6), "w": window("12:00:00", zone="+02:00")},
    ]
    return Exact("counts", span(), COLUMNS, KEYS, compared(exact, written, COLUMNS, KEYS), rows_read=1000)


def test_each_group_stands_beside_what_was_written_of_it_last() -> None:
    found = result()
    assert [group.exact["zone"] for group in found.groups] == [9, 10, 1]
    assert [dict(group.held) for group in found.groups] == [{"trips": True}, {"trips": False}, {}]
    assert (found.held, found.intervals, found.share, found.missing) == (1, 2, 0.5, 1)


def test_groups_are_told_of_which_no_row_was_read() -> None:
    written = [group("10:00:00", 1, 5), {**group("10:00:00", 1, 6), "w": window("12:00:00", zone="+02:00")}]
    assert unknown(written, [group("10:00:00", 2, 5)], KEYS) == 1
    assert unknown(written, [group("10:00:00", 1, 9)], KEYS) == 0


def test_the_frame_has_exact_figures_and_estimates() -> None:
    frame = result().frame
    names = ["w", "w_end", "zone", "trips", "trips_estimate", "trips_low", "trips_high", "trips_held"]
    assert list(frame.columns) == [*names, "most", "most_estimate"]
    assert frame.w[0] == at("10:00:00")
    assert list(frame.trips) == [12, 40, 3]
    assert list(frame.trips_high[:2]) == [13, 46]
    assert list(frame.trips_held[:2]) == [True, False]
    assert list(frame.most_estimate.isna()) == [False, True, True]


def test_the_table_is_text_and_html() -> None:
    found = result()
    assert all(part in str(found) for part in ("50.0%", "12", "11 [9, 13]", "1 group"))
    assert found._repr_html_().count("<tr>") == 4
    nothing = Exact("counts", span(), COLUMNS, KEYS, ())
    assert (nothing.share, len(nothing.frame)) == (None, 0)
    assert "counts" in str(nothing)


def test_markup_in_values_is_text() -> None:
    columns = (Column("w", Kind.WINDOW), Column("name", Kind.TEXT), Column("trips", Kind.NUMBER))
    row = {"w": window("10:00:00"), "name": "<script>", "trips": 1}
    assert "<script>" not in Exact("q", span(), columns, ("w", "name"), (Compared(row, None, {}),))._repr_html_()


@pytest.mark.parametrize(
    ("first", "is_empty", "last_read", "since"),
    [
        ("10:00:00", True, "09:00:00", "09:00:00"),  # quiet for an hour: by age or by hand, its rows are older
        ("10:00:00", True, "09:59:59", "09:59:59"),  # by hand, whatever the retention is
        ("10:00:00", True, None, "10:00:00"),  # nobody has read its rows
        ("09:50:00", False, "09:40:00", "09:50:00"),  # the oldest that is left tells more
        ("10:00:00", False, "09:40:00", "10:00:00"),  # the same, up to a row behind the span
    ],
)
def test_rows_of_an_empty_partition_were_sent_before_the_last_of_them_was_read(
    first: str, is_empty: bool, last_read: str | None, since: str
) -> None:
    assert whole_from(at(first), is_empty, None if last_read is None else at(last_read)) == at(since)


def test_the_first_reader_that_reached_the_end_tells_when_the_rows_were_there() -> None:
    def account(position: int, read: float | None) -> Account:
        return Account("t", {1: 0}, {1: position}, last_read={} if read is None else {1: read})

    early, late, behind, unknown_time = account(9, 60.0), account(9, 70.0), account(8, 50.0), account(9, None)
    assert last_read([late, early, behind, unknown_time], 1, 9) == datetime.fromtimestamp(60.0, UTC)
    assert last_read([behind, unknown_time], 1, 9) is None
    assert last_read([early], 2, 9) is None
