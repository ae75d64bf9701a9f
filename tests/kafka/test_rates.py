from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from qod_magics.kafka.scenario import PiecewiseLinear

RATES = st.floats(0, 1e5, allow_subnormal=False)
SECONDS = st.floats(0, 1e4, allow_subnormal=False)


@st.composite
def piecewise(draw: st.DrawFn) -> PiecewiseLinear:
    """One to eight points; now and then a jump."""
    seconds = sorted(draw(st.lists(st.integers(0, 200).map(lambda n: n / 4), min_size=1, max_size=8)))
    kept = [second for index, second in enumerate(seconds) if index < 2 or seconds[index - 2] != second]
    return PiecewiseLinear.through((second, draw(RATES)) for second in kept)


def by_midpoints(rate: PiecewiseLinear, t0: float, t1: float) -> float:
    """The integral by the midpoint rule between all points: exact where the rate is linear."""
    cuts = sorted({t0, t1, *(second for second, _ in rate.points if t0 < second < t1)})
    return math.fsum((b - a) * rate.rate((a + b) / 2) for a, b in pairwise(cuts))


def test_is_linear_between_points_and_constant_outside() -> None:
    rate = PiecewiseLinear.through([(10, 100), (20, 300)])
    assert [rate.rate(t) for t in (0, 10, 12.5, 20, 99)] == [100, 100, 150, 300, 300]
    assert rate.rows(10, 20) == 2000
    assert rate.rows(0, 30) == 1000 + 2000 + 3000


def test_two_points_at_one_second_are_a_jump() -> None:
    rate = PiecewiseLinear.through([(0, 500), (45, 500), (45, 2000)])
    assert (rate.rate(44.999), rate.rate(45)) == (500, 2000)
    assert rate.rows(40, 50) == 5 * 500 + 5 * 2000


def test_whole_rows_are_due_when_their_share_of_a_second_is_over() -> None:
    rate = PiecewiseLinear.constant(10)
    assert [rate.due(t) for t in (-1, 0, 0.05, 0.1, 0.3, 0.7, 1)] == [0, 0, 0, 1, 3, 7, 10]


@pytest.mark.parametrize(
    ("points", "says"),
    [
        ([], "one point"),
        ([(0, 1), (5, 2), (4, 3)], "second 4.*second 5"),
        ([(0, -1)], "[0, -1]"),
        ([(-1, 1)], "[-1, 1]"),
        ([(0, math.inf)], "finite"),
        ([(0, math.nan)], "finite"),
        ([(3, 1), (3, 2), (3, 3)], "second 3"),
    ],
)
def test_refuses_what_is_no_rate(points: list[tuple[float, float]], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("[", r"\[").replace("]", r"\]")):
        PiecewiseLinear.through(points)


@given(piecewise(), SECONDS, SECONDS)
def test_the_integral_is_exact(rate: PiecewiseLinear, a: float, b: float) -> None:
    t0, t1 = min(a, b), max(a, b)
    assert rate.rows(t0, t1) == pytest.approx(by_midpoints(rate, t0, t1), rel=1e-9, abs=1e-4)


@given(piecewise(), SECONDS, SECONDS, SECONDS)
def test_the_integral_adds_up(rate: PiecewiseLinear, a: float, b: float, c: float) -> None:
    assert rate.rows(a, b) + rate.rows(b, c) == pytest.approx(rate.rows(a, c), rel=1e-9, abs=1e-4)
    assert rate.rows(a, b) == -rate.rows(b, a)


@given(piecewise(), SECONDS, SECONDS)
def test_the_rate_stays_between_its_points_and_rows_below_the_highest(
    rate: PiecewiseLinear, a: float, b: float
) -> None:
    t0, t1 = min(a, b), max(a, b)
    low, high = min(r for _, r in rate.points), max(r for _, r in rate.points)
    assert low - 1e-6 <= rate.rate(t0) <= high + 1e-6
    assert rate.rows(t0, t1) <= high * (t1 - t0) * (1 + 1e-9) + 1e-3


@given(piecewise(), st.lists(st.floats(0, 100), min_size=2, max_size=40))
def test_rows_due_do_not_depend_on_when_one_looks(rate: PiecewiseLinear, looks: list[float]) -> None:
    looks.sort()
    due = [rate.due(t) for t in looks]
    assert due == sorted(due)
    sent = 0
    for t in looks:  # what a sender does: at each tick the rows that are due and not yet sent
        sent += rate.due(t) - sent
    assert sent == rate.due(looks[-1])
    assert sent == pytest.approx(rate.rows(0, looks[-1]), abs=1.001)


@given(st.integers(1, 100_000), st.integers(1, 3600))
def test_a_constant_rate_gives_its_product_with_time_to_the_row(rate: int, seconds: int) -> None:
    assert PiecewiseLinear.constant(rate).due(seconds) == rate * seconds


@given(piecewise())
def test_a_rate_is_a_value(rate: PiecewiseLinear) -> None:
    again = PiecewiseLinear.through(rate.points)
    assert again == rate
    assert hash(again) == hash(rate)
    assume(rate.points[0][1] > 1)
    assert PiecewiseLinear(((rate.points[0][0], 0.5), *rate.points[1:])) != rate
