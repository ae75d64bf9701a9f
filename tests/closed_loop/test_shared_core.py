"""Several queries on one core, in closed loop: what plain Spark carries is not shed, and trouble stays where it is."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import HealthCheck, assume, example, given, seed, settings
from hypothesis import strategies as st

from qod_magics.policies import DEFAULT_POLICY, policy
from tests.closed_loop.examples import SEED, corners
from tests.closed_loop.one_core import PERIOD_S, Query, Run, course

pytestmark = pytest.mark.closed_loop

#: Batches back to back settle at this many seconds at most in what is tried.
ROUND_S = 40.0
#: Six by default, beside the explicit ones; `make test-all` tries 75.
FEW = settings(
    max_examples=settings().max_examples // 4,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.filter_too_much],
)


def queries(n: int, fixed_s: float, row_us: float, load: float, minimum: float = 0.3) -> list[Query]:
    """Equal queries of two priorities, whose rows take `load` of the core together."""
    rate = load / n / (1e-6 * row_us)
    return [Query(f"q{i}", rate, fixed_s, row_us, 1 + i % 2, minimum) for i in range(n)]


@seed(SEED)
@FEW
@given(st.integers(1, 24), st.floats(0.02, 0.8), st.floats(1.0, 50.0), st.floats(0.02, 0.85))
@example(6, 0.14, 20.0, 0.85)
@example(24, 0.02, 1.0, 0.85)
@example(1, 0.8, 50.0, 0.85)
@example(12, 0.14, 13.0, 0.8)
@example(24, 0.8, 20.0, 0.02)
def test_nothing_is_dropped_where_batches_back_to_back_keep_up(n: int, fixed_s: float, row_us: float, load: float):
    assume(n * fixed_s / (1.0 - load) <= ROUND_S)
    ours = course(queries(n, fixed_s, row_us, load), policy(DEFAULT_POLICY), 300.0)
    assert ours.dropped == 0.0
    plain = course(queries(n, fixed_s, row_us, load), None, 300.0)
    assert ours.waits_s <= max(1.2 * plain.waits_s + 0.1, 1.25 * PERIOD_S)


@seed(SEED)
@FEW
@given(st.integers(1, 12), st.floats(0.02, 0.5), st.floats(0.0, 0.5), st.floats(1.0, 50.0), st.floats(0.02, 0.85))
@example(1, 0.1, 0.3, 20.0, 0.85)
@example(2, 0.1, 0.3, 20.0, 0.85)
@example(6, 0.14, 0.5, 20.0, 0.85)
def test_nothing_is_dropped_on_a_slot_whose_cpu_nobody_measures(
    n: int, fixed_s: float, planning_s: float, row_us: float, load: float
):
    assume(n * (fixed_s + planning_s) / (1.0 - load) <= ROUND_S)

    def planned() -> list[Query]:
        mine = queries(n, fixed_s, row_us, load)
        for query in mine:
            query.planning_s = planning_s
        return mine

    ours = course(planned(), policy(DEFAULT_POLICY), 300.0, by_slots=True)
    assert ours.dropped == 0.0
    plain = course(planned(), None, 300.0)
    assert ours.waits_s <= max(1.2 * plain.waits_s + 0.1, 1.25 * PERIOD_S)


@corners(
    "n fixed_s load",
    *((2, 0.5, 0.5), (4, 0.8, 0.6), (8, 0.5, 0.5)),  # the last two settle at rounds of 8 s, of which two may wait
    others=[*product((1, 2, 3), (0.4, 0.8), (0.3, 0.6, 0.7)), (4, 0.5, 0.5), (6, 0.5, 0.6), (4, 0.8, 0.65)],
)
def test_batches_that_fill_such_a_slot_with_their_fixed_costs_lose_no_row(n: int, fixed_s: float, load: float):
    """Their costs are all of the slot, of which plans may use nine tenths: that alone is no overload."""
    assert course(queries(n, fixed_s, 20.0, load), policy(DEFAULT_POLICY), 300.0, by_slots=True).dropped == 0.0


@corners("n load", (1, 0.3), (6, 0.05), (12, 0.6), others=product((1, 2, 6, 12, 24), (0.05, 0.3, 0.6)))
def test_calm_batches_leave_cpu_that_no_row_needs(n: int, load: float):
    mine = queries(n, 0.9 / max(n, 3), 20.0, load)
    with Run(mine, policy(DEFAULT_POLICY)) as run:
        for _ in run.plans(40):
            pass
        used = sum(run.core.utilization[-20:]) / 20
    assert all(query.dropped == 0.0 for query in mine)
    assert used < load + (1.0 - load) * (0.6 + 0.5 * load) + 0.05


@seed(SEED)
@FEW
@given(st.sampled_from([2, 4, 6]), st.floats(0.02, 0.14), st.floats(5.0, 50.0), st.floats(1.3, 3.0))
def test_under_overload_the_higher_priority_keeps_more_and_backlogs_are_bounded(
    n: int, fixed_s: float, row_us: float, load: float
):
    mine = queries(n, fixed_s, row_us, load, minimum=0.05)
    ours = course(mine, policy(DEFAULT_POLICY), 400.0)
    kept = {p: sum(1.0 - q.dropped / q.position for q in mine if q.priority == p) for p in (1, 2)}
    assert kept[2] > kept[1]
    assert ours.waits_s <= max(2.5 * PERIOD_S, 2.5 * ours.round_s)


@corners(
    "n planning_s load",
    *((1, 0.05, 1.5), (1, 0.4, 4.0), (2, 0.05, 4.0), (2, 0.4, 1.15), (4, 0.05, 1.15), (4, 0.4, 2.0)),
    others=product((1, 2, 4), (0.05, 0.4), (1.15, 1.5, 2.0, 4.0)),
)
def test_an_overload_of_a_slot_whose_cpu_nobody_measures_is_shed_by_priority(n: int, planning_s: float, load: float):
    """The tasks wait for the driver while it plans: their CPU alone would leave a part of the slot free for ever."""
    mine = queries(n, 0.1, 20.0, load, minimum=0.05)
    for query in mine:
        query.planning_s = planning_s
    ours = course(mine, policy(DEFAULT_POLICY), 400.0, by_slots=True)
    assert ours.dropped > 0.0
    assert ours.most_s < (60.0 if load <= 2.0 else 100.0)  # a batch under way can't be thinned
    assert ours.waits_s <= max(2.0 * PERIOD_S, 2.5 * ours.round_s)
    if n > 1:
        kept = {p: sum(1.0 - q.dropped / q.position for q in mine if q.priority == p) for p in (1, 2)}
        assert kept[2] > kept[1]


@corners(
    "n fixed_s planning_s load",
    *((2, 0.44, 0.4, 2.27), (2, 0.8, 0.4, 1.05)),
    others=[(2, 0.44, 0.4, 1.13), (2, 0.44, 0.4, 4.0), (2, 0.2, 0.1, 2.27), (4, 0.25, 0.4, 2.0), (2, 0.8, 0.4, 2.27)],
)
def test_batches_that_wait_for_the_slot_of_another_query_stay_short(
    n: int, fixed_s: float, planning_s: float, load: float
):
    """The batch that asked first has the slot, so each waits for those of the other queries: however well it pays to
    make them long, no more than two periods of input wait. Not so where rows exceed the slot by little: batches are as
    long at a load that fits, of which no row may be lost, so nothing shortens them."""
    mine = queries(n, fixed_s, 128.0, load, minimum=0.05)
    for query in mine:
        query.planning_s = planning_s
    ours = course(mine, policy(DEFAULT_POLICY), 400.0, by_slots=True, fifo=True)
    assert ours.told_s <= (6.0 if load < 1.2 else 2.0) * PERIOD_S
    kept = {p: sum(1.0 - q.dropped / q.position for q in mine if q.priority == p) for p in (1, 2)}
    assert kept[2] > kept[1]


@corners(
    "n fixed_s load peak by_slots",
    *((2, 0.44, 0.8, 2.0, False), (6, 0.14, 0.7, 2.0, False), (12, 0.05, 0.7, 2.0, False), (2, 0.44, 0.9, 3.0, True)),
    others=[
        *((1, 0.5, 0.8, 2.0, False), (12, 0.25, 0.7, 2.0, False), (6, 0.14, 0.8, 3.0, False)),
        *((6, 0.14, 0.8, 2.0, True), (12, 0.05, 0.8, 2.0, True), (2, 0.14, 0.9, 2.0, True)),
    ],
)
def test_after_a_peak_every_row_of_a_load_that_fits_is_kept(
    n: int, fixed_s: float, load: float, peak: float, by_slots: bool
):
    """The batches of a load that fits may be as long as those of an overload."""
    mine = queries(n, fixed_s, 20.0, 0.4, minimum=0.05)

    def dropped(load: float, cycles: int) -> float:
        """Rows of all queries, while theirs take `load` of the core."""
        before = sum(query.dropped for query in mine)
        for query in mine:
            query.turn(run.core.now, load / n / 20e-6)
        for _ in run.plans(cycles):
            pass
        return sum(query.dropped for query in mine) - before

    with Run(mine, policy(DEFAULT_POLICY), by_slots=by_slots) as run:
        assert dropped(0.4, 12) == 0.0
        assert dropped(peak, 12 if peak <= 2.0 else 4) + dropped(load, 60) > 0.0
        assert dropped(load, 40) == 0.0


def writing(load: float, sink: float, sink_s: float = 0.1, priority: int = 2) -> Query:
    """A query whose rows take `load` of the core, and `sink` of the time of one batch after the other in its sink."""
    query = Query("sink", 4000.0, 0.05, load / 4000.0 / 1e-6, priority, 0.1)
    query.sink_s, query.sink_us = sink_s, sink / 4000.0 / 1e-6
    return query


@corners("load sink", (0.05, 1.2), (0.05, 2.5), (0.3, 1.5), others=product((0.05, 0.3), (1.2, 1.5, 2.5)))
def test_a_backlog_that_does_not_fall_while_the_core_idles_is_shed(load: float, sink: float):
    """CPU is idle, and no cost in CPU ever explains the backlog: it grew as plain Spark's does."""
    slow, beside = writing(load, sink), queries(2, 0.05, 20.0, 0.2)
    with Run([slow, *beside], policy(DEFAULT_POLICY)) as run:
        waits_s = [(slow.arrived(run.core.now) - slow.position) / slow.rate for _ in run.plans(80)]
        assert max(waits_s[-20:]) < 30.0
        kept = run.core.keep["sink"]
    assert 0.6 / (load + sink) < kept < 1.0 / sink
    for query in beside:  # before what limits the other one is known, its backlog counts against them for some cycles
        assert query.dropped <= 0.03 * query.position


@corners(
    "load sink sink_s",
    *((0.02, 0.0, 10.0), (0.02, 0.85, 0.2), (0.1, 0.0, 3.0), (0.1, 0.5, 5.0), (0.1, 0.8, 1.0)),
    others=[(0.02, 0.0, 3.0), (0.02, 0.5, 5.0), (0.02, 0.8, 1.0), (0.1, 0.0, 10.0), (0.1, 0.85, 0.2)],
)
def test_a_sink_that_takes_its_time_with_each_batch_sheds_nothing(load: float, sink: float, sink_s: float):
    mine = [writing(load, sink, sink_s), *queries(2, 0.05, 20.0, 0.2)]
    found = course(mine, policy(DEFAULT_POLICY), 400.0)
    assert found.dropped == 0.0


def test_once_a_sink_is_fast_again_every_row_is_kept():
    slow = writing(0.1, 2.0)
    with Run([slow], policy(DEFAULT_POLICY)) as run:
        for _ in run.plans(60):
            pass
        assert run.core.keep["sink"] < 0.6
        slow.sink_us /= 4.0
        for _ in run.plans(40):
            pass
        assert run.core.keep["sink"] == 1.0


@corners("n by_slots", (2, True), (6, False), (12, False), others=product((2, 6, 12), (False, True)))
def test_a_query_that_starts_cold_takes_no_row_from_its_neighbours(n: int, by_slots: bool):
    mine = queries(n, 0.14, 20.0, 0.3)
    late = Query("late", 500.0, 0.14, 20.0, 3, 0.3, starts_s=150.0, cold=5.0)
    course([*mine, late], policy(DEFAULT_POLICY), 300.0, by_slots=by_slots)
    assert {query.name: query.dropped for query in mine} == {query.name: 0.0 for query in mine}


@pytest.mark.parametrize("priority", [1, 3])
def test_a_query_that_starts_cold_under_overload_leaves_the_others_their_order(priority: int):
    mine = queries(4, 0.05, 20.0, 2.0, minimum=0.05)
    late = Query("late", 2000.0, 0.05, 20.0, priority, 0.05, starts_s=150.0, cold=5.0)
    found = course([*mine, late], policy(DEFAULT_POLICY), 300.0)
    assert found.dropped > 0.0
    kept = {p: sum(1.0 - q.dropped / q.position for q in mine if q.priority == p) for p in (1, 2)}
    assert kept[2] > kept[1] + 0.5


@corners("n neighbour", (2, 0.6), others=[(2, 0.5), (6, 0.6)])
def test_a_neighbour_on_the_core_costs_what_it_takes_and_nothing_once_it_is_gone(n: int, neighbour: float):
    mine = queries(n, 0.02, 20.0, 0.6, minimum=0.05)
    with Run(mine, policy(DEFAULT_POLICY)) as run:

        def kept(share: float, cycles: int) -> list[list[float]]:
            """Keep probabilities of both priorities in the last ten cycles."""
            run.core.neighbour, found = share, []
            for plan in run.plans(cycles):
                found.append([plan.desired["q0"], plan.desired["q1"]])
                waits_s = max((query.arrived(run.core.now) - query.position) / query.rate for query in mine)
                assert waits_s < 20.0
            return found[-10:]

        kept(0.0, 30)
        low, high = (sum(each) / len(each) for each in zip(*kept(neighbour, 60), strict=True))
        assert high >= 0.8
        assert high > low
        assert kept(0.0, 30) == [[1.0, 1.0]] * 10


@pytest.mark.parametrize("n", [1, 4])
def test_a_limited_core_is_used_no_more_than_the_user_allows(n: int):
    mine = queries(n, 0.05, 20.0, 0.6, minimum=0.05)
    with Run(mine, policy(DEFAULT_POLICY)) as run:

        def settled(share: float, cycles: int) -> tuple[float, float]:
            """Mean utilization and keep probability in the second half."""
            run.core.share = share
            kept = [sum(plan.desired[query.name] for query in mine) / n for plan in run.plans(cycles)]
            half = cycles // 2
            return sum(run.core.utilization[-half:]) / half, sum(kept[-half:]) / half

        assert settled(1.0, 40)[1] == 1.0
        used, kept = settled(0.5, 60)
        assert used <= 0.5
        assert 0.3 < kept < 0.9
        assert settled(1.0, 40)[1] == 1.0


def test_a_new_query_that_does_not_fit_gives_way_to_those_that_have_proved_themselves():
    mine = queries(2, 0.05, 20.0, 0.4)
    heavy = Query("heavy", 60_000.0, 0.05, 20.0, 1, 0.1, starts_s=100.0)
    course([*mine, heavy], policy(DEFAULT_POLICY), 400.0)
    more_important = next(query for query in mine if query.priority == 2)
    assert more_important.dropped <= 0.1 * more_important.position
    assert heavy.dropped > 0.5 * heavy.position
