"""Sampled end offsets of one partition, which tell offsets of times and times of offsets."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.kafka.history import Samples

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
