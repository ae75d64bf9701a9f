"""Cameo on micro-batches: when batches are due, who yields, what is left alone, and how it tells."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from qod_magics.controller.plan_check import check_plan
from qod_magics.core.plan import Plan, SetBatch
from qod_magics.core.snapshot import GIVEN_UP, Instance, Snapshot, Stream, Task, TaskManager, replace
from qod_magics.core.validation import check_snapshot
from qod_magics.errors import UsageProblem
from qod_magics.policies import latency_note, policy
from qod_magics.policies.cameo.live import FIFO_S, Cameo, CameoReasons, Parameters, deadlines
from qod_magics.simulator.rates.run import simulate
from qod_magics.simulator.rates.simulation import Simulation
from tests.policies.snapshots import snapshots


def instance(task: str, manager: str = "tm1", batch_s: float = 0.2, **more: Any) -> Instance:
    given = {"state": "running", "mode": "micro-batch", "batch_interval_s": 1.0, "busy": batch_s, "waiting": 50, **more}
    return Instance(f"{task}.1", task, manager, 100.0, given.pop("cpu", 100.0 * batch_s), False, **given)


def task(name: str, target_s: float | None = None, p95_s: float | None = None, upstream: tuple[str, ...] = ()) -> Task:
    return Task(
        name, upstream, None if upstream else 100.0, 1, 1.0, max_latency_s=target_s, latency_p95_s=p95_s, oldest_s=0.1
    )


def snapshot(p95_s: float | None = 0.5, *, elsewhere: bool = False) -> Snapshot:
    """A source whose query has a target of two seconds, beside a query without one; `elsewhere`: one more."""
    tasks = [replace(task("A"), priority=None, min_accuracy=None), task("B", 2.0, p95_s, ("A",)), task("heavy")]
    instances = [instance("A"), instance("B", batch_s=0.3), instance("heavy", batch_s=0.9)]
    managers = [TaskManager("tm1", 1.0, 90.0)]
    if elsewhere:
        tasks.append(task("far"))
        instances.append(instance("far", "tm2"))
        managers.append(TaskManager("tm2", 1.0, 90.0))
    found = Snapshot(managers, tasks, (Stream("A", "B", 100.0),), instances)
    check_snapshot(found)
    return found


def asked(plan: Plan) -> dict[str, tuple[float, float | None]]:
    return {each.task: (each.seconds, each.due_s) for each in plan.actions if isinstance(each, SetBatch)}


def test_a_batch_is_due_by_its_target_less_its_own_time_and_that_of_the_tasks_behind() -> None:
    found = deadlines(snapshot())
    assert found["A"].due_s == pytest.approx(2.0 - 0.2 - 0.3)
    assert found["B"].due_s == pytest.approx(2.0 - 0.3)
    assert "heavy" not in found
    by_end = deadlines(snapshot(), "edf")
    assert by_end["A"].due_s == pytest.approx(2.0 - 0.3)
    assert by_end["B"].due_s == pytest.approx(2.0)


def test_a_task_before_two_queries_is_due_by_the_stricter_one() -> None:
    seen = snapshot()
    strict = replace(task("C", 0.9, 0.1), upstream=("A",), external_rate=None)
    seen = replace(
        seen,
        tasks=(*seen.tasks, strict),
        streams=(*seen.streams, Stream("A", "C", 100.0)),
        instances=(*seen.instances, instance("C", batch_s=0.1)),
    )
    found = deadlines(seen)["A"]
    assert (found.query, found.due_s) == ("C", pytest.approx(0.9 - 0.2 - 0.1))


def test_batches_with_a_target_wait_for_a_part_of_their_laxity_and_the_others_for_longer() -> None:
    plan, _ = Cameo().decide(snapshot())
    check_plan(plan, snapshot())
    assert asked(plan) == {"A": (0.25, 0.75), "B": (0.25, 0.85), "heavy": (0.0, 10.9)}
    assert set(plan.desired.values()) == set(plan.non_drop.values()) == {1.0}


def test_a_batch_that_is_too_long_for_its_target_starts_at_once() -> None:
    seen = snapshot()
    long = tuple(replace(each, batch_interval_s=9.0) if each.task == "B" else each for each in seen.instances)
    assert asked(Cameo().decide(replace(seen, instances=long))[0])["B"] == (0.0, 0.0)


def test_a_batch_costs_its_cpu_time_however_long_it_takes_beside_others() -> None:
    seen = snapshot()
    slow = tuple(replace(each, busy=0.9) if each.task == "B" else each for each in seen.instances)
    assert deadlines(replace(seen, instances=slow))["B"].due_s == pytest.approx(1.7)
    unknown = tuple(replace(each, cpu=0.0) for each in slow)
    assert deadlines(replace(seen, instances=unknown))["B"].due_s == pytest.approx(2.0 - 0.9)


def test_there_is_no_gap_between_urgent_batches_where_none_yields_to_them() -> None:
    seen = snapshot()
    alone = replace(seen, tasks=seen.tasks[:2], instances=seen.instances[:2])
    assert asked(Cameo().decide(alone)[0]) == {"A": (0.0, 0.75), "B": (0.0, 0.85)}


def test_nothing_is_asked_for_where_no_query_with_a_target_runs() -> None:
    assert "far" not in asked(Cameo().decide(snapshot(elsewhere=True))[0])
    without = replace(snapshot(), tasks=tuple(replace(each, max_latency_s=None) for each in snapshot().tasks))
    assert Cameo().decide(without)[0].actions == ()


def test_tasks_in_real_time_mode_are_left_alone() -> None:
    seen = snapshot()
    fast = tuple(
        replace(each, mode="real-time", batch_interval_s=None) if each.task == "heavy" else each
        for each in seen.instances
    )
    assert set(asked(Cameo().decide(replace(seen, instances=fast))[0])) == {"A", "B"}


def test_others_leave_a_gap_once_a_query_is_late_and_close_it_when_all_is_well() -> None:
    decides, state, found = Cameo(parameters=Parameters(yield_s=4.0)), None, []
    for p95_s in (0.5, 2.5, 1.8, 1.0, 1.0, 1.0, 1.0, 1.0):
        plan, state = decides.decide(snapshot(p95_s), state)
        found.append(asked(plan)["heavy"][0])
    assert found == [0.0, 4.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.0]
    assert asked(Cameo().decide(snapshot(9.0))[0])["heavy"][0] == 0.0


@pytest.mark.parametrize(
    "heavy", [{"mode": "real-time", "batch_interval_s": None}, {"batch_interval_s": 0.0}, {"state": GIVEN_UP}]
)
def test_there_is_no_gap_beside_what_does_not_yield(heavy: dict[str, Any]) -> None:
    seen = snapshot()
    beside = tuple(replace(each, **heavy) if each.task == "heavy" else each for each in seen.instances)
    found = asked(Cameo().decide(replace(seen, instances=beside))[0])
    assert (found["A"], found["B"]) == ((0.0, 0.75), (0.0, 0.85))


@pytest.mark.parametrize("home", ["tm1", "tm2"])
def test_others_leave_no_gap_for_a_query_that_was_given_up_wherever_its_last_task_ran(home: str) -> None:
    seen = snapshot(9.0, elsewhere=True)
    decides = Cameo(parameters=Parameters(yield_s=4.0))
    moved = tuple(replace(each, task_manager=home) if each.task == "B" else each for each in seen.instances)
    plan, state = decides.decide(replace(seen, instances=moved), None)
    assert asked(plan)["heavy"][0] == 4.0
    ended = tuple(replace(each, state=GIVEN_UP) if each.task == "B" else each for each in moved)
    for _ in range(6):
        plan, state = decides.decide(replace(seen, instances=ended), state)
    assert asked(plan)["heavy"][0] == 0.0


def test_it_tells_the_deadline_and_what_it_is_made_of() -> None:
    seen, decides = snapshot(2.5), policy("cameo")
    plan, _ = decides.decide(seen, None)
    why = {each.task: each.why for each in plan.actions if isinstance(each, SetBatch)}
    assert "start deadline 1.5 s" in why["A"]
    assert "yields to B" in why["heavy"]
    reasons = Cameo().explain(seen, plan)
    assert isinstance(reasons, CameoReasons)
    assert "late" in " ".join(reasons.task("B"))
    assert "A 0.75 s, B 0.85 s, heavy 11 s" in " ".join(reasons.task_manager("tm1"))


def test_the_policies_that_it_is_compared_with_keep_the_order_of_arrival_or_none() -> None:
    assert asked(policy("fifo").decide(snapshot(), None)[0]) == dict.fromkeys(("A", "B", "heavy"), (0.0, FIFO_S))
    assert policy("orleans").decide(snapshot(), None)[0].actions == ()


def test_it_acts_on_targets_and_has_parameters() -> None:
    assert latency_note("cameo margin=0.3", 2.0) is None
    assert latency_note("fifo", 2.0) is not None
    assert policy("cameo margin=0.3 order=edf").decide(snapshot(), None)[0].actions
    for wrong in ("margin=2", "order=sjf", "patience_s=99", "yield_s=11"):
        with pytest.raises(UsageProblem):
            policy(f"cameo {wrong}")


@given(snapshots(wild=True))
def test_any_valid_snapshot_gets_a_plan_that_sheds_nothing(seen: Snapshot) -> None:
    for name in ("cameo", "fifo", "orleans"):
        decides = policy(name)
        plan, _ = decides.decide(seen, None)
        check_plan(plan, seen)
        assert set(plan.non_drop.values()) == {1.0}


def test_a_simulated_calm_load_is_read_as_by_the_default_policy_and_turns_are_refused_once() -> None:
    """Two queries at a third of a core: no row is dropped that the default policy keeps, and no backlog is left."""
    books = {}
    for name in ("cameo", "stream-economics-reactive"):
        found = simulate(calm(name))
        last = found.cycles[-1]
        assert last.measured is not None
        books[name] = last.measured.counts
        refused = [each for cycle in found.cycles for each in cycle.events if each.kind == "action-refused"]
        assert len(refused) == (2 if name == "cameo" else 0)
    for source, count in books["cameo"].items():
        default = books["stream-economics-reactive"][source]
        assert count.dropped == default.dropped == 0
        assert count.processed == pytest.approx(default.processed, rel=0.02)


def calm(name: str) -> Simulation:
    common = {"mode": "micro-batch", "trigger_s": 0, "work_us": 500, "priority": 1, "min_accuracy": 0.2}
    return Simulation.from_json(
        {
            **{"seed": 1, "duration_s": 120, "period_s": 5, "step_s": 0.05, "policy": name, "latency": True},
            "topics": [{"topic": "t", "rate": 300}, {"topic": "u", "rate": 300}],
            "task_managers": [{"id": "tm1", "cores": 1}],
            "tasks": [{"id": "L", "topic": "t", "max_latency_s": 2.0, **common}, {"id": "H", "topic": "u", **common}],
        }
    )
