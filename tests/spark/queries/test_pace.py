"""How long a query's micro-batches wait, so that they begin as far apart as they are to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.plans.dial import MOST_S
from qod_magics.spark.queries.progress import Batch
from qod_magics.spark.runtime import BATCHES, LONG_S, REST, gap_s, rest_s


def batch(number: int, works_s: float, waits_s: float = 0.0) -> Batch:
    begin = 100.0 * number
    return Batch("run", number, begin, begin + waits_s + works_s, waits_s, (), 0, {})


def test_a_short_batch_waits_for_the_rest_of_its_time_and_a_long_one_for_none() -> None:
    assert gap_s(2.0, [batch(1, 0.5)]) == pytest.approx(1.5)
    assert gap_s(2.0, [batch(1, 3.0)]) == 0.0


def test_what_it_waits_already_does_not_count_as_work() -> None:
    assert gap_s(2.0, [batch(n, 0.5, waits_s=1.5) for n in range(9)]) == pytest.approx(1.5)


def test_a_run_without_a_batch_and_a_plan_without_a_pace_wait_for_nothing() -> None:
    assert gap_s(2.0, []) == 0.0
    assert gap_s(0.0, [batch(1, 0.5)]) == 0.0


def test_the_last_batches_count() -> None:
    batches = [batch(n, 9.0) for n in range(9)] + [batch(9 + n, 0.5) for n in range(BATCHES)]
    assert gap_s(2.0, batches) == pytest.approx(1.5)


@given(st.floats(0, 100), st.lists(st.tuples(st.floats(0, 50), st.floats(0, 20)), max_size=8))
def test_no_wait_is_longer_than_the_longest(pace_s: float, batches: list[tuple[float, float]]) -> None:
    assert 0.0 <= gap_s(pace_s, [batch(n, *times) for n, times in enumerate(batches)]) <= MOST_S


def back_to_back(works_s: float, idle_s: float = 0.0, number: int = 9) -> list[Batch]:
    each = works_s + idle_s
    return [Batch("run", n, n * each, n * each + works_s, 0.0, (), 0, {}) for n in range(number)]


def test_back_to_back_batches_rest_for_a_part_of_their_time() -> None:
    assert rest_s(back_to_back(0.4)) == pytest.approx(0.4 * REST)
    assert 0.0 < rest_s(back_to_back(2.5)) < 2.5 * REST
    assert rest_s(back_to_back(LONG_S)) == rest_s(back_to_back(30.0)) == 0.0


def test_the_rest_is_no_work_and_ends_no_rest() -> None:
    rested = [Batch("run", n, n * 0.45, n * 0.45 + 0.45, 0.05, (), 0, {}) for n in range(9)]
    assert rest_s(rested) == pytest.approx(0.4 * REST)


def test_batches_that_wait_for_input_and_new_runs_do_not_rest() -> None:
    assert rest_s(back_to_back(0.4, idle_s=0.2)) == 0.0
    assert rest_s(back_to_back(0.4, number=BATCHES - 1)) == 0.0
