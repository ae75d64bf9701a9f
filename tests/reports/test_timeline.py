from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.reports.charts import CHARACTER, Timeline, fitted, lanes
from tests.recordings.taxi_drives import records, taxi_drives

spans = st.lists(st.tuples(st.floats(0, 900), st.floats(1, 200)).map(lambda s: (s[0], s[0] + s[1])), max_size=20)


@given(spans)
def test_no_two_labels_of_a_lane_overlap(found: list[tuple[float, float]]) -> None:
    placed = list(zip(lanes(found), found, strict=True))
    for n, (lane, (left, right)) in enumerate(placed):
        assert all(right <= a or left >= b for other, (a, b) in placed[:n] if other == lane)


@given(spans)
def test_a_lane_is_opened_only_when_those_before_are_taken(found: list[tuple[float, float]]) -> None:
    numbers = lanes(found)
    assert all(number <= max(numbers[:n], default=-1) + 1 for n, number in enumerate(numbers))


@given(st.text(max_size=40), st.floats(0, 400))
def test_a_fitted_name_fits(text: str, room: float) -> None:
    short = fitted(text, room)
    assert len(short) * CHARACTER <= room
    assert short == text or short == "" or (short.endswith("…") and text.startswith(short[:-1]))


def test_a_long_recording_counts_minutes() -> None:
    lines = taxi_drives()
    assert Timeline(records(lines), 900).unit == "s"
    lines[-1]["at"] = "2026-11-21T03:00:00.000Z"
    timeline = Timeline(records(lines), 900)
    assert (timeline.unit, timeline.end) == ("min", 60.0)


def test_there_is_no_strip_without_phases_and_events() -> None:
    lines = taxi_drives()[:5]
    for line in lines:
        del line["phase"]
    assert Timeline(records(lines), 900).strip() is None
    assert Timeline(records(taxi_drives()), 900).strip() is not None
