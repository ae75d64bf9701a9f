"""Robust costs and curves out of means: the arithmetic of a fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.simulator.rates.fitting.cost_fit import fit_line
from qod_magics.simulator.rates.fitting.readings import load_curve, rate_curve, unaveraged


def test_a_line_is_found_in_spite_of_outliers() -> None:
    x = np.arange(40.0)
    y = 3.0 + 2.0 * x
    y[[5, 20, 33]] = 500.0
    line = fit_line((np.ones(40), x), y)
    assert line.coefficients == pytest.approx((3.0, 2.0), rel=0.02)


def test_no_coefficient_is_negative() -> None:
    x = np.arange(10.0)
    assert fit_line((np.ones(10), x), 5.0 - 0.1 * x).coefficients[1] == 0.0


def test_a_column_that_says_nothing_new_is_left_out() -> None:
    x = np.arange(1.0, 20.0)
    line = fit_line((x, 2.0 * x), 6.0 * x)
    assert line.coefficients == pytest.approx((6.0, 0.0))
    assert line.errors[1] == float("inf")


def test_nothing_is_fitted_without_data() -> None:
    assert fit_line((np.array([]),), np.array([])).coefficients == (0.0,)


def test_a_jump_lies_where_the_rows_say() -> None:
    curve = rate_curve([5, 10, 15, 20, 25], [100, 100, 160, 200, 200])
    assert curve.points == ((0.0, 100), (12.0, 100), (12.0, 200), (25, 200))


def test_a_ramp_stays_one() -> None:
    ends = [5.0 * n for n in range(1, 13)]
    means = [100.0] * 3 + [150.0, 250.0, 350.0, 450.0, 550.0, 650.0] + [700.0] * 3
    curve = rate_curve(ends, means)
    assert curve.rate(32.5) == pytest.approx(450, rel=0.02)


def test_a_rate_that_was_never_measured_is_none() -> None:
    assert rate_curve([], []).points == ((0.0, 0.0),)
    assert rate_curve([5.0], [80.0]).rate(2.5) == 80.0


@given(st.lists(st.floats(0, 1000), min_size=2, max_size=30))
def test_a_rate_is_a_curve_for_any_means(means: list[float]) -> None:
    ends = [5.0 * (n + 1) for n in range(len(means))]
    assert rate_curve(ends, means).rows(0, ends[-1]) >= 0


def test_a_step_is_seen_where_it_was_under_a_moving_mean() -> None:
    raw = [10.0] * 10 + [40.0] * 10
    means = [sum(raw[max(n - 2, 0) : n + 1]) / len(raw[max(n - 2, 0) : n + 1]) for n in range(20)]
    assert unaveraged(means, 3) == pytest.approx(raw, abs=8.0)
    assert unaveraged(raw, 1) == raw


def test_a_flat_load_needs_two_points() -> None:
    curve = load_curve([(float(t), 0.3 + 0.001 * (t % 2)) for t in range(30)], 0.01)
    assert len(curve.points) == 2
    assert load_curve([], 0.01).points == ((0.0, 0.0),)
