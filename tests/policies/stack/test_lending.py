"""The lending stage of `auto`: rows of a hot key are lent before they are shed, in every cycle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.controller.plan_check import check_plan
from qod_magics.core.plan import Lend, Move
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.dirigo.live import DirigoLive, Lent, Worker, lent_in
from qod_magics.policies.stack import auto
from qod_magics.policies.stack.stack import BUSY, Lending, unshed
from qod_magics.policies.stack.stage import UnderWay, in_use
from tests.policies.dirigo.test_live import ROW_S, instance, lent, snapshot
from tests.policies.snapshots import snapshots

CORE = 1.0 / ROW_S  #: rows/s that an instance counts
PERIOD_S = 5.0

Lends = Callable[[Snapshot, Lent, float], tuple[Lend, ...]]


def by_stage(seen: Snapshot, lent: Lent, accuracy: float) -> tuple[Lend, ...]:
    return Lending().lends(seen, lent, {"q": accuracy})


def by_dirigo(seen: Snapshot, lent: Lent, accuracy: float) -> tuple[Lend, ...]:
    return tuple(each for each in DirigoLive().decide(seen, lent)[0].actions if isinstance(each, Lend))


def settled(lends: Lends, own: tuple[float, float]) -> tuple[float, float]:
    """Return accuracy and the longest backlog, rows, after cycles in which a shedder keeps what the busier of two
    instances counts. `own`: the rows/s of their keys."""
    accuracy, now, waiting = 1.0, dict[str, tuple[str, float]](), [0.0, 0.0]
    for _ in range(40):
        share = now.get("q.1", ("", 0.0))[1]
        full = (own[0] * (1.0 - share), own[1] + own[0] * share)
        came = [accuracy * each for each in full]
        waiting = [max(rows + (rate - CORE) * PERIOD_S, 0.0) for rows, rate in zip(waiting, came, strict=True)]
        seen = snapshot(*(instance(i + 1, came[i], round(waiting[i])) for i in (0, 1)))
        now = dict(lent_in(lends(seen, now, accuracy)))
        drained = 0.9 if max(waiting) > CORE else 1.0
        accuracy = min(drained * CORE / max(full), 1.0)
    return accuracy, max(waiting)


def test_rows_of_a_hot_key_are_lent_though_shedding_keeps_its_backlog_short() -> None:
    accuracy, waiting = settled(by_stage, (1300.0, 300.0))
    assert accuracy > 0.95
    assert waiting < 2.0 * CORE
    assert settled(by_dirigo, (1300.0, 300.0))[0] < 0.8, "by the rows that come, nothing is to be lent"


def test_what_two_instances_cannot_count_is_shed_evenly() -> None:
    accuracy, _ = settled(by_stage, (1600.0, 900.0))
    assert accuracy == pytest.approx(2.0 * CORE / 2500.0, abs=0.08)


@given(st.floats(0.05, 1.0), st.lists(st.floats(0.0, 5000.0), min_size=1, max_size=4))
def test_rates_are_those_without_shedding_as_far_as_all_can_count_them(accuracy: float, rates: list[float]) -> None:
    workers = [Worker(str(n), rate, 0, ROW_S) for n, rate in enumerate(rates)]
    found = unshed(workers, accuracy)
    total = sum(each.own_rate for each in found)
    busy = max(rates) >= BUSY * CORE
    assert total == pytest.approx(min(sum(rates) / accuracy, len(rates) * CORE) if busy else sum(rates))
    assert [each.id for each in found] == [each.id for each in workers]


def test_rows_shed_for_another_task_manager_are_no_reason_to_lend() -> None:
    seen = snapshot(instance(1, 600.0), instance(2, 100.0))
    assert by_stage(seen, {}, 0.5) == ()
    (lend,) = by_stage(snapshot(instance(1, 900.0), instance(2, 100.0)), {}, 0.5)
    assert "0 rows wait and 900 rows/s" in lend.why
    assert "1800 rows/s without shedding" in lend.why


@pytest.mark.parametrize("decides", [by_stage, by_dirigo])
def test_an_instance_keeps_rows_of_its_keys_by_which_they_are_measured(decides: Lends) -> None:
    hot = snapshot(instance(1, 300.0, 10_000), instance(2, 10.0))
    lends = decides(hot, {}, 1.0)
    share = lends[0].share
    assert 0.5 < share < 1.0
    later = snapshot(instance(1, 300.0 * (1.0 - share), 7000), instance(2, 10.0 + 300.0 * share))
    again = decides(later, lent_in(lends), 1.0)
    assert [(each.instance, each.to) for each in again] == [("q.1", "q.2")]


def test_auto_lends_while_another_action_is_under_way_and_not_where_paused() -> None:
    seen = snapshot(instance(1, 1500.0, 3000), instance(2, 300.0))
    plan, state = auto().decide(seen)
    check_plan(plan, seen)
    ((to, share),) = lent(plan).values()
    assert (to, 0.2 < share < 0.7) == ("q.2", True)
    assert "q.1 to q.2" in plan.stages["lend"]
    moving = UnderWay("place", (Move("src.1", "tm2"),), state.now_s, in_use(seen))
    again, after = auto().decide(seen, replace(state, under_way=moving))
    assert after.under_way == moving
    assert lent(again)
    paused, _ = auto().pausing("lend").decide(seen)
    assert lent(paused) == {}


def test_auto_says_where_rows_that_were_declared_so_cannot_be_lent() -> None:
    hot = (instance(1, 1500.0, 3000), instance(2, 300.0))
    plan, _ = auto().decide(snapshot(*hot, lends=0))
    assert lent(plan) == {}
    assert "q lends no rows" in plan.stages["lend"]
    assert "lend" not in auto().decide(snapshot(*hot, lends=None))[0].stages
    assert "lend" not in auto().pausing("lend").decide(snapshot(*hot, lends=0))[0].stages


@given(snapshots())
def test_auto_lends_nothing_where_no_query_is_declared_so(seen: Snapshot) -> None:
    assert lent(auto().decide(seen)[0]) == {}
