"""Sampled end offsets: times of offsets and back, arrival rates exact on straight lines, arrival times of rows."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.kafka.history import MOST_SAMPLES, Arrivals, OffsetHistory, Samples

# --- samples of one partition -----------------------------------------------------------------------------------------

steps = st.lists(st.tuples(st.floats(0.1, 5.0), st.integers(0, 50)), min_size=2, max_size=40)


def sampled(times: list[float], ends: list[int]) -> Samples:
    samples = Samples()
    for time, end in zip(times, ends, strict=True):
        samples.add(time, end)
    return samples


def test_of_equal_offsets_the_first_and_the_last_sample_are_kept() -> None:
    samples = sampled([0.0, 1.0, 2.0, 3.0, 4.0], [5, 5, 5, 5, 9])
    assert (samples.times, samples.offsets) == ([0.0, 3.0, 4.0], [5, 5, 9])


@given(steps, st.data())
def test_at_the_arrival_of_a_row_the_end_offset_is_its_own(taken: list[tuple[float, int]], data: st.DataObject) -> None:
    times, ends = (list(accumulate(each)) for each in zip(*taken, strict=True))
    samples = sampled(times, ends)
    offset = data.draw(st.integers(ends[0], max(ends[-1] - 1, ends[0])))
    arrived = samples.arrival(offset)
    if offset >= ends[-1]:
        assert arrived is None
    else:
        assert arrived is not None
        assert samples.at(arrived) == pytest.approx(offset, abs=1e-6)


@given(steps, st.data())
def test_what_is_forgotten_changes_no_later_answer(taken: list[tuple[float, int]], data: st.DataObject) -> None:
    times, ends = (list(accumulate(each)) for each in zip(*taken, strict=True))
    whole, by_time, by_offset = (sampled(times, ends) for _ in range(3))
    time, offset = data.draw(st.sampled_from(times)), data.draw(st.sampled_from(ends))
    by_time.forget_before(time)
    by_offset.forget_below(offset)
    assert [by_time.at(each) for each in times if each >= time] == [whole.at(each) for each in times if each >= time]
    assert [by_offset.arrival(each) for each in range(offset, ends[-1] + 1)] == [
        whole.arrival(each) for each in range(offset, ends[-1] + 1)
    ]


# --- rates ------------------------------------------------------------------------------------------------------------

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
    with pytest.raises(ValueError, match="order"):
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


# --- arrivals ---------------------------------------------------------------------------------------------------------


def arrivals_of(*ends: tuple[float, int]) -> Arrivals:
    arrivals = Arrivals()
    for time, offset in ends:
        arrivals.record(time, {"t": {0: offset}})
    return arrivals


def test_between_samples() -> None:
    arrivals = arrivals_of((10.0, 0), (11.0, 100), (12.0, 300))
    assert arrivals.oldest("t", {0: 50}) == pytest.approx(10.5)
    assert arrivals.oldest("t", {0: 200}) == pytest.approx(11.5)
    assert arrivals.oldest("t", {0: 300}) is None, "no such row has arrived"
    assert arrivals.oldest("other", {0: 0}) is None


def test_a_row_after_a_quiet_time_arrived_after_it() -> None:
    arrivals = arrivals_of((0.0, 5), *((float(t), 5) for t in range(1, 100)), (100.0, 6))
    assert 99.0 <= (arrivals.oldest("t", {0: 5}) or 0.0) < 100.0


def test_by_a_time() -> None:
    arrivals = arrivals_of((10.0, 0), (20.0, 100))
    assert arrivals.oldest("t", {0: 50}, by=14.0) is None
    assert arrivals.oldest("t", {0: 50}, by=16.0) == pytest.approx(15.0)


def test_after_the_clock_is_set_back_waiting_rows_age_again() -> None:
    arrivals = arrivals_of((1000.0, 0), (1001.0, 100), (400.0, 100), (405.0, 150))
    assert arrivals.oldest("t", {0: 50}) == pytest.approx(400.0)
    assert arrivals.oldest("t", {0: 125}) == pytest.approx(402.5)
    slightly = arrivals_of((10.0, 0), (11.0, 100), (10.5, 100), (12.0, 200))
    assert slightly.oldest("t", {0: 50}) == pytest.approx(10.5), "an answer that is late is no other clock"


def test_the_oldest_over_partitions() -> None:
    arrivals = Arrivals()
    for time, ends in ((0.0, {0: 0, 1: 0}), (10.0, {0: 100, 1: 10})):
        arrivals.record(time, {"t": ends})
    assert arrivals.oldest("t", {0: 90, 1: 5}) == pytest.approx(5.0)
    assert arrivals.oldest("t", {0: 100, 1: 10}) is None


def test_rows_from_before_the_first_sample_are_at_least_as_old_as_that() -> None:
    assert arrivals_of((10.0, 500), (11.0, 600)).oldest("t", {0: 20}) == 10.0


def test_a_topic_that_was_recreated_starts_over() -> None:
    arrivals = arrivals_of((10.0, 500), (11.0, 0), (12.0, 10))
    assert arrivals.oldest("t", {0: 5}) == pytest.approx(11.5)


def test_what_is_read_is_forgotten_and_what_waits_is_not() -> None:
    arrivals = arrivals_of(*((float(t), 10 * t) for t in range(50)))
    arrivals.forget("t", {0: 205})
    assert arrivals.oldest("t", {0: 205}) == pytest.approx(20.5)
    assert arrivals.oldest("t", {0: 0}) == 20.0, "older samples are gone"
    arrivals.keep(set())
    assert arrivals.oldest("t", {0: 205}) is None


def test_a_long_wait_needs_few_samples_and_stays_known() -> None:
    arrivals = arrivals_of(*((float(t), 10 * t) for t in range(20 * MOST_SAMPLES)))
    assert arrivals.oldest("t", {0: 25}) == pytest.approx(2.5, abs=0.5)
    assert len(arrivals._topics["t"][0].times) <= MOST_SAMPLES


@given(st.lists(st.tuples(st.floats(0.1, 5.0), st.integers(0, 50)), min_size=2, max_size=40), st.data())
def test_a_row_arrived_within_the_interval_of_samples_that_holds_it(
    steps: list[tuple[float, int]], data: st.DataObject
) -> None:
    times = list(accumulate(step for step, _ in steps))
    ends = list(accumulate(rows for _, rows in steps))
    arrivals = arrivals_of(*zip(times, ends, strict=True))
    offset = data.draw(st.integers(0, ends[-1] + 5))
    found = arrivals.oldest("t", {0: offset})
    after = next((i for i, end in enumerate(ends) if end > offset), None)
    if after is None:
        assert found is None
    else:
        assert found is not None
        assert times[max(after - 1, 0)] - 1e-9 <= found <= times[after] + 1e-9
