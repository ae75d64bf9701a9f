"""When a task manager sheds: on rows that wait, or on costs beyond doubt; and how far its costs are believed then."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.optional import FIXED_CPU, OPEN, READ_COST, RESTS, TRUST, WORK_COST
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Instance, Snapshot, Task, TaskManager
from qod_magics.policies import policy
from qod_magics.policies.stream_economics.trust import (
    CALM_CYCLES,
    CERTAIN,
    COLD_S,
    DOWN,
    LEAST,
    MOST,
    REST_S,
    WAITING_COLD_S,
    WAITING_S,
    Trust,
    Trusts,
    after,
    trusted,
)

CALM = {"waiting_s": 0.0, "asked": 0.5, "sheds": False, "limit_s": WAITING_S}
SHEDDING = Trust(is_open=False)


def seen(cycle: int, rate: float = 1000.0, work_us: float = 500.0, warming: bool = False) -> Snapshot:
    """One query of a topic on one core, with known costs: at 1,000 rows/s it needs half of the core."""
    costs = {FIXED_CPU.name: 1.0, READ_COST.name: 1.0, WORK_COST.name: work_us}
    begin = 5.0 * cycle
    return Snapshot(
        (TaskManager("tm1", 0.9, 60.0),),
        (Task("q", (), rate, 1, 0.1, costs),),
        (),
        (Instance("q.1", "q", "tm1", rate, 50.0, warming, {"window": [begin, begin + 5.0]}),),
    )


def waits(seconds: float, rate: float = 1000.0) -> Measured:
    return Measured(lag={"q": int(seconds * rate)}, input_rate={"q": rate}, accuracy={"q": 1.0})


def opened_for(snapshot: Snapshot) -> float | None:
    return OPEN.of(snapshot.task_managers[0])


def test_a_new_query_runs_open_however_dear_its_rows_look() -> None:
    found, memory = trusted(seen(0, work_us=50_000.0), waits(WAITING_COLD_S - 1), None)
    assert opened_for(found) == WAITING_COLD_S
    plan, _ = policy("stream-economics-reactive").decide(found, None)
    assert plan.desired["q"] == 1.0
    assert memory.managers["tm1"].is_open


def test_a_warm_up_holds_no_query_at_its_minimum_while_its_task_manager_runs_open() -> None:
    found, _ = trusted(seen(0, warming=True), waits(0), None)
    assert policy("stream-economics-reactive").decide(found, None)[0].desired["q"] == 1.0
    resting = replace(found.instances[0], extra={**found.instances[0].extra, RESTS.name: 10.0})
    held = replace(found, task_managers=(TaskManager("tm1", 0.9, 60.0, {TRUST.name: 1.0}),), instances=(resting,))
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


def test_once_nothing_was_shed_for_some_cycles_it_runs_open_again() -> None:
    trust = SHEDDING
    for _ in range(CALM_CYCLES - 1):
        trust = after(trust, **CALM)
        assert not trust.is_open
    assert after(trust, **CALM).is_open


def test_trust_rises_while_rows_are_dropped_and_none_wait_and_falls_while_many_wait() -> None:
    up = after(SHEDDING, waiting_s=0.0, asked=2.0, sheds=True, limit_s=WAITING_S)
    assert up.factor > 1.0
    between = after(up, waiting_s=REST_S + 1, asked=2.0, sheds=True, limit_s=WAITING_S)
    assert between.factor == up.factor
    down = after(between, waiting_s=WAITING_S + 1, asked=2.0, sheds=True, limit_s=WAITING_S)
    assert down.factor == pytest.approx(DOWN * up.factor)
    drained = after(down, waiting_s=WAITING_S + 0.5, asked=2.0, sheds=True, limit_s=WAITING_S)
    assert drained.factor == down.factor  # what waits is getting less


def test_rows_that_wait_where_costs_see_no_overload_prove_the_costs_wrong() -> None:
    found = after(Trust(), waiting_s=WAITING_S + 1, asked=0.8, sheds=False, limit_s=WAITING_S)
    assert not found.is_open
    assert found.factor < 0.8  # so that the plan for it sheds


def test_a_factor_that_was_learned_decides_what_is_beyond_doubt() -> None:
    asked = CERTAIN * 1.2
    assert not after(Trust(), **{**CALM, "asked": asked}).is_open
    assert after(Trust(factor=1.3), **{**CALM, "asked": asked}).is_open


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 20), st.booleans()), max_size=60))
def test_trust_stays_within_its_limits(cycles: list[tuple[float, float, bool]]) -> None:
    trust = Trust()
    for waiting_s, asked, sheds in cycles:
        trust = after(trust, waiting_s=waiting_s, asked=asked, sheds=sheds, limit_s=WAITING_S)
        assert LEAST <= trust.factor <= MOST
        assert not (trust.is_open and waiting_s > WAITING_S)


def test_task_managers_that_are_gone_are_forgotten() -> None:
    memory = Trusts({"tm9": SHEDDING}, {"gone": 1.0})
    _, memory = trusted(seen(0), waits(0), memory)
    assert set(memory.managers) == {"tm1"}
    assert set(memory.since) == {"q"}


def test_trust_does_not_fall_where_all_run_at_their_minimums_already() -> None:
    found = after(SHEDDING, waiting_s=50.0, asked=9.0, sheds=True, limit_s=WAITING_S, at_minimum=True)
    assert found == replace(SHEDDING, waiting_s=50.0)


def test_trust_comes_back_quickly_to_where_rows_began_to_wait_and_goes_on_slowly_from_there() -> None:
    trust = after(Trust(False, 1.5), waiting_s=WAITING_S + 1, asked=9.0, sheds=True, limit_s=WAITING_S)
    assert trust.ceiling == 1.5
    steps = []
    for _ in range(20):
        before = trust.factor
        trust = after(trust, waiting_s=0.0, asked=9.0, sheds=True, limit_s=WAITING_S)
        steps.append(trust.factor / before)
    assert steps[-1] < 1.02
    assert 0.9 * 1.5 < trust.factor < 1.15 * 1.5


def test_trust_does_not_rise_while_something_else_holds_the_queries_back() -> None:
    held = after(SHEDDING, waiting_s=0.0, asked=9.0, used=0.3, sheds=True, limit_s=WAITING_S)
    assert held.factor == SHEDDING.factor
    assert after(SHEDDING, waiting_s=0.0, asked=9.0, used=0.95, sheds=True, limit_s=WAITING_S).factor > 1.0


def test_a_query_that_is_shed_to_nothing_is_shedding() -> None:
    memory = Trusts({"tm1": Trust(is_open=False, calm=CALM_CYCLES)}, {"q": 0.0})
    _, memory = trusted(seen(20), replace(waits(0), accuracy={"q": 0.0}), memory)
    assert not memory.managers["tm1"].is_open
