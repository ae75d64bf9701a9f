"""Arrival times of rows, from sampled end offsets."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.kafka.history import MOST_SAMPLES, Arrivals


def sampled(*ends: tuple[float, int]) -> Arrivals:
    arrivals = Arrivals()
    for time, offset in ends:
        arrivals.record(time, {"t": {0: offset}})
    return arrivals


def test_between_samples() -> None:
    arrivals = sampled((10.0, 0), (11.0, 100), (12.0, 300))
    assert arrivals.oldest("t", {0: 50}) == pytest.approx(10.5)
    assert arrivals.oldest("t", {0: 200}) == pytest.approx(11.5)
    assert arrivals.oldest("t", {0: 300}) is None, "no such row has arrived"
    assert arrivals.oldest("other", {0: 0}) is None


def test_a_row_after_a_quiet_time_arrived_after_it() -> None:
    arrivals = sampled((0.0, 5), *((float(t), 5) for t in range(1, 100)), (100.0, 6))
    assert 99.0 <= (arrivals.oldest("t", {0: 5}) or 0.0) < 100.0


def test_by_a_time() -> None:
    arrivals = sampled((10.0, 0), (20.0, 100))
    assert arrivals.oldest("t", {0: 50}, by=14.0) is None
    assert arrivals.oldest("t", {0: 50}, by=16.0) == pytest.approx(15.0)


def test_after_the_clock_is_set_back_waiting_rows_age_again() -> None:
    arrivals = sampled((1000.0, 0), (1001.0, 100), (400.0, 100), (405.0, 150))
    assert arrivals.oldest("t", {0: 50}) == pytest.approx(400.0)
    assert arrivals.oldest("t", {0: 125}) == pytest.approx(402.5)
    slightly = sampled((10.0, 0), (11.0, 100), (10.5, 100), (12.0, 200))
    assert slightly.oldest("t", {0: 50}) == pytest.approx(10.5), "an answer that is late is no other clock"


def test_the_oldest_over_partitions() -> None:
    arrivals = Arrivals()
    for time, ends in ((0.0, {0: 0, 1: 0}), (10.0, {0: 100, 1: 10})):
        arrivals.record(time, {"t": ends})
    assert arrivals.oldest("t", {0: 90, 1: 5}) == pytest.approx(5.0)
    assert arrivals.oldest("t", {0: 100, 1: 10}) is None


def test_rows_from_before_the_first_sample_are_at_least_as_old_as_that() -> None:
    assert sampled((10.0, 500), (11.0, 600)).oldest("t", {0: 20}) == 10.0


def test_a_topic_that_was_recreated_starts_over() -> None:
    arrivals = sampled((10.0, 500), (11.0, 0), (12.0, 10))
    assert arrivals.oldest("t", {0: 5}) == pytest.approx(11.5)


def test_what_is_read_is_forgotten_and_what_waits_is_not() -> None:
    arrivals = sampled(*((float(t), 10 * t) for t in range(50)))
    arrivals.forget("t", {0: 205})
    assert arrivals.oldest("t", {0: 205}) == pytest.approx(20.5)
    assert arrivals.oldest("t", {0: 0}) == 20.0, "older samples are gone"
    arrivals.keep(set())
    assert arrivals.oldest("t", {0: 205}) is None


def test_a_long_wait_needs_few_samples_and_stays_known() -> None:
    arrivals = sampled(*((float(t), 10 * t) for t in range(20 * MOST_SAMPLES)))
    assert arrivals.oldest("t", {0: 25}) == pytest.approx(2.5, abs=0.5)
    assert len(arrivals._topics["t"][0].times) <= MOST_SAMPLES


@given(st.lists(st.tuples(st.floats(0.1, 5.0), st.integers(0, 50)), min_size=2, max_size=40), st.data())
def test_a_row_arrived_within_the_interval_of_samples_that_holds_it(
    steps: list[tuple[float, int]], data: st.DataObject
) -> None:
    times = list(accumulate(step for step, _ in steps))
    ends = list(accumulate(rows for _, rows in steps))
    arrivals = sampled(*zip(times, ends, strict=True))
    offset = data.draw(st.integers(0, ends[-1] + 5))
    found = arrivals.oldest("t", {0: offset})
    after = next((i for i, end in enumerate(ends) if end > offset), None)
    if after is None:
        assert found is None
    else:
        assert found is not None
        assert times[max(after - 1, 0)] - 1e-9 <= found <= times[after] + 1e-9
