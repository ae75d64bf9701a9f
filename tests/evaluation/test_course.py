"""What is seen of an engine that nobody controls, on sightings made by hand."""

from __future__ import annotations

import pytest

from benchmarks.evaluation.course import Seen, last_told
from benchmarks.evaluation.plain import offsets


def window(start: float, rows: int, *ages: float) -> dict[str, object]:
    """A window with the percentiles 50, 95 and 99 of its rows' ages."""
    return {"start": start, "rows": rows, "end_to_end": list(ages)}


SEEN = Seen(
    spans={"calm": (100.0, 120.0), "much": (120.0, 150.0)},
    waiting=[(90.0, 999), (100.0, 10), (110.0, 20), (119.0, 30), (130.0, 500), (149.0, 900), (160.0, 7)],
    windows={
        "Q": [
            window(90, 5, 1, 2, 3),
            window(110, 5, 10, 20, 30),
            window(120, 5, 100, 300, 400),
            window(140, 5, 200, 250, 500),
        ]
    },
)


def test_a_phase_tells_what_waits_at_its_end_and_the_worst_of_its_windows() -> None:
    much = SEEN.phase("much")
    assert much["waiting_rows"] == 900
    assert much["end_to_end_ms"]["Q"] == {"p50": 150, "p95": 300, "p99": 500}
    assert much["inside_ms"] == {}  # it has no stages
    assert SEEN.phase("calm")["waiting_rows"] == 30


def test_what_was_seen_before_and_after_the_phases_does_not_count() -> None:
    assert SEEN.mean_waiting() == pytest.approx((10 + 20 + 30 + 500 + 900) / 5)


def test_a_chart_begins_with_the_first_phase() -> None:
    course = SEEN.course()
    assert course["phases"] == {"calm": 0.0, "much": 20.0}
    assert course["waiting"] == [[0.0, 10], [10.0, 20], [19.0, 30], [30.0, 500], [49.0, 900]]
    assert course["age_ms"]["Q"] == [[15.0, 10], [25.0, 100], [45.0, 200]]


def test_of_a_window_that_is_told_again_the_fullest_counts() -> None:
    told = [window(20, 3, 1, 1, 1), window(10, 4, 2, 2, 2), window(20, 9, 5, 5, 5), window(20, 8, 4, 4, 4)]
    assert [(each["start"], each["rows"]) for each in last_told(told)] == [(10, 4), (20, 9)]


@pytest.mark.parametrize("said", ['{"trips1": {"0": 7}}', {"trips1": {"0": 7}}, None, ""])
def test_offsets_come_as_text_or_not_at_all(said: object) -> None:
    assert offsets(said or None) == ({"trips1": {0: 7}} if said else {})
