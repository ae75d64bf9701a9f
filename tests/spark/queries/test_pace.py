"""How long a query's micro-batches wait, so that they begin as far apart as they are to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.plans.dial import MOST_S
from qod_magics.spark.queries.meter import BATCHES_TIMED, gap_s
from qod_magics.spark.queries.progress import Batch


def batch(number: int, works_s: float, waits_s: float = 0.0) -> Batch:
    begin = 2.0 * number
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
    batches = [batch(n, 9.0) for n in range(9)] + [batch(9 + n, 0.5) for n in range(BATCHES_TIMED)]
    assert gap_s(2.0, batches) == pytest.approx(1.5)


@given(st.floats(0, 100), st.lists(st.tuples(st.floats(0, 50), st.floats(0, 20)), max_size=8))
def test_no_wait_is_longer_than_the_longest(pace_s: float, batches: list[tuple[float, float]]) -> None:
    assert 0.0 <= gap_s(pace_s, [batch(n, *times) for n, times in enumerate(batches)]) <= MOST_S


def test_batches_that_a_trigger_or_rare_rows_keep_apart_are_not_delayed() -> None:
    apart = [Batch("run", n, 10.0 * n, 10.0 * n + 0.5, 0.0, (), 0, {}) for n in range(9)]
    assert gap_s(2.0, apart) == 0.0
    assert gap_s(2.0, [batch(n, 0.5) for n in range(9)], every_s=3.0) == 0.0
    assert gap_s(2.0, [batch(n, 0.5) for n in range(9)], every_s=1.0) == pytest.approx(1.5)
