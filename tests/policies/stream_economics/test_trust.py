"""When a task manager sheds: on rows that wait, or on costs beyond doubt; and how far its costs are believed then."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Instance, Snapshot, Task, TaskManager, replace
from qod_magics.policies import policy
from qod_magics.policies.stream_economics.evidence import regimes
from qod_magics.policies.stream_economics.evidence.limits import (
    LONGEST_S,
    REST_BATCHES,
    REST_S,
    WAITING_COLD_S,
    WAITING_COLD_SHARED_S,
    WAITING_ROUNDS,
    WAITING_S,
)
from qod_magics.policies.stream_economics.evidence.regimes import THRESHOLDS, Regime, Seen, Trust, regime_of
from qod_magics.policies.stream_economics.evidence.trust import (
    COLD_S,
    PACED_CYCLES,
    Trusts,
    _overuse,
    trusted,
)
from qod_magics.policies.stream_economics.learning import learn

CALM = {"waiting_s": 0.0, "asked": 0.5, "sheds": False, "limit_s": WAITING_S}
SHEDDING = Trust(is_open=False)
#: A backlog that may not last.
LASTING = {"waiting_s": 4.7, "lasting_s": 4.0}


def after(before: Trust, waiting_s: float, **seen: Any) -> Trust:
    """The state one cycle later, with an ordinary backlog of `REST_S`."""
    return regimes.after(before, Seen(waiting_s=waiting_s, rest_s=REST_S, **seen))


def seen(cycle: int, rate: float = 1000.0, work_us: float = 500.0, warming: bool = False) -> Snapshot:
    """One query of a topic on one core, with known costs: at 1,000 rows/s it needs half of the core."""
    costs = {"fixed_cpu": 1.0, "read_us": 1.0, "work_us": work_us}
    begin = 5.0 * cycle
    return Snapshot(
        (TaskManager("tm1", 0.9, 60.0),),
        (Task("q", (), rate, 1, 0.1, **costs),),
        (),
        (Instance("q.1", "q", "tm1", rate, 50.0, warming, window=[begin, begin + 5.0]),),
    )


def waits(seconds: float, rate: float = 1000.0) -> Measured:
    return Measured(lag={"q": int(seconds * rate)}, input_rate={"q": rate}, accuracy={"q": 1.0})


def opened_for(snapshot: Snapshot) -> float | None:
    return snapshot.task_managers[0].open_s


@pytest.mark.parametrize(
    ("before", "seen", "regime"),
    [
        (Trust(), {}, Regime.OPEN),
        (Trust(), {"waiting_s": 9.0, "futile": True}, Regime.FUTILE),
        (Trust(grown=9, waiting_s=8.0), {"waiting_s": 9.0, "futile": True}, Regime.OVERLOADED),
        (Trust(), {"waiting_s": 9.0, "shared": True}, Regime.DRAINING),
        (Trust(), {"waiting_s": 11.0, "shared": True}, Regime.OVERLOADED),
        (SHEDDING, {"waiting_s": 9.0}, Regime.BACKING_OFF),
        (SHEDDING, {"waiting_s": 9.0, "at_minimum": True}, Regime.WAITING),
        (Trust(False, waiting_s=4.9, lasting=2, lasted_s=4.8), {**LASTING, "whole": 1.2}, Regime.LASTING),
        (Trust(False, waiting_s=4.9, lasting=2, lasted_s=4.8), {**LASTING, "whole": 1.05}, Regime.WAITING),
        (SHEDDING, {"waiting_s": 2.0, "overuse": 0.1}, Regime.OVERUSED),
        (SHEDDING, {"waiting_s": 2.0}, Regime.WAITING),
        (SHEDDING, {}, Regime.PROBING),
        (SHEDDING, {"sheds": False}, Regime.RECOVERING),
    ],
)
def test_a_task_manager_is_in_one_regime(before: Trust, seen: dict[str, Any], regime: Regime) -> None:
    known = {"waiting_s": 0.0, "asked": 0.5, "sheds": True, "limit_s": WAITING_S, "rest_s": REST_S, **seen}
    assert regime_of(before, Seen(**known)) is regime


def test_a_new_query_runs_open_however_dear_its_rows_look() -> None:
    found, memory = trusted(seen(0, work_us=50_000.0), waits(WAITING_COLD_S - 1), None)
    assert opened_for(found) == WAITING_COLD_S
    plan, _ = policy("stream-economics-reactive").decide(found, None)
    assert plan.desired["q"] == 1.0
    assert memory.managers["tm1"].is_open


def test_a_warm_up_holds_no_query_at_its_minimum_while_its_task_manager_runs_open() -> None:
    found, _ = trusted(seen(0, warming=True), waits(0), None)
    assert policy("stream-economics-reactive").decide(found, None)[0].desired["q"] == 1.0
    resting = replace(found.instances[0], rests_s=10.0)
    held = replace(found, task_managers=(TaskManager("tm1", 0.9, 60.0, trust=1.0),), instances=(resting,))
    assert policy("stream-economics-reactive").decide(held, None)[0].desired["q"] == pytest.approx(0.1)


def test_a_new_query_sheds_once_two_periods_of_input_wait() -> None:
    found, _ = trusted(seen(0, work_us=2000.0), waits(WAITING_COLD_S + 1), None)
    assert opened_for(found) is None
    assert policy("stream-economics-reactive").decide(found, None)[0].desired["q"] < 1.0


def test_costs_beyond_doubt_shed_before_anything_waits_but_not_in_the_first_minute() -> None:
    _, memory = trusted(seen(0), waits(0), None)
    young, _ = trusted(seen(int(COLD_S / 5) - 2, rate=5000.0), waits(0), memory)
    assert opened_for(young) == WAITING_COLD_S
    old, _ = trusted(seen(int(COLD_S / 5) + 1, rate=5000.0), waits(0), memory)
    assert opened_for(old) is None
    near, _ = trusted(seen(int(COLD_S / 5) + 1, rate=1850.0), waits(0), memory)
    assert opened_for(near) == WAITING_S  # by costs it needs a little more than there is


def test_rows_that_a_higher_load_left_say_nothing_of_the_costs() -> None:
    """They wait for many seconds of the present input, but were collected within few."""
    loaded, light = seen(20, rate=8000.0), seen(21, rate=500.0)
    left = Measured(lag={"q": 24_000}, input_rate={"q": 8000.0}, accuracy={"q": 0.2})
    memory = Trusts({"tm1": SHEDDING}, {("q", "tm1"): 0.0})
    _, before = trusted(replace(loaded, at_s=100.0), left, memory)
    fallen, later = trusted(replace(light, at_s=103.0), replace(left, input_rate={"q": 500.0}), before)
    assert later.managers["tm1"].factor == before.managers["tm1"].factor
    assert policy("stream-economics-reactive").decide(fallen, None)[0].desired["q"] == 1.0
    _, stays = trusted(replace(seen(40, rate=500.0), at_s=200.0), replace(left, input_rate={"q": 500.0}), later)
    assert stays.managers["tm1"].factor < later.managers["tm1"].factor  # it has had time enough to go


def test_the_backlog_of_a_move_says_nothing_of_the_cpu_where_the_query_is_new() -> None:
    """Its code is compiled there, and rows have waited while it moved. Where it has run before, they say it."""

    def moved(number: int) -> Snapshot:
        given = seen(number)
        there = tuple(replace(instance, task_manager="tm2") for instance in given.instances)
        return replace(given, instances=there, task_managers=(*given.task_managers, TaskManager("tm2", 1.0, 50.0)))

    waiting = waits(WAITING_S + 1.0)
    _, known = trusted(seen(20), waits(0), WARM)
    found, new = trusted(moved(21), waiting, known)
    assert found.task_managers[1].open_s == WAITING_COLD_S
    _, late = trusted(moved(21), waits(WAITING_COLD_S + 1.0), known)
    assert (late.managers["tm2"].is_open, late.managers["tm2"].factor) == (False, 1.0)  # plans follow the known costs
    old, _ = trusted(moved(21 + int(COLD_S / 5)), waiting, new)
    assert old.task_managers[1].open_s is None
    back, _ = trusted(seen(22), waiting, new)
    assert opened_for(back) is None


def test_once_nothing_was_shed_for_some_cycles_it_runs_open_again() -> None:
    trust = SHEDDING
    for _ in range(THRESHOLDS.calm_cycles - 1):
        trust = after(trust, **CALM)
        assert not trust.is_open
    assert after(trust, **CALM).is_open


def test_trust_rises_while_rows_are_dropped_and_none_wait_and_falls_while_many_wait() -> None:
    up = after(SHEDDING, waiting_s=0.0, asked=2.0, sheds=True, limit_s=WAITING_S)
    assert up.factor > 1.0
    between = after(up, waiting_s=REST_S + 1, asked=2.0, sheds=True, limit_s=WAITING_S)
    assert between.factor == up.factor
    down = after(between, waiting_s=WAITING_S + 1, asked=2.0, sheds=True, limit_s=WAITING_S)
    assert down.factor == pytest.approx(THRESHOLDS.down * up.factor)
    drained = after(down, waiting_s=WAITING_S + 0.5, asked=2.0, sheds=True, limit_s=WAITING_S)
    assert drained.factor == down.factor  # what waits is getting less


def test_trust_falls_where_a_backlog_stays_for_three_cycles_though_load_is_shed() -> None:
    """It is within the limit of what drains by itself, and does not grow; one that falls is being drained."""
    state = {"asked": 2.0, "sheds": True, "limit_s": 4 * WAITING_S, "lasting_s": WAITING_S, "whole": 1.2}

    def courses(*waiting: float, **more: Any) -> list[float]:
        trust, factors = SHEDDING, []
        for seconds in waiting:
            trust = after(trust, seconds, **{**state, **more})
            factors.append(trust.factor)
        return factors

    high = WAITING_S + 3.0
    assert courses(high, high - 0.1, high) == [1.0, 1.0, THRESHOLDS.down]
    assert courses(high, high, high, *[high] * 3)[-1] == pytest.approx(THRESHOLDS.down**2), "and again"
    assert courses(2 * high, 1.5 * high, high) == [1.0] * 3
    assert courses(high, high, WAITING_S, high, high) == [1.0] * 5
    assert courses(*[high] * 9, at_minimum=True) == courses(*[high] * 9, applied=False) == [1.0] * 9
    assert courses(*[high] * 9, sheds=False) == [1.0] * 9, "so long are its batches without an overload"
    assert courses(*[high] * 9, whole=1.05) == [1.0] * 9, "nor does it last where the load may fit"


def test_trust_falls_by_half_of_what_its_tasks_overuse_while_a_backlog_grows() -> None:
    """At once, and not only when it exceeds its limit; a backlog that is drained uses all cores as well."""
    before = replace(SHEDDING, waiting_s=0.5)
    state = {"asked": 2.0, "sheds": True, "limit_s": WAITING_S, "idle": 0.0}
    assert after(before, waiting_s=1.0, overuse=0.06, **state).factor == pytest.approx(0.97 * before.factor)
    assert after(before, waiting_s=0.4, overuse=0.06, **state).factor == before.factor
    assert after(before, waiting_s=1.0, overuse=0.06, at_minimum=True, **state).factor == before.factor
    brief = replace(SHEDDING, waiting_s=0.0)
    assert after(brief, waiting_s=0.2, overuse=0.06, **state).factor == brief.factor


@pytest.mark.parametrize(("own", "expected"), [(80.0, 100.0 / 94.5 - 1.0), (40.0, 0.0)])
def test_only_what_its_own_tasks_use_is_overuse(own: float, expected: float) -> None:
    assert _overuse(TaskManager("tm1", 0.9, 100.0), own) == pytest.approx(expected)
    assert _overuse(TaskManager("tm1", 0.9, 90.0), own) == 0.0


def test_rows_that_wait_where_costs_see_no_overload_prove_the_costs_wrong() -> None:
    found = after(Trust(), waiting_s=WAITING_S + 1, asked=0.8, sheds=False, limit_s=WAITING_S)
    assert not found.is_open
    assert found.factor < 0.8  # so that the plan for it sheds


def test_a_factor_that_was_learned_decides_what_is_beyond_doubt() -> None:
    whole = THRESHOLDS.certain * 1.2
    assert not after(Trust(), **CALM, whole=whole).is_open
    assert after(Trust(factor=1.3), **CALM, whole=whole).is_open


def test_what_else_runs_there_is_no_reason_to_shed_before_rows_wait() -> None:
    _, memory = trusted(seen(0), waits(0), None)
    busy = seen(int(COLD_S / 5) + 1)
    busy = replace(busy, task_managers=(TaskManager("tm1", 0.9, 97.0),))  # of which the task has 50
    assert opened_for(trusted(busy, waits(0), memory)[0]) == WAITING_S


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 20), st.booleans()), max_size=60))
def test_trust_stays_within_its_limits(cycles: list[tuple[float, float, bool]]) -> None:
    trust = Trust()
    for waiting_s, asked, sheds in cycles:
        trust = after(trust, waiting_s=waiting_s, asked=asked, sheds=sheds, limit_s=WAITING_S)
        assert THRESHOLDS.least <= trust.factor <= THRESHOLDS.most
        assert not (trust.is_open and waiting_s > WAITING_S)


def test_task_managers_that_are_gone_are_forgotten() -> None:
    memory = Trusts({"tm9": SHEDDING}, {("gone", "tm9"): 1.0})
    _, memory = trusted(seen(0), waits(0), memory)
    assert set(memory.managers) == {"tm1"}
    assert set(memory.since) == {("q", "tm1")}


def test_trust_does_not_fall_where_all_run_at_their_minimums_already() -> None:
    found = after(SHEDDING, waiting_s=50.0, asked=9.0, sheds=True, limit_s=WAITING_S, at_minimum=True)
    assert found == replace(SHEDDING, waiting_s=50.0, grown=1)


def test_trust_comes_back_to_its_ceiling_rests_there_and_goes_on_to_look_for_more() -> None:
    trust = after(Trust(False, 1.5), waiting_s=WAITING_S + 1, asked=9.0, sheds=True, limit_s=WAITING_S)
    assert trust.ceiling == 1.5
    factors = [trust.factor]
    for _ in range(2 * THRESHOLDS.back):
        trust = after(trust, waiting_s=0.0, asked=9.0, sheds=True, limit_s=WAITING_S)
        factors.append(trust.factor)
    assert factors == sorted(factors)
    assert factors[0] == pytest.approx(THRESHOLDS.down * 1.5)
    assert factors[THRESHOLDS.back] == pytest.approx(1.5)
    assert factors[THRESHOLDS.back + 3] < 1.01 * 1.5
    assert factors[2 * THRESHOLDS.back] == pytest.approx((2 - THRESHOLDS.down) * 1.5)


def test_a_ceiling_that_was_felt_while_code_was_being_compiled_is_none() -> None:
    found = after(Trust(), waiting_s=WAITING_COLD_S + 1, asked=None, sheds=False, limit_s=WAITING_COLD_S)
    assert not found.is_open
    assert found.ceiling == inf


def test_costs_of_a_task_manager_within_the_noise_are_those_of_any_other() -> None:
    for cost, told in ((1.04, 1.0), (0.97, 1.0), (1.25, 1.2), (0.8, 0.85)):
        snapshot = seen(0)
        dear = replace(snapshot, task_managers=(TaskManager("tm1", 0.9, 60.0, cost=cost),))
        found, _ = trusted(dear, waits(0), None)
        assert found.task_managers[0].cost == pytest.approx(told)


def test_trust_does_not_rise_while_something_else_holds_the_queries_back() -> None:
    held = after(SHEDDING, waiting_s=0.0, asked=9.0, used=0.3, sheds=True, limit_s=WAITING_S)
    assert held.factor == SHEDDING.factor
    assert after(SHEDDING, waiting_s=0.0, asked=9.0, used=0.95, sheds=True, limit_s=WAITING_S).factor > 1.0


def test_trust_rises_no_faster_than_cores_are_idle_where_that_says_something() -> None:
    def rise(idle: float) -> float:
        return after(SHEDDING, waiting_s=0.0, asked=9.0, sheds=True, limit_s=WAITING_S, idle=idle).factor

    assert rise(0.0) == 1.0
    assert 1.0 < rise(0.04) < rise(0.08) < rise(inf) == rise(0.5)


def test_trust_falls_once_until_the_smaller_plan_can_show() -> None:
    trust = after(Trust(False, 1.5), waiting_s=WAITING_S + 1, asked=9.0, sheds=True, limit_s=WAITING_S)
    factors = [trust.factor]
    for waiting in (WAITING_S + 2, WAITING_S + 3):
        trust = after(trust, waiting_s=waiting, asked=9.0, sheds=True, limit_s=WAITING_S)
        factors.append(trust.factor)
    assert factors == pytest.approx([1.35, 1.35, 1.215])
    assert after(replace(trust, waiting_s=0.0), 3 * WAITING_S, asked=9.0, sheds=True, limit_s=WAITING_S).factor < 1.1


def test_trust_does_not_fall_while_more_is_kept_than_planned() -> None:
    grows = {"waiting_s": 3 * WAITING_S, "asked": 1.7, "limit_s": WAITING_S}
    before = replace(SHEDDING, factor=0.9, waiting_s=2 * WAITING_S)
    assert after(before, **grows, sheds=True).factor == pytest.approx(THRESHOLDS.down * 0.9)
    held = after(before, **grows, sheds=False, applied=False)
    assert (held.factor, held.ceiling) == (0.9, inf)


def test_it_stays_while_a_paused_controller_lets_the_backlog_grow_and_falls_once_plans_are_applied() -> None:
    """Twice the core's capacity for a minute: every row is kept; then as planned, and the backlog still grows."""
    trusts = None
    for cycle in range(20, 32):
        kept = Measured({"q": 20_000 + 8000 * cycle}, {"q": 4000.0}, {"q": 1.0})
        _, trusts = trusted(seen(cycle, 4000.0), kept, trusts)
        if cycle == 21:
            first = trusts.managers["tm1"].factor
    assert trusts is not None
    assert trusts.managers["tm1"].factor == first
    for cycle in range(32, 38):
        kept = Measured({"q": 300_000 + 8000 * cycle}, {"q": 4000.0}, {"q": 0.3})
        _, trusts = trusted(seen(cycle, 4000.0), kept, trusts)
    assert trusts.managers["tm1"].factor < first


def test_a_ceiling_is_forgotten_once_micro_batches_have_cpu_to_spare() -> None:
    low = replace(SHEDDING, factor=0.5, ceiling=0.52)
    little = {"asked": 9.0, "sheds": True, "limit_s": WAITING_S}
    assert after(low, waiting_s=0.2, **little).factor == 0.5
    spare = after(low, waiting_s=0.2, spare=0.3, **little)
    assert (spare.factor, spare.ceiling) == (pytest.approx(0.5 * THRESHOLDS.up * THRESHOLDS.up), inf)
    assert after(low, waiting_s=REST_S, spare=0.3, **little).ceiling == 0.52


def sharing(cycle: int, queries: int = 2) -> Snapshot:
    """Queries in micro-batches on one core."""
    one = seen(cycle, work_us=100.0)
    ids = [f"q{number}" for number in range(queries)]
    batches = {"batches_per_s": 2.0, "window": one.instances[0].window}
    return replace(
        one,
        task_managers=(TaskManager("tm1", 0.9, 60.0, batch_s=2.0),),
        tasks=tuple(replace(one.tasks[0], id=id) for id in ids),
        instances=tuple(replace(one.instances[0], id=f"{id}.1", task=id, **batches) for id in ids),
    )


def behind(seconds: float) -> Measured:
    rows = {"q0": 1000.0, "q1": 1000.0}
    return Measured(lag={"q0": int(seconds * 1000), "q1": 0}, input_rate=rows, accuracy=dict.fromkeys(rows, 1.0))


def test_batches_of_queries_that_share_a_task_manager_are_kept_apart_once_rows_are_shed() -> None:
    calm, memory = trusted(sharing(0), behind(WAITING_COLD_SHARED_S), None)
    assert calm.task_managers[0].paced_s is None
    found, memory = trusted(sharing(1), behind(WAITING_COLD_SHARED_S + 1.0), memory)
    assert found.task_managers[0].paced_s == 2.0
    assert opened_for(found) is None
    plan, _ = policy("stream-economics-reactive").decide(found, None)
    assert plan.pace_s == {"tm1": 2.0}
    for cycle in range(THRESHOLDS.calm_cycles + PACED_CYCLES):
        found, memory = trusted(sharing(2 + cycle), behind(0.0), memory)
    assert found.task_managers[0].paced_s is None
    assert not policy("stream-economics-reactive").decide(found, None)[0].pace_s


def waiting_for_others(
    cycle: int, *, busy: float = 10.0, own: float = 5.0, cores: float = 0.9, **extra: float
) -> Snapshot:
    """One query in micro-batches of 6 s that use little CPU, since they wait for something else."""
    one = seen(cycle, work_us=50.0)
    given = {"batches_per_s": 1.0 / 6.0, **extra}
    return replace(
        one,
        task_managers=(TaskManager("tm1", cores, busy, batch_s=2.0),),
        instances=(replace(one.instances[0], cpu=own, **given),),
    )


WARM = Trusts(since={("q", "tm1"): 0.0})


def test_batches_that_wait_for_something_other_than_cpu_are_no_backlog() -> None:
    found, _ = trusted(waiting_for_others(20), waits(6.0), WARM)
    assert opened_for(found) == pytest.approx(6.0 * WAITING_ROUNDS)
    plan, _ = policy("stream-economics-reactive").decide(found, None)
    assert plan.desired["q"] == 1.0
    assert plan.backlog_s[0] == pytest.approx(6.0 * REST_BATCHES)
    late, _ = trusted(waiting_for_others(20), waits(13.0), WARM)
    assert opened_for(late) is None


def test_batches_that_are_rare_because_rows_are_allow_no_backlog() -> None:
    found, _ = trusted(waiting_for_others(20), waits(1.0), WARM)
    assert opened_for(found) == WAITING_S
    assert policy("stream-economics-reactive").decide(found, None)[0].backlog_s == (REST_S, WAITING_S)


def test_an_interval_that_the_user_asked_for_is_no_backlog() -> None:
    found, _ = trusted(waiting_for_others(20, trigger_s=300.0), waits(300.0), WARM)
    assert opened_for(found) == pytest.approx(600.0)


@pytest.mark.parametrize(
    "scarce",
    [{"busy": 80.0}, {"busy": 95.0, "own": 90.0}, {"busy": 95.0, "own": 90.0, "cores": 4.0}],
    ids=["other load", "one core", "its core of four"],
)
def test_batches_that_are_long_for_want_of_cpu_are_a_backlog(scarce: dict[str, float]) -> None:
    memory = WARM
    for cycle in range(
        THRESHOLDS.refuted_cycles
    ):  # its costs explain a part of its CPU only, which the backlog has to show
        found, memory = trusted(waiting_for_others(20 + cycle, **scarce), waits(13.0 + cycle), memory)
    assert opened_for(found) is None
    plan, _ = policy("stream-economics-reactive").decide(found, None)
    assert plan.backlog_s == (REST_S, WAITING_S)


def test_batches_that_become_longer_and_longer_are_a_backlog_whatever_they_wait_for() -> None:
    slow, _ = trusted(waiting_for_others(20, batches_per_s=0.01), waits(WAITING_ROUNDS * LONGEST_S + 1.0), WARM)
    assert opened_for(slow) is None


def test_batches_are_kept_apart_by_the_time_that_their_cpu_takes() -> None:
    """Two queries, of which one waits for something else: pacing is for CPU."""
    given = sharing(20)
    slow = replace(given.instances[0], cpu=5.0, batches_per_s=1.0 / 6.0)
    given = replace(given, instances=(slow, given.instances[1]))
    known = Trusts(since={("q0", "tm1"): 0.0, ("q1", "tm1"): 0.0})
    assert trusted(given, behind(11.0), known)[0].task_managers[0].paced_s is None
    for seconds in (13.0, 14.0):
        found, known = trusted(given, behind(seconds), known)
    assert found.task_managers[0].paced_s == 2.0


def test_a_query_by_itself_keeps_no_distance() -> None:
    found, _ = trusted(sharing(0, queries=1), behind(REST_S + 1.0), None)
    assert found.task_managers[0].paced_s is None


def test_a_query_that_is_shed_to_nothing_is_shedding() -> None:
    memory = Trusts({"tm1": Trust(is_open=False, calm=THRESHOLDS.calm_cycles)}, {("q", "tm1"): 0.0})
    _, memory = trusted(seen(20), replace(waits(0), accuracy={"q": 0.0}), memory)
    assert not memory.managers["tm1"].is_open


def test_trust_rises_by_half_of_the_cpu_that_paced_batches_leave_unused() -> None:
    """Also above the ceiling: a backlog that cores without work do not drain has another cause."""
    wary = replace(SHEDDING, factor=0.8, ceiling=0.85)
    shedding = {**CALM, "sheds": True, "waiting_s": 1.0}
    assert after(wary, **shedding).factor < 0.85
    assert after(wary, **shedding, unused=0.2).factor == pytest.approx(0.8 * 1.1)
    assert after(wary, **{**shedding, "waiting_s": WAITING_S}, unused=0.2).factor == 0.8


def beside_a_failed_one(cycle: int, state: str) -> Snapshot:
    """The query of `seen`, and one of a higher priority, as dear, that has failed."""
    one = seen(cycle)
    other = replace(one.instances[0], id="dead.1", task="dead", cpu=0.0, state=state, window=[0.0, 5.0], stale=True)
    dead = replace(one.tasks[0], id="dead", priority=2)
    return replace(one, tasks=(*one.tasks, dead), instances=(*one.instances, other))


@pytest.mark.parametrize("state", ["backing off", "given up", "suspended"])
def test_rows_that_wait_for_a_query_that_has_failed_shed_no_other(state: str) -> None:
    """They wait for its restart, whatever CPU there is."""
    trusts = WARM
    for cycle in range(20, 40):
        lag = {"q": 0, "dead": 5000 * cycle}
        waiting = Measured(lag, {"q": 1000.0, "dead": 1000.0}, {"q": 1.0, "dead": 0.5})
        found, trusts = trusted(beside_a_failed_one(cycle, state), waiting, trusts)
        assert opened_for(found) == WAITING_S
    running = beside_a_failed_one(40, "running")
    assert opened_for(trusted(running, waiting, trusts)[0]) is None  # now it could read them


def test_a_query_that_was_given_up_gets_no_cpu() -> None:
    """One that will start again by itself does: it is as dear then."""
    shares = {}
    for state in ("backing off", "given up", "suspended"):
        known, _ = learn(beside_a_failed_one(20, state), Measured(), None)
        host = replace(known.task_managers[0], cores=1.0, cpu=50.0, trust=1.0)
        costs = beside_a_failed_one(20, state).tasks[0]
        costly = tuple(
            replace(
                task,
                **{
                    name: getattr(costs if getattr(task, name) is None else task, name)
                    for name in ("fixed_cpu", "read_us", "work_us", "selectivity")
                },
            )
            for task in known.tasks
        )
        given = replace(known, task_managers=(host,), tasks=tuple(replace(t, external_rate=1800.0) for t in costly))
        shares[state] = policy("stream-economics-reactive").decide(given, None)[0].desired["q"]
    assert shares["given up"] == shares["suspended"] == 1.0
    assert shares["backing off"] < 0.5


def test_one_measurement_lowers_trust_once() -> None:
    """Between two reports, as while a task manager hangs or a cycle is made every second, only the backlog grows."""
    first, trusts = trusted(seen(20), waits(0), WARM)
    _, trusts = trusted(seen(20), waits(WAITING_S + 1.0), trusts)
    assert (trusts.managers["tm1"].is_open, trusts.managers["tm1"].factor) == (False, 1.0)  # plans follow the costs
    for seconds in range(7, 20):
        _, trusts = trusted(seen(20), waits(float(seconds)), trusts)
    assert trusts.managers["tm1"].factor == 1.0
    _, trusts = trusted(seen(21), waits(25.0), trusts)
    assert trusts.managers["tm1"].factor == pytest.approx(THRESHOLDS.down)
    assert opened_for(first) == WAITING_S


def test_a_query_that_is_declared_anew_is_a_new_one() -> None:
    again = seen(20)
    again = replace(again, tasks=(replace(again.tasks[0], declared=2.0),))
    _, known = trusted(seen(19), waits(0), WARM)
    assert opened_for(trusted(seen(20), waits(0), known)[0]) == WAITING_S
    found, _ = trusted(again, waits(0), known)
    assert opened_for(found) == WAITING_COLD_S


def test_a_query_stays_known_when_the_task_manager_goes_that_it_ran_on() -> None:
    """Its costs are known as well on another one: known costs that far exceed the CPU shed before rows wait."""
    _, known = trusted(seen(20), waits(0), WARM)
    elsewhere = seen(21, rate=5000.0)
    moved = replace(elsewhere.instances[0], task_manager="tm2")
    there = replace(elsewhere, task_managers=(TaskManager("tm2", 0.9, 60.0),), instances=(moved,))
    assert opened_for(trusted(there, waits(0), known)[0]) is None
    assert opened_for(trusted(there, waits(0), None)[0]) == WAITING_COLD_S


def test_a_query_without_rows_since_its_start_keeps_nothing_cold() -> None:
    one = seen(20)
    bare = Instance("idle.1", "idle", "tm1", 0.0, 0.0, False, missing=("in_rate", "cpu"))
    given = replace(one, tasks=(*one.tasks, Task("idle", (), 0.0, 1, 0.1)), instances=(*one.instances, bare))
    quiet = Measured({"q": 0, "idle": 0}, {"q": 1000.0, "idle": 0.0}, {"q": 1.0, "idle": None})
    assert opened_for(trusted(given, quiet, WARM)[0]) == WAITING_S
    busy = replace(quiet, lag={"q": 0, "idle": 10})
    assert opened_for(trusted(given, busy, WARM)[0]) == WAITING_COLD_S


def test_long_batches_on_one_task_manager_excuse_no_backlog_on_another() -> None:
    slow, fast = waiting_for_others(20, trigger_s=60.0), seen(20)
    there = replace(fast.instances[0], id="p.1", task="p", task_manager="tm2")
    given = replace(
        slow,
        task_managers=(*slow.task_managers, TaskManager("tm2", 0.9, 60.0)),
        tasks=(*slow.tasks, replace(fast.tasks[0], id="p")),
        instances=(*slow.instances, there),
    )
    known = Trusts(since={("q", "tm1"): 0.0, ("p", "tm2"): 0.0})
    rows = Measured({"q": 60_000, "p": 0}, {"q": 1000.0, "p": 1000.0}, {"q": 1.0, "p": 1.0})
    found, _ = trusted(given, rows, known)
    limits = policy("stream-economics-reactive").decide(found, None)[0].backlog_s
    assert limits["p"] == (REST_S, WAITING_S)
    assert limits["q"][1] > 60.0
