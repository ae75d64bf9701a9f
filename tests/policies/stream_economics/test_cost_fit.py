"""What the fit of a task's costs promises: readings in, costs out, whatever the readings."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.policies.stream_economics.cost_fit import CHANGE, MOST_FIXED, MOST_WORK, READ_SHARE, CostFit

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


#: What a query shows at some rows a second: thousands of rows/s, accuracy, and CPU that is nearly all its own.
QUIET = st.lists(st.tuples(st.floats(1e-3, 4e-3), st.floats(0.3, 1.0), st.floats(1.0, 8.0)), min_size=1, max_size=12)


@given(QUIET, RATE)
def test_a_few_rows_do_not_make_a_row_absurdly_dear(quiet: list[tuple[float, float, float]], rate: float) -> None:
    """Whatever the CPU was beside them, a thousand rows and more get a plan that lets some of them pass."""
    fit = seen_quiet(quiet)
    assert fit.expected(rate, rate) <= MOST_FIXED + 2 * MOST_WORK * (1 + READ_SHARE) * rate


@given(QUIET, FIXED, READ, WORK, RATE)
def test_what_a_row_costs_is_known_soon_after_many_came(
    quiet: list[tuple[float, float, float]], fixed: float, read: float, work: float, rate: float
) -> None:
    """Also where all before said otherwise: a dozen readings of 8 % of a core, of a task whose fixed cost is 0 once it
    has rows. Costs are 0 or more, so an error of the fixed cost goes to the others until readings at accuracy 1 mend
    it: at most 3.6 % of a core, as a search by hill climbing found."""
    fit = seen_quiet(quiet)
    costs = (fixed, read, work)
    for point in alternating(rate, (0.4, 0.8), 3):
        fit = fit.after(*point, cost(costs, point))
    assert fit.expected(rate, rate) == pytest.approx(cost(costs, (rate, rate)), rel=0.25, abs=4.0)


@given(QUIET, st.floats(1.0, 8.0), READ, WORK, RATE)
def test_readings_without_rows_that_agree_with_those_to_come_do_not_mislead(
    quiet: list[tuple[float, float, float]], fixed: float, read: float, work: float, rate: float
) -> None:
    fit = seen_quiet([(rows, accuracy, fixed * (0.9 + 0.2 * cpu / 8.0)) for rows, accuracy, cpu in quiet])
    costs = (fixed, read, work)
    for point in alternating(rate, (0.4, 0.8), 3):
        fit = fit.after(*point, cost(costs, point))
    assert fit.expected(rate, rate) == pytest.approx(cost(costs, (rate, rate)), rel=0.1)


def seen_quiet(readings: Sequence[tuple[float, float, float]]) -> CostFit:
    """The fit after these readings of read rate, accuracy and CPU."""
    fit: CostFit | None = None
    for read, accuracy, cpu in readings:
        fit = (fit.after if fit is not None else CostFit.first)(read, accuracy * read, cpu)
    assert fit is not None
    return fit


@given(st.floats(0.02, 0.1), st.floats(200.0, 2000.0))
def test_rows_that_are_dear_are_seen_to_be_where_no_query_costs_so_much_without_one(rate: float, work: float) -> None:
    """A Python function of some milliseconds: not all of 40 % of a core is the query's own."""
    fit = CostFit.first(rate, rate, 2.0 + work * rate)
    assert fit.costs[0] <= MOST_FIXED
    assert fit.expected(2 * rate, 2 * rate) >= 2.0 + 2 * work * rate - 2 * MOST_FIXED


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


def test_a_cold_reading_while_shedding_does_not_make_reading_dear() -> None:
    """As of a windowed query that was started again: its rows become cheaper, and nothing is shed any more. Then no
    reading tells reading from work, and what the first one had made of it would stay."""
    fit = CostFit.first(80.0, 80.0, 65.0, 0.35)
    for _ in range(8):
        fit = fit.after(95.0, 95.0, 73.0, 0.38)
    fit = fit.after(10.9, 7.5, 25.0, 1.67)
    for rows, cpu, batches in (
        (17.5, 26.0, 2.5),
        (16.9, 24.0, 2.8),
        (17.1, 22.0, 2.9),
        (22.4, 23.0, 3.2),
        (74.4, 66.0, 1.1),
    ):
        fit = fit.after(rows, rows, cpu, batches)
    _, read, work = fit.costs
    assert read < 0.3 * (read + work)
