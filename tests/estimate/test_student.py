"""Quantiles of Student's distribution, held against tables."""

from __future__ import annotations

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.estimate import avg, count, quantile, ratio, sum
from qod_magics.estimate.formulas import normal_quantile, student_quantile
from tests.raising import breaks


@pytest.mark.parametrize(
    ("level", "degrees", "quantile"),
    [
        (0.95, 1, 12.7062),
        (0.95, 2, 4.3027),
        (0.95, 5, 2.5706),
        (0.95, 10, 2.2281),
        (0.95, 30, 2.0423),
        (0.99, 3, 5.8409),
        (0.8, 4, 1.5332),
        (0.5, 1, 1.0),
    ],
)
def test_quantiles_are_those_of_the_tables(level: float, degrees: int, quantile: float) -> None:
    assert student_quantile(level, degrees) == pytest.approx(quantile, abs=1e-4)


def test_the_normal_one_is_the_limit_of_many_degrees() -> None:
    assert normal_quantile(0.95) == pytest.approx(1.959964, abs=1e-6)
    assert student_quantile(0.95, 100_000) == pytest.approx(normal_quantile(0.95), abs=1e-4)


@pytest.mark.parametrize("level", [0.0, 1.0, 95, -0.5])
def test_a_level_that_is_no_probability_is_refused(level: float) -> None:
    for estimate in (avg, count, sum):
        with pytest.raises(UsageProblem, check=breaks("between 0 and 1")):
            estimate("fare", level=level)
    with pytest.raises(UsageProblem, check=breaks("between 0 and 1")):
        ratio("tip", "fare", level=level)
    with pytest.raises(UsageProblem, check=breaks("between 0 and 1")):
        quantile("fare", 0.9, level=level)


@pytest.mark.parametrize("q", [0.0, 1.0, 90, -0.5, float("nan")])
def test_a_quantile_is_of_a_fraction(q: float) -> None:
    with pytest.raises(UsageProblem, check=breaks("between 0 and 1")):
        quantile("fare", q)
