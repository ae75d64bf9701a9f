"""What the fit of a task's costs promises: readings in, costs out, whatever the readings."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.policies.stream_economics.cost_fit import CHANGE, CostFit

Point = tuple[float, float]  #: thousands of rows/s, read and kept

FIXED = st.floats(0.0, 8.0)
READ = st.floats(0.0, 8.0)
WORK = st.floats(2.0, 40.0)
#: A rate of 1 to 2 thousand rows/s, and accuracies of which two are apart.
RATE = st.floats(1.0, 2.0)


def cost(costs: tuple[float, float, float], point: Point) -> float:
    return costs[0] + costs[1] * point[0] + costs[2] * point[1]


def taught(costs: tuple[float, float, float], points: Sequence[Point], noise: float = 0.0, seed: int = 0) -> CostFit:
    """The fit after a reading at each point."""
    random = Random(seed)
    fit: CostFit | None = None
    for point in points:
        cpu = cost(costs, point) * max(1.0 + random.gauss(0.0, noise), 0.0)
        fit = CostFit.first(*point, cpu) if fit is None else fit.after(*point, cpu)
    assert fit is not None
    return fit


def alternating(rate: float, accuracies: Sequence[float], times: int) -> list[Point]:
    return [(rate, rate * accuracy) for _ in range(times) for accuracy in accuracies]


@given(FIXED, READ, WORK, RATE, st.floats(0.0, 1.0))
def test_two_accuracies_tell_what_any_other_costs(
    fixed: float, read: float, work: float, rate: float, accuracy: float
) -> None:
    costs = (fixed, read, work)
    fit = taught(costs, alternating(rate, (0.3, 0.6), 10))
    asked = (rate, rate * accuracy)
    assert fit.expected(*asked) == pytest.approx(cost(costs, asked), rel=0.05, abs=0.5)


@given(FIXED, READ, WORK, RATE, st.integers(0, 1000))
def test_noise_of_5_percent_does_not_keep_full_accuracy_from_being_foretold(
    fixed: float, read: float, work: float, rate: float, seed: int
) -> None:
    costs = (fixed, read, work)
    fit = taught(costs, alternating(rate, (0.3, 0.45, 0.6), 12), noise=0.05, seed=seed)
    assert fit.expected(rate, rate) == pytest.approx(cost(costs, (rate, rate)), rel=0.2, abs=1.0)


@given(FIXED, WORK, RATE)
def test_what_is_not_repeated_is_not_forgotten(fixed: float, work: float, rate: float) -> None:
    costs = (fixed, 0.0, work)
    fit = taught(costs, [*alternating(rate, (1.0, 0.7), 5), *[(rate, 0.4 * rate)] * 500])
    assert fit.expected(rate, rate) == pytest.approx(cost(costs, (rate, rate)), rel=0.05, abs=0.5)


@given(FIXED, READ, WORK, RATE, st.floats(0.0, 5.0))
def test_one_bad_reading_moves_little(fixed: float, read: float, work: float, rate: float, wrong: float) -> None:
    costs = (fixed, read, work)
    before = taught(costs, alternating(rate, (0.4, 0.8), 10))
    here = (rate, 0.8 * rate)
    after = before.after(*here, wrong * cost(costs, here))
    assert after.expected(*here) == pytest.approx(before.expected(*here), rel=0.1, abs=0.5)


@given(FIXED, READ, WORK, RATE, st.sampled_from([0.4, 0.6, 1.7, 2.5]))
def test_a_change_is_believed_within_a_few_readings(
    fixed: float, read: float, work: float, rate: float, factor: float
) -> None:
    costs = (fixed + 1.0, read, work)
    dearer = (costs[0] * factor, costs[1] * factor, costs[2] * factor)
    fit = taught(costs, alternating(rate, (0.4, 0.8), 10))
    here = (rate, 0.8 * rate)
    for _ in range(CHANGE + 5):
        fit = fit.after(*here, cost(dearer, here))
    assert fit.expected(*here) == pytest.approx(cost(dearer, here), rel=0.2, abs=0.5)


def test_a_first_reading_is_taken_nearly_as_the_paper_takes_it() -> None:
    fit = CostFit.first(1.0, 0.5, 30.0)
    assert fit.expected(1.0, 0.5) == pytest.approx(30.0)
    assert 48.0 < fit.expected(1.0, 1.0) <= 60.0  # the paper: 60


@given(
    st.lists(
        st.tuples(st.floats(1e-3, 1e3), st.floats(0.0, 1.0), st.floats(0.0, 800.0)).map(
            lambda drawn: (drawn[0], drawn[0] * drawn[1], drawn[2])
        ),
        min_size=1,
        max_size=60,
    )
)
def test_no_readings_make_costs_negative_or_infinite(readings: list[tuple[float, float, float]]) -> None:
    fit = CostFit.first(*readings[0])
    for reading in readings[1:]:
        fit = fit.after(*reading)
        assert all(isfinite(each) and each >= 0.0 for each in fit.costs)
