"""Distributions of ages against exact percentiles of all rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.plans.timing import LEVELS, condensed, quantile, slices

ages = st.floats(0, 1e4, allow_nan=False)
weighted = st.lists(st.tuples(ages, st.floats(1e-3, 1e4)), min_size=1, max_size=60)
shares = st.floats(0, 1)


def test_levels_are_closest_where_latency_targets_are() -> None:
    assert LEVELS[0] == 0.0
    assert LEVELS[-1] == 1.0
    assert list(LEVELS) == sorted(LEVELS)
    assert {0.5, 0.95, 0.99} <= set(LEVELS)


@given(st.lists(ages, min_size=1, max_size=400), st.floats(0.5, 0.99))
def test_slices_of_a_batch_bound_its_exact_percentiles(rows: list[float], share: float) -> None:
    """Between the exact values at the levels around it, half a slice apart at most."""
    quantiles = np.quantile(rows, LEVELS, method="inverted_cdf").tolist()
    points = slices(quantiles, len(rows))
    assert sum(each for _, each in points) == pytest.approx(len(rows))
    found = quantile(points, share)
    assert found is not None
    below = max((level for level in LEVELS if level <= share - 0.1), default=0.0)
    above = min((level for level in LEVELS if level >= share + 0.1), default=1.0)
    low, high = np.quantile(rows, [below, above], method="inverted_cdf")
    assert low - 1e-9 <= found <= high + 1e-9


@pytest.mark.parametrize("share", [0.5, 0.95])
@pytest.mark.parametrize("shape", ["even", "exponential", "pause"])
def test_percentiles_of_usual_distributions(shape: str, share: float) -> None:
    """A pause: a real-time query whose rows wait while a batch is committed."""
    dice = np.random.default_rng(5)
    rows = {
        "even": dice.uniform(0.2, 1.4, 5000),
        "exponential": dice.exponential(0.5, 5000),
        "pause": np.where(dice.uniform(size=5000) < 0.06, dice.uniform(0, 0.4, 5000), dice.normal(0.03, 0.004, 5000)),
    }[shape]
    quantiles = np.quantile(rows, LEVELS, method="inverted_cdf").tolist()
    found = quantile(slices(quantiles, len(rows)), share)
    true = float(np.quantile(rows, share))
    assert found == pytest.approx(true, rel=0.1, abs=0.02)


@given(weighted, weighted, shares)
def test_a_quantile_of_a_mixture_is_between_those_of_its_parts(
    one: list[tuple[float, float]], other: list[tuple[float, float]], share: float
) -> None:
    parts = [quantile(one, share), quantile(other, share)]
    mixed = quantile([*one, *other], share)
    assert mixed is not None
    assert min(age for age, _ in [*one, *other]) <= mixed <= max(age for age, _ in [*one, *other])
    if one == other:
        assert parts[0] == parts[1]


@given(weighted, shares, shares)
def test_quantiles_rise_with_their_share(points: list[tuple[float, float]], one: float, other: float) -> None:
    low, high = quantile(points, min(one, other)), quantile(points, max(one, other))
    assert low is not None
    assert high is not None
    assert low <= high


@given(weighted, st.integers(1, 20))
def test_condensed_points_keep_rows_and_mean(points: list[tuple[float, float]], count: int) -> None:
    found = condensed(points, count)
    assert len(found) <= max(count, 1)
    assert sum(rows for _, rows in found) == pytest.approx(sum(rows for _, rows in points))
    total = sum(age * rows for age, rows in points)
    assert sum(age * rows for age, rows in found) == pytest.approx(total, abs=1e-6)
    assert [age for age, _ in found] == pytest.approx(sorted(age for age, _ in found))


def test_none_without_rows() -> None:
    assert quantile([], 0.5) is None
    assert quantile([(1.0, 0.0)], 0.5) is None
    assert condensed([], 3) == []
