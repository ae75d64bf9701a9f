"""Rates and CPU: rows are spread over the time that they came in, and none is made up or lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.meter import RUNS_KEPT, Meter
from qod_magics.spark.queries.progress import Batch, FeedCount
from qod_magics.spark.servers.cpu import TaskTime
from tests.spark.batches import batch
from tests.spark.fakes import instance, manager

PERIOD_S = 5.0


def taken(cpu_s: float) -> TaskTime:
    """Tasks that had a core for half of their time."""
    return TaskTime(cpu_s, 2.0 * cpu_s)


def test_a_run_that_has_reported_nothing_has_no_reading() -> None:
    meter = Meter()
    assert meter.reading(PERIOD_S, "run") is None
    meter.add(batch(0, 0, 2, read=10))
    assert meter.reading(PERIOD_S, "another") is None
    assert meter.reading(PERIOD_S, None) is None


def test_an_idle_wait_counts() -> None:
    meter = Meter()
    meter.add(batch(0, 100, 101, read=100))
    meter.add(batch(1, 104, 105, read=100))  # a second's work for the rows of four
    reading = meter.reading(4.0, "run")
    assert reading is not None
    assert reading.in_rate == pytest.approx(25.0)


def test_a_batch_longer_than_the_period_is_its_own_mean() -> None:
    meter = Meter()
    meter.add(batch(0, 0, 1, read=7))
    meter.add(batch(1, 1, 21, read=200, kept=100, out=50))
    reading = meter.reading(PERIOD_S, "run")
    assert reading is not None
    assert (reading.in_rate, reading.read_rate, reading.out_rate) == pytest.approx((5.0, 10.0, 2.5))
    assert reading.at == 21


@given(
    st.lists(
        st.tuples(st.floats(0.001, 20), st.floats(0, 10), st.integers(0, 10_000), st.floats(0, 1)),
        min_size=1,
        max_size=20,
    ),
    st.floats(0.5, 60),
)
def test_rates_lie_between_those_of_the_batches(spans: list[tuple[float, float, int, float]], period_s: float) -> None:
    """Each rate is a mean of the batches' own, weighted by time."""
    meter, at, rates = Meter(), 1_000_000.0, []
    before = None
    for number, (took, pause, read, keep) in enumerate(spans):
        start = at + pause
        at = start + took
        kept = int(keep * read)
        meter.add(batch(number, start, at, read=read, kept=kept))
        rates.append(kept / (at - (start if before is None else before)))
        before = at
    reading = meter.reading(period_s, "run")
    assert reading is not None
    assert min(rates) * 0.99 - 1e-6 <= reading.in_rate <= max(rates) * 1.01 + 1e-6
    assert reading.in_rate <= reading.read_rate + 1e-6
    assert reading.at == at


@given(st.floats(1, 500), st.integers(1, 40), st.floats(0.5, 8), st.floats(0.1, 0.9))
def test_a_steady_stream_has_its_rate(rate: float, count: int, took: float, work: float) -> None:
    """Whatever share of each interval the batch works: the rows came over all of it."""
    meter = Meter()
    for number in range(count + 1):
        end = 50.0 + number * took
        begin = end - took if number == 0 else end - work * took
        rows = round(rate * (number + 1) * took) - round(rate * number * took)
        meter.add(batch(number, begin, end, read=rows))
    reading = meter.reading(took * count, "run")
    assert reading is not None
    assert math.isclose(reading.in_rate, rate, rel_tol=0.001, abs_tol=2 / (took * count))


def test_a_batch_without_a_duration_divides_nothing_by_zero() -> None:
    meter = Meter()
    meter.add(batch(0, 5.0, 5.0, read=3))
    reading = meter.reading(PERIOD_S, "run")
    assert reading is not None
    assert math.isfinite(reading.in_rate)


def test_runs_are_read_apart_and_a_gap_between_them_is_not_idleness() -> None:
    meter = Meter()
    meter.add(batch(7, 0, 2, read=200, run="old"))
    meter.add(batch(7, 60, 62, read=100, run="new", planning_s=0.5))
    old, new = meter.reading(PERIOD_S, "old"), meter.reading(PERIOD_S, "new")
    assert old is not None
    assert new is not None
    assert (old.in_rate, new.in_rate) == pytest.approx((100.0, 50.0))
    assert (old.at, new.at) == (2, 62)
    assert new.first_batch_at == 60.5


def test_a_batch_is_taken_once_in_a_run() -> None:
    meter = Meter()
    assert meter.add(batch(3, 0, 2, read=10))
    assert not meter.add(batch(3, 0, 2, read=10))
    assert meter.add(batch(3, 5, 7, read=10, run="next"))
    assert len(meter.spans) == 2


@given(
    st.lists(
        st.tuples(st.integers(0, RUNS_KEPT - 1), st.integers(0, 40), st.integers(1, 8)),
        min_size=1,
        max_size=3 * RUNS_KEPT,
    )
)
def test_whatever_reports_come_again_no_batch_is_taken_twice(looks: list[tuple[int, int, int]]) -> None:
    """Each look takes in what Spark still keeps of the reports of a run, the latest or one that a call hung on."""
    meter, taken = Meter(), []
    for back, ended, kept in looks:
        run = str(max(len(looks) // 2 - back, 0))
        for number in range(max(ended - kept, 0), ended + 1):
            if meter.add(batch(number, float(number), number + 1.0, run=run)):
                taken.append((run, number))
    assert len(set(taken)) == len(taken)
    runs = {run for run, _ in taken}
    assert {run: max(n for r, n in taken if r == run) for run in runs} == meter.last


def test_cpu_is_that_of_the_batches_whose_cost_is_known() -> None:
    meter = Meter()
    for number in range(3):
        meter.add(batch(number, 2.0 * number, 2.0 * number + 2, read=10))
    reading = meter.reading(60.0, "run")
    assert reading is not None
    assert reading.cpu is None
    meter.charge("run", 0, taken(1.0))
    meter.charge("run", 1, taken(0.5))
    reading = meter.reading(60.0, "run")
    assert reading is not None
    assert reading.cpu == pytest.approx(100 * 1.5 / 4)


def test_eviction_is_a_share_of_the_cpu_as_it_is_of_the_run_time() -> None:
    meter = Meter()
    meter.add(batch(0, 0.0, 2.0, read=10, eviction_s=0.5))
    assert meter.reading(60.0, "run").eviction == 0.0  # type: ignore[union-attr]
    meter.charge("run", 0, TaskTime(1.0, 2.0))
    assert meter.reading(60.0, "run").eviction == pytest.approx(100 * 0.25 / 2)  # type: ignore[union-attr]
    meter.add(batch(1, 2.0, 4.0, read=10, eviction_s=9.0))  # reported by more tasks than are kept
    meter.charge("run", 1, TaskTime(1.0, 2.0))
    assert meter.reading(2.0, "run").eviction == pytest.approx(100 * 1.0 / 2)  # type: ignore[union-attr]


def test_stages_that_spark_has_discarded_take_no_cpu_from_their_batch() -> None:
    meter = Meter()
    meter.charge("run", 0, taken(2.0))
    meter.charge("run", 0, taken(0.5))  # its first stages are no longer kept
    meter.charge("run", 1, taken(0.5))
    meter.charge("run", 1, taken(2.0))  # its last stages had not ended
    assert meter.times == {("run", 0): taken(2.0), ("run", 1): taken(2.0)}


def test_the_last_known_cpu_is_held_until_the_batches_of_a_new_run_are_charged() -> None:
    meter = Meter()
    meter.add(batch(0, 0, 5, read=10))
    meter.charge("run", 0, taken(1.5))
    meter.add(batch(0, 20, 25, read=10, run="next"))
    held = meter.reading(PERIOD_S, "next")
    assert held is not None
    assert (held.cpu, held.cpu_held) == (pytest.approx(30.0), True)
    meter.charge("next", 0, taken(0.5))
    known = meter.reading(PERIOD_S, "next")
    assert known is not None
    assert (known.cpu, known.cpu_held) == (pytest.approx(10.0), False)


def test_a_cpu_that_was_never_known_is_not_0() -> None:
    meter = Meter()
    meter.add(batch(0, 0, 5, read=10))
    reading = meter.reading(PERIOD_S, "run")
    assert reading is not None
    assert (reading.cpu, reading.cpu_held) == (None, False)


def test_rows_are_told_apart_by_topic_and_stream() -> None:
    feeds = (FeedCount("a", {0: 0}, {0: 10}, 10, 4), FeedCount("b", {0: 0}, {0: 6}, 6, 6))
    meter = Meter()
    meter.add(batch(0, 0, 2, feeds=feeds, out=9, sent={"0": 9, "1": 3}))
    meter.add(batch(1, 2, 4, feeds=feeds, out=9, sent={"0": 8, "1": 1}))
    reading = meter.reading(PERIOD_S, "run")
    assert reading is not None
    assert reading.read == {"a": 20, "b": 12}
    assert reading.kept == {"a": 8, "b": 12}
    assert (reading.out, reading.sent) == (18, {"0": 17, "1": 4})


def test_rows_of_a_batch_count_while_half_of_it_is_in_the_window() -> None:
    """Else a batch that dropped rows would show for one batch longer."""
    meter = Meter()
    meter.add(batch(0, 0, 4, read=100, kept=10, out=10, sent={"0": 5}))
    for number, end in enumerate([6.0, 8.0], 1):
        meter.add(batch(number, end - 2, end, read=100, out=100, sent={"0": 100}))
        reading = meter.reading(PERIOD_S, "run")
        assert reading is not None
        assert sum(reading.read.values()) == 200
        assert sum(reading.kept.values()) == (110 if number == 1 else 200)
        assert (reading.out, reading.sent["0"]) == ((110, 105) if number == 1 else (200, 200))
    assert reading.in_rate == pytest.approx((100 + 100 + 10 / 4) / PERIOD_S)  # rates are by time


def test_memory_stays_bounded() -> None:
    meter = Meter()
    for number in range(3000):
        meter.add(batch(number, number, number + 1, read=1))
        meter.charge("run", number, taken(0.1))
    assert len(meter.spans) <= 256
    assert len(meter.times) <= 1024
    assert meter.last == {"run": 2999}
    reading = meter.reading(PERIOD_S, "run")
    assert reading is not None
    assert reading.cpu == pytest.approx(10.0)


def test_of_many_runs_the_last_ones_are_known() -> None:
    meter = Meter()
    for run in range(1000):
        for number in range(3):
            assert meter.add(batch(number, 9.0 * run + number, 9.0 * run + number + 1, read=1, run=str(run)))
        late = str(max(run - RUNS_KEPT + 1, 0))
        assert not any(meter.add(batch(number, 0, 1, run=late)) for number in range(3))
        assert len(meter.last) <= RUNS_KEPT


class Arriving:
    """A batch: whenever it is looked at, another thread adds one to the meter."""

    def __init__(self, meter: Meter, of: Batch) -> None:
        self._meter, self._of = meter, of

    def __getattr__(self, name: str) -> Any:
        self._meter.spans.append((self._of.start, self._of))
        return getattr(self._of, name)


@pytest.mark.parametrize(
    "read",
    [
        lambda one: one.reading(5.0),
        lambda one: one.meter._last_cpu(),
        lambda one: one.unpolled(),
        lambda one: one.busy_s(0.0),
        lambda one: one.stalled_s(),
        lambda one: one.patience_s(1.0),
    ],
)
def test_batches_may_be_added_while_others_are_read(read: Callable[[Instance], object]) -> None:
    one = instance(manager())
    one.run_id = "another"  # than that of these: all are looked at
    for number in range(3):
        arriving: Any = Arriving(one.meter, batch(number, number, number + 1.0))
        one.meter.spans.append((float(number), arriving))
    read(one)
    assert len(one.meter.spans) > 3


def test_the_size_of_a_row_is_a_mean_over_the_rows_that_were_read() -> None:
    meter = Meter()
    for number, (rows, size) in enumerate([(10, 1000), (30, 6000), (0, 0)]):
        feeds = (FeedCount("a>b", {0: 0}, {0: rows}, rows, rows, size=size), FeedCount("t", {0: 0}, {0: 5}, 5, 5))
        meter.add(batch(number, number, number + 1.0, feeds=feeds))
    reading = meter.reading(PERIOD_S, "run")
    assert reading is not None
    assert reading.row_bytes == {"a>b": pytest.approx(175.0)}
    assert reading.without_rows(9.0, PERIOD_S).row_bytes == reading.row_bytes
