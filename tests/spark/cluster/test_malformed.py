"""Reports of malformed values: at once, then at most once a minute, and no row of them untold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.cluster.books import (
    EVERY_S,
    MalformedReports,
    columnless_text,
    implausible_text,
    malformed_text,
    tombstones_text,
)
from tests.texts import tells

BATCHES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.floats(0.0, 30.0)), max_size=60)


@given(BATCHES)
def test_each_row_is_told_of_once_and_each_feed_at_most_once_a_minute(batches: list[tuple[str, int, float]]) -> None:
    reports, now = MalformedReports(), 0.0
    rows = dict.fromkeys("ab", 0)
    told = dict.fromkeys("ab", 0)
    last: dict[str, float] = {}
    for feed, count, wait_s in batches:
        now += wait_s
        rows[feed] += count
        due = reports.add(feed, count, now)
        assert due >= 0
        if due:
            assert now - last.get(feed, -EVERY_S) >= EVERY_S
            last[feed] = now
        elif count:
            assert now - last[feed] < EVERY_S
        told[feed] += due
    for feed in "ab":
        assert told[feed] + reports.add(feed, 0, now + 2 * EVERY_S) == rows[feed]


def test_what_is_said_of_them() -> None:
    assert tells(malformed_text(1, "not json", "drop"), 1, "JSON", "dropped", "'not json'")
    said = malformed_text(1234, "two\nlines", "keep", "column a is INT, and 5.0 is not")
    assert "1,234 values" in said
    assert "'two lines'" in said
    assert said.endswith("column a is INT, and 5.0 is not")
    assert len(malformed_text(1, "x" * 1000, "drop")) < 250
    assert "\n" not in malformed_text(2, None, "fail")


def test_what_is_said_of_other_rows() -> None:
    assert "tombstone" in tombstones_text(1, "drop")
    assert "no row" in tombstones_text(2, "fail")
    assert "no row" not in tombstones_text(2, "keep")
    said = implausible_text(2, "at=1764201600000000000", "drop")
    assert tells(said, "at = 1764201600000", 57875)
    assert tells(said, "--time-unit ms", "2025-11-27 00:00:00")
    assert "--time-unit" in implausible_text(1, "at=-8764201600000000000", "drop")
    case = columnless_text(5, ["zone", "fare"], ["Zone", "Fare"])
    assert "zone, fare" in case
    assert "found: Zone, Fare" in case
    assert "case" in case
    assert "case" not in columnless_text(1, ["zone"], ["x"])
