"""The bound on the records of a micro-batch: it comes to rest where batches take less than half a period."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.instance import FIRST_BOUND, LEAST_BOUND, Instance
from qod_magics.spark.pipeline import Job
from qod_magics.spark.progress import FeedCount
from tests.spark.batches import batch

PERIOD_S = 5.0
JOB = Job("T", "T.1", 0, (), lambda spark, inputs: None, (), (), None, None, None)  # type: ignore[arg-type, return-value]


def instance(bound: int = FIRST_BOUND, mode: str = "micro-batch") -> Instance:
    return Instance(JOB, "/nowhere", mode=mode, run_id="run", bound=bound)


def feeds(*read: int | None) -> tuple[FeedCount, ...]:
    return tuple(FeedCount(f"t{i}", {0: 0}, {0: n or 0}, n, n) for i, n in enumerate(read))


def run(one: Instance, *batches: tuple[float, tuple[int | None, ...]], run_id: str = "run") -> None:
    at = 0.0
    for number, (took, read) in enumerate(batches):
        one.meter.add(batch(number, at, at + took, feeds=feeds(*read), run=run_id))
        at += took


def test_real_time_mode_has_none() -> None:
    one = instance(mode="real-time")
    run(one, (60.0, (20_000,)))
    assert one.next_bound(PERIOD_S) is None


def test_it_is_left_alone_while_nothing_is_known() -> None:
    one = instance()
    assert one.next_bound(PERIOD_S) is None
    run(one, (60.0, (20_000,)), run_id="the run before")
    assert one.next_bound(PERIOD_S) is None


def test_slow_batches_lower_it_to_half_a_period_each() -> None:
    one = instance()
    run(one, (20.0, (20_000,)))
    assert one.next_bound(PERIOD_S) == 2_500


def test_full_and_fast_batches_raise_it() -> None:
    one = instance(bound=1_000)
    run(one, (1.0, (1_000,)), (1.0, (960,)), (1.0, (1_000,)))
    assert one.next_bound(PERIOD_S) == 2_000


def test_batches_that_are_not_full_do_not() -> None:
    one = instance(bound=1_000)
    run(one, (1.0, (1_000,)), (1.0, (500,)), (1.0, (1_000,)))
    assert one.next_bound(PERIOD_S) is None


def test_it_is_for_each_topic_by_itself() -> None:
    one = instance(bound=1_000)
    run(one, (1.0, (500, 500)), (1.0, (500, 500)), (1.0, (500, 500)))  # none of them is at its bound
    assert one.next_bound(PERIOD_S) is None
    one = instance(bound=1_000)
    run(one, (6.0, (1_000, 1_000, 1_000)))
    assert (one.next_bound(PERIOD_S) or 0) < 1_000


@given(
    st.integers(LEAST_BOUND, 1_000_000),
    st.lists(
        st.tuples(st.floats(0.01, 120), st.lists(st.one_of(st.none(), st.integers(0, 2_000_000)), min_size=1)),
        min_size=1,
        max_size=6,
    ),
)
def test_a_change_is_a_change_for_the_better(bound: int, batches: list[tuple[float, list[int | None]]]) -> None:
    """Never the bound that is there (it would restart the query for nothing), never below the least."""
    one = instance(bound=bound)
    run(one, *((took, tuple(read)) for took, read in batches))
    new = one.next_bound(PERIOD_S)
    slowest = max(took for took, _ in batches[-3:])
    if new is not None:
        assert new != bound
        assert new >= LEAST_BOUND
        assert (new < bound) == (slowest > PERIOD_S)


@given(st.floats(1e-6, 5e-3), st.integers(LEAST_BOUND, 10_000_000), st.floats(0, 1))
def test_it_comes_to_rest(cost_s: float, bound: int, fixed_s: float) -> None:
    """With a cost per record and one per batch, and as many records as one likes, a few changes are enough."""
    one = instance(bound=bound)
    for _ in range(30):
        one.meter.spans.clear()
        one.meter.seen.clear()
        run(one, *[(fixed_s + cost_s * one.bound, (one.bound,))] * 3)
        new = one.next_bound(PERIOD_S)
        if new is None:
            break
        one.bound = new
    else:
        raise AssertionError(f"still {one.bound} -> {new}")
    took = fixed_s + cost_s * one.bound
    assert took <= PERIOD_S or one.bound <= LEAST_BOUND
