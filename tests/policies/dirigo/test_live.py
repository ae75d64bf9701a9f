"""Dirigo on a cluster: who lends what to whom, what is taken back, and that a hot key's backlog stays bounded."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from qod_magics.controller.plan_check import check_plan
from qod_magics.core.plan import Lend, Plan
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager, replace
from qod_magics.core.validation import check_snapshot
from qod_magics.errors import UsageProblem
from qod_magics.policies import policy
from qod_magics.policies.dirigo.live import DirigoLive, Worker, lent_by, workers_of

ROW_S = 1e-3  #: CPU of a row


def instance(number: int, rate: float, waiting: int = 0, capacity: float = 1.0, **more: Any) -> Instance:
    """One that reads what comes, as far as a core allows."""
    read = min(rate, capacity / ROW_S)
    given = {"state": "running", "mode": "micro-batch", "waiting": waiting, "arrival_rate": rate, **more}
    return Instance(f"q.{number}", "q", f"tm{number}", read, 100.0 * ROW_S * read, False, **given)


def snapshot(*mine: Instance, lends: int | None = 1, target_s: float | None = None) -> Snapshot:
    tasks = (Task("src", (), 100.0, None, None), Task("q", ("src",), None, 1, 1.0, lends=lends, max_latency_s=target_s))
    managers = [TaskManager(each.task_manager, 1.0, each.cpu) for each in mine]
    source = Instance("src.1", "src", mine[0].task_manager, 100.0, 0.0, False, state="running")
    found = Snapshot(managers, tasks, (Stream("src", "q", 100.0),), (source, *mine))
    check_snapshot(found)
    return found


def lent(plan: Plan) -> dict[str, tuple[str, float]]:
    return {each.instance: (each.to, each.share) for each in plan.actions if isinstance(each, Lend)}


def test_rows_that_would_be_late_are_lent_to_an_instance_that_has_time() -> None:
    seen = snapshot(instance(1, 1500.0, 3000), instance(2, 300.0))
    plan, state = DirigoLive().decide(seen)
    check_plan(plan, seen)
    ((to, share),) = lent(plan).values()
    assert (list(lent(plan)), to) == (["q.1"], "q.2")
    assert 0.3 < share <= 0.6
    assert state == lent(plan)
    assert set(plan.desired.values()) == set(plan.non_drop.values()) == {1.0}
    assert "q.2" in DirigoLive().explain(seen, plan).task("q")[0]


def test_nothing_is_lent_while_all_are_on_time_nor_where_no_query_lends() -> None:
    calm = snapshot(instance(1, 500.0, 200), instance(2, 300.0))
    hot = [instance(1, 1500.0, 9000), instance(2, 300.0)]
    for seen in (calm, snapshot(*hot, lends=None), snapshot(*hot, lends=0), snapshot(hot[0])):
        plan, state = DirigoLive().decide(seen)
        assert (lent(plan), state) == ({}, {})
    assert "--lend" in DirigoLive().explain(snapshot(*hot, lends=None), plan).task("q")[0]


def test_a_lessee_that_is_late_takes_nothing() -> None:
    plan, _ = DirigoLive().decide(snapshot(instance(1, 1500.0, 9000), instance(2, 900.0, 9000)))
    assert lent(plan) == {}


def test_an_instance_that_does_not_run_or_is_not_measured_neither_lends_nor_borrows() -> None:
    hot = instance(1, 1500.0, 9000)
    for other in (
        instance(2, 0.0, state="starting"),
        instance(2, 0.0, missing=("cpu",)),
        replace(instance(2, 0.0), arrival_rate=None),
    ):
        assert lent(DirigoLive().decide(snapshot(hot, other), {"q.1": ("q.2", 0.5)})[0]) == {}


def test_what_is_lent_counts_as_its_lessors() -> None:
    seen = snapshot(instance(1, 600.0), instance(2, 700.0))
    one, two = workers_of(seen, seen.tasks[1], {"q.1": ("q.2", 0.4)})
    assert (one.own_rate, two.own_rate) == (pytest.approx(1000.0), pytest.approx(300.0))


def test_a_tighter_target_lends_earlier() -> None:
    lessor, lessee = Worker("a", 1200.0, 1500, ROW_S), Worker("b", 100.0, 0, ROW_S)
    shares = [lent_by(lessor, lessee, target_s, 5.0) for target_s in (0.5, 2.0, 8.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.3
    assert shares[-1] == 0.0


def test_the_range_bounds_who_may_borrow() -> None:
    mine = (instance(1, 1500.0, 4000), instance(2, 900.0, 900), instance(3, 10.0))
    assert lent(DirigoLive().decide(snapshot(*mine))[0])["q.1"][0] == "q.3"
    near = policy("dirigo parallelism_range=2")
    assert "q.3" not in {to for to, _ in lent(near.decide(snapshot(*mine))[0]).values()}
    alone = policy("dirigo parallelism_range=1")
    assert lent(alone.decide(snapshot(*mine))[0]) == {}


@pytest.mark.parametrize("words", ["dirigo target_s=0", "dirigo parallelism_range=0", "dirigo horizon_s=x"])
def test_a_parameter_out_of_range_is_refused(words: str) -> None:
    with pytest.raises(UsageProblem):
        policy(words)


@pytest.mark.parametrize("target_s", [None, 5.0])
def test_the_backlog_of_a_hot_key_stays_bounded_and_is_taken_back_after(target_s: float | None) -> None:
    """A key with 1.3 cores' worth of rows beside others with 0.3: two cores carry them, one does not."""
    period_s, capacity = 5.0, 1.0 / ROW_S
    waiting, share, state = [0.0, 0.0], 0.0, None
    backlogs, shares = [], []
    for cycle in range(40):
        own = (1300.0, 300.0) if cycle < 25 else (300.0, 300.0)
        came = (own[0] * (1 - share), own[1] + own[0] * share)
        for i in (0, 1):
            waiting[i] = max(waiting[i] + (came[i] - capacity) * period_s, 0.0)
        mine = [instance(i + 1, came[i], round(waiting[i])) for i in (0, 1)]
        plan, state = DirigoLive().decide(snapshot(*mine, target_s=target_s), state)
        share = lent(plan).get("q.1", ("", 0.0))[1]
        backlogs.append(max(waiting))
        shares.append(share)
    assert max(backlogs[5:25]) < 2 * period_s * 1300.0
    assert min(shares[5:25]) > 0.0
    assert max(abs(a - b) for a, b in pairwise(shares[10:25])) < 0.5
    assert shares[-1] == 0.0
    assert waiting == [0.0, 0.0]
