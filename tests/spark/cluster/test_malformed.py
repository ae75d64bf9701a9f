"""Reports of malformed values: at once, then at most once a minute, and no row of them untold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.cluster.malformed import EVERY_S, MalformedReports, malformed_text

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
    assert (
        malformed_text(1, "not json", "drop") == "1 value is not JSON of its schema and was dropped, such as 'not json'"
    )
    said = malformed_text(1234, "two\nlines", "keep")
    assert said == "1,234 values are not JSON of its schema and were kept as rows of nulls, such as 'two lines'"
    assert "\n" not in malformed_text(2, None, "fail")
