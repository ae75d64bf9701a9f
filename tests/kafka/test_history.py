"""Arrival rates from end offsets: exact on straight lines, sane on all others."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.kafka.history import OffsetHistory

gaps = st.lists(st.floats(0.01, 20.0), min_size=2, max_size=30)
rows = st.integers(0, 100_000)


@st.composite
def growing(draw: st.DrawFn) -> list[tuple[float, dict[int, int]]]:
    """(time, partition -> end offset), as asked of a broker whose topic only grows."""
    times = list(accumulate(draw(gaps), initial=draw(st.floats(0.0, 1e6))))
    partitions = draw(st.integers(1, 3))
    steps = [[draw(rows) for _ in times] for _ in range(partitions)]
    offsets = [list(accumulate(each)) for each in steps]
    return [(time, {p: offsets[p][i] for p in range(partitions)}) for i, time in enumerate(times)]


def recorded(samples: list[tuple[float, dict[int, int]]], window_s: float = 1e9) -> OffsetHistory:
    history = OffsetHistory(window_s)
    for time, offsets in samples:
        history.record(time, {"rides": offsets})
    return history


@given(st.floats(0.0, 1e4), st.floats(0.5, 60.0), gaps)
def test_a_steady_stream_has_its_rate_over_any_time(per_second: float, over_s: float, steps: list[float]) -> None:
    times = list(accumulate(steps, initial=0.0))
    history = recorded([(time, {0: round(per_second * time)}) for time in times])
    rate = history.rate("rides", over_s)
    assert rate is not None
    span = min(over_s, times[-1])
    assert rate == pytest.approx(per_second, abs=2.0 / min(span, min(steps)))


@given(growing())
def test_what_was_recorded_is_what_it_was(samples: list[tuple[float, dict[int, int]]]) -> None:
    history = recorded(samples)
    for time, offsets in samples:
        assert history.at("rides", time) == pytest.approx(offsets)


@given(growing(), st.floats(0.0, 1.0))
def test_between_two_samples_it_is_between_them(samples: list[tuple[float, dict[int, int]]], share: float) -> None:
    history = recorded(samples)
    for (start, low), (end, high) in pairwise(samples):
        for partition, offset in history.at("rides", start + share * (end - start)).items():
            assert low[partition] - 1e-6 <= offset <= high[partition] + 1e-6


@given(growing(), st.floats(0.1, 1000.0))
def test_a_rate_is_never_negative_nor_above_the_steepest(
    samples: list[tuple[float, dict[int, int]]], over_s: float
) -> None:
    rate = recorded(samples).rate("rides", over_s)
    totals = [(time, sum(offsets.values())) for time, offsets in samples]
    steepest = max((high - low) / (end - start) for (start, low), (end, high) in pairwise(totals))
    assert rate is not None
    assert -1e-6 <= rate <= steepest * (1 + 1e-6) + 1e-6


@given(growing())
def test_over_the_whole_time_it_is_all_rows_by_all_seconds(samples: list[tuple[float, dict[int, int]]]) -> None:
    (start, first), (end, last) = samples[0], samples[-1]
    rate = recorded(samples).rate("rides", end - start)
    assert rate == pytest.approx((sum(last.values()) - sum(first.values())) / (end - start), abs=1e-6)


@given(growing(), st.floats(0.5, 30.0))
def test_the_window_bounds_what_is_kept_and_changes_no_answer_in_it(
    samples: list[tuple[float, dict[int, int]]], window_s: float
) -> None:
    bounded, all_of_it = recorded(samples, window_s), recorded(samples)
    newest = samples[-1][0]
    inside = [time for time, _ in samples if time >= newest - window_s]
    kept = bounded._topics["rides"][0].times
    assert len(kept) <= len(inside) + 1
    for share in (0.0, 0.3, 1.0):
        time = max(newest - window_s * share, samples[0][0])
        assert bounded.at("rides", time) == pytest.approx(all_of_it.at("rides", time))
    assert bounded.rate("rides", window_s) == pytest.approx(all_of_it.rate("rides", window_s))


@given(growing(), st.data())
def test_samples_that_a_restart_swallowed_do_not_bend_the_total(
    samples: list[tuple[float, dict[int, int]]], data: st.DataObject
) -> None:
    kept = [samples[0], *(s for s in samples[1:-1] if data.draw(st.booleans())), samples[-1]]
    over_s = samples[-1][0] - samples[0][0]
    assert recorded(kept).rate("rides", over_s) == pytest.approx(recorded(samples).rate("rides", over_s))


def test_nothing_is_known_before_two_samples() -> None:
    history = OffsetHistory()
    assert history.newest is None
    assert history.rate("rides") is None
    assert history.at("rides", 0.0) == {}
    history.record(5.0, {"rides": {0: 100}})
    assert history.rate("rides") is None
    assert history.at("rides", 4.0) == {}
    assert history.at("rides", 9.0) == {0: 100.0}
    assert history.newest == 5.0


def test_only_the_asked_seconds_count() -> None:
    history = recorded([(0.0, {0: 0}), (10.0, {0: 10_000}), (15.0, {0: 10_000}), (20.0, {0: 10_500})])
    assert history.rate("rides", 5.0) == 100.0
    assert history.rate("rides", 10.0) == 50.0
    assert history.rate("rides", 100.0) == 525.0
    assert history.rows("rides", 5.0, 10.0) == 5000.0


def test_a_topic_made_anew_starts_anew() -> None:
    history = recorded([(0.0, {0: 1000}), (1.0, {0: 2000}), (2.0, {0: 10})])
    assert history.rate("rides") is None
    assert history.at("rides", 1.0) == {}
    history.record(3.0, {"rides": {0: 40}})
    assert history.rate("rides") == 30.0


def test_a_new_partition_counts_from_its_first_sample() -> None:
    history = recorded([(0.0, {0: 0}), (1.0, {0: 10}), (2.0, {0: 20, 1: 500}), (3.0, {0: 30, 1: 505})])
    assert history.rate("rides", 1.0) == 15.0
    assert history.rows("rides", 0.0, 3.0) == 35.0


def test_a_topic_out_of_sight_is_forgotten() -> None:
    history = OffsetHistory(window_s=10.0)
    history.record(0.0, {"rides": {0: 1}, "fares": {0: 1}})
    history.record(5.0, {"fares": {0: 2}})
    assert history.topics() == ["fares", "rides"]
    history.record(11.0, {"fares": {0: 3}})
    assert history.topics() == ["fares"]


def test_a_time_told_twice_counts_once() -> None:
    history = recorded([(0.0, {0: 0}), (1.0, {0: 10}), (1.0, {0: 20})])
    assert history.rate("rides") == 10.0


@pytest.mark.parametrize("over_s", [0.0, -1.0])
def test_a_rate_over_no_time_is_refused(over_s: float) -> None:
    with pytest.raises(ValueError, match="over_s"):
        OffsetHistory().rate("rides", over_s)


def test_time_goes_forward() -> None:
    history = recorded([(5.0, {0: 0})])
    with pytest.raises(ValueError, match="in order"):
        history.record(4.0, {"rides": {0: 1}})
    with pytest.raises(ValueError, match="window_s"):
        OffsetHistory(0.0)


def test_what_is_forgotten_begins_anew() -> None:
    history = recorded([(0.0, {0: 10}), (1.0, {0: 20})])
    history.forget("rides")
    history.forget("never seen")
    assert history.topics() == []
    assert history.at("rides", 1.0) == {}
    assert history.rate("rides") is None
    history.record(2.0, {"rides": {0: 3}})
    assert history.at("rides", 3.0) == {0: 3.0}
    assert history.rows("rides", 0.0, 2.0) == 0.0
