"""The bound on the records of a micro-batch: no batch takes longer than two periods, and it comes to rest."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.bound import AIM, FIRST_BOUND, FULL, LEAST_BOUND, LONG, MOST, Bound, Took
from qod_magics.spark.instance import Instance
from qod_magics.spark.pipeline import Job
from qod_magics.spark.progress import FeedCount
from tests.spark.batches import batch

PERIOD_S = 5.0
JOB = Job("T", "T.1", 0, (), lambda spark, inputs: None, (), (), None, None, None)  # type: ignore[arg-type, return-value]
COLD = Took(FIRST_BOUND, 4.0)


def instance(bound: int, mode: str = "micro-batch") -> Instance:
    return Instance(JOB, "/nowhere", mode=mode, run_id="run", bound=Bound(bound))


def feeds(*read: int | None) -> tuple[FeedCount, ...]:
    return tuple(FeedCount(f"t{i}", {0: 0}, {0: n or 0}, n, n) for i, n in enumerate(read))


def run(one: Instance, *batches: tuple[float, tuple[int | None, ...]], run_id: str = "run") -> None:
    at = 0.0
    for number, (took, read) in enumerate(batches):
        one.meter.add(batch(number, at, at + took, feeds=feeds(*read), run=run_id))
        at += took


def test_real_time_mode_has_none() -> None:
    one = instance(20_000, mode="real-time")
    run(one, (60.0, (20_000,)), (60.0, (20_000,)))
    assert one.next_bound(PERIOD_S) is None


def test_it_is_left_alone_while_nothing_is_known() -> None:
    one = instance(20_000)
    assert one.next_bound(PERIOD_S) is None
    run(one, (60.0, (20_000,)), (60.0, (20_000,)), run_id="the run before")
    assert one.next_bound(PERIOD_S) is None
    assert Bound().better([Took(0, 60.0)] * 9, PERIOD_S) is None


def test_long_batches_lower_it_to_what_one_should_take() -> None:
    assert Bound(20_000).better([COLD, Took(20_000, 20.0)], PERIOD_S) == 2_000
    assert Bound(20_000).better([COLD, Took(20_000, 21.0, planning_s=1.0)], PERIOD_S) == 1_000


def test_a_batch_that_is_not_full_tells_what_a_full_one_would_take() -> None:
    assert Bound(20_000).better([COLD, Took(10_000, 2.0)], PERIOD_S) == 10_000
    assert Bound(20_000).better([COLD, Took(10_000, 1.0)], PERIOD_S) is None


def test_the_first_batch_of_a_run_is_judged_by_two_periods() -> None:
    assert Bound(1_000).better([Took(1_000, 9.0)], PERIOD_S) is None
    assert Bound(1_000).better([Took(1_000, 30.0)], PERIOD_S) == 500


def test_one_long_batch_of_few_records_says_nothing() -> None:
    usual = Took(50, 0.5)
    assert Bound(1_000).better([COLD, usual, Took(50, 6.0)], PERIOD_S) is None
    assert Bound(1_000).better([COLD, *[Took(400, 5.0)] * 3], PERIOD_S) == 160


def test_full_and_short_batches_raise_it() -> None:
    short = Took(1_000, 0.5, planning_s=0.1)
    assert Bound(1_000).better([COLD, short], PERIOD_S) is None
    assert Bound(1_000).better([COLD, short, short], PERIOD_S) == 4_750
    assert Bound(1_000).better([COLD, short, Took(960, 1.0)], PERIOD_S) == 1_920, "by the dearer of them"
    assert Bound(1_000).better([COLD, *[Took(1_000, 0.001)] * 2], PERIOD_S) == MOST * 1_000


def test_batches_that_are_not_full_do_not() -> None:
    assert Bound(1_000).better([COLD, Took(1_000, 0.5), Took(500, 0.5), Took(1_000, 0.5)], PERIOD_S) is None
    assert Bound(1_000).better([COLD, Took(1_000, 0.5), Took(0, 0.1), Took(1_000, 0.5)], PERIOD_S) is None


def test_one_that_was_too_high_is_raised_with_more_patience() -> None:
    bound = Bound(20_000)
    bound.change(1_000)
    assert bound.better([COLD, *[Took(1_000, 0.5)] * 3], PERIOD_S) is None
    assert bound.better([COLD, *[Took(1_000, 0.5)] * 4], PERIOD_S) == 4_000


def test_it_is_for_each_topic_by_itself() -> None:
    one = instance(1_000)
    run(one, *[(1.0, (500, 500))] * 4)  # none of them is at its bound
    assert one.next_bound(PERIOD_S) is None
    one = instance(1_000)
    run(one, *[(6.0, (1_000, 1_000, 1_000))] * 2)
    assert (one.next_bound(PERIOD_S) or 0) < 1_000


@given(
    st.integers(LEAST_BOUND, 1_000_000),
    st.lists(st.tuples(st.integers(0, 2_000_000), st.floats(0.01, 120), st.floats(0, 1)), min_size=1, max_size=8),
)
def test_a_change_is_a_change_for_the_better(bound: int, batches: list[tuple[int, float, float]]) -> None:
    """Never the bound that is there (it would restart the query for nothing), never below the least."""
    new = Bound(bound).better([Took(n, s, share * s) for n, s, share in batches], PERIOD_S)
    if new is not None:
        assert new != bound
        assert new >= LEAST_BOUND


class Life:
    """A query under a bound: batches of some fullness, one after the other; a new bound begins a new run."""

    def __init__(self, cold_s: float = 0.0, fixed_s: float = 0.0) -> None:
        self.bound, self.cold_s, self.fixed_s = Bound(), cold_s, fixed_s
        self.changes = 0
        self.took: list[Took] = []

    @property
    def is_first(self) -> bool:
        """Whether the next batch is the first of a run."""
        return not self.took

    def batch(self, cost_s: float, full: float = 1.0) -> float:
        """Seconds of the next batch."""
        records = max(int(full * self.bound.records), 1)
        seconds = self.fixed_s + cost_s * records + (self.cold_s if self.is_first else 0.0)
        self.took.append(Took(records, seconds))
        better = self.bound.better(self.took, PERIOD_S)
        if better is not None:
            self.bound.change(better)
            self.changes += 1
            self.took = []
        return seconds


COSTS = st.floats(1e-6, AIM * PERIOD_S / FIRST_BOUND)
FACTORS = st.floats(1 / 3, 3)
#: The dearest record of which the least bound makes no long batch.
DEAREST = LONG * PERIOD_S / LEAST_BOUND


@given(COSTS, st.lists(st.tuples(FACTORS, st.floats(0.6, 1)), max_size=60), st.floats(0, 0.8 * PERIOD_S))
def test_no_batch_takes_longer_than_two_periods(
    cost_s: float, steps: Sequence[tuple[float, float]], cold_s: float
) -> None:
    """Whatever records come to cost, no more than three times as much from one judged batch to the next. The first
    batch of a run is not judged: what it costs, the next one does."""
    life = Life(cold_s)
    life.batch(cost_s)
    for factor, full in steps:
        if len(life.took) != 1:
            cost_s = min(cost_s * factor, DEAREST)
        assert life.batch(cost_s, full) <= 2 * PERIOD_S + 1e-6


@given(
    COSTS,
    st.floats(0, 0.3 * LONG * PERIOD_S),
    st.floats(0, 1.2 * PERIOD_S),
    st.integers(0, 2**32),
)
def test_it_comes_to_rest(cost_s: float, fixed_s: float, cold_s: float, seed: int) -> None:
    """Also where batches under one bound take half or twice as long for no reason, and the first of a run is long."""
    quiet = Life(cold_s, fixed_s)
    for _ in range(100):
        last = quiet.batch(cost_s)
    settled, quiet.changes = quiet.bound.records, 0
    for _ in range(100):
        last = quiet.batch(cost_s)
    assert quiet.changes == 0
    assert quiet.bound.records == settled
    assert last <= LONG * PERIOD_S
    noisy = Life(cold_s, fixed_s)
    noise = Random(seed)
    for _ in range(300):
        noisy.batch(cost_s * noise.uniform(0.5, 2))
    assert noisy.changes <= 20


@given(st.floats(1e-6, 1e-3), st.floats(0, 0.5))
def test_it_lets_a_query_work_most_of_the_time(cost_s: float, fixed_s: float) -> None:
    """With as many records as one likes, a batch comes to take a good part of the pause between two."""
    life = Life(1.0, fixed_s)
    for _ in range(60):
        last = life.batch(cost_s)
    assert last >= 0.7 * AIM * PERIOD_S
    assert life.bound.records * FULL >= LEAST_BOUND
