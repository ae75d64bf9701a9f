"""What micro-batches cost beside their tasks: told apart from what is always there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.policies.stream_economics.cost_fit import BASE_OVERHEAD, BATCH_OVERHEAD, BatchOverhead


def taught(readings: list[tuple[float, float]]) -> BatchOverhead:
    found = BatchOverhead()
    for batches, cpu in readings:
        found = found.after(batches, cpu)
    return found


def test_without_a_reading_it_is_the_guess() -> None:
    assert BatchOverhead().of_a_batch == pytest.approx(BATCH_OVERHEAD)


@given(st.floats(2.0, 30.0), st.floats(0.0, 6.0))
def test_readings_at_several_rates_tell_what_a_batch_costs(of_a_batch: float, base: float) -> None:
    readings = [(rate, base + of_a_batch * rate) for rate in (0.5, 1.0, 2.0, 4.0)] * 4
    assert taught(readings).of_a_batch == pytest.approx(of_a_batch, rel=0.15, abs=1.0)


def test_one_rate_alone_is_mostly_the_batches() -> None:
    assert 3 * taught([(3.0, 45.0)] * 10).of_a_batch == pytest.approx(45.0 - BASE_OVERHEAD, rel=0.1)


@given(st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 100.0)), max_size=30))
def test_it_is_never_below_nothing(readings: list[tuple[float, float]]) -> None:
    assert taught(readings).of_a_batch >= 0.0
