"""Nephele on micro-batches: its first gaps, what it does about late queries, what it leaves alone, and how it tells."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest

from qod_magics.controller.plan_check import check_plan
from qod_magics.core.plan import Fuse, Plan, SetBatch
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager, replace
from qod_magics.core.validation import check_snapshot
from qod_magics.policies import policy
from qod_magics.policies.nephele.live import Nephele, NepheleReasons
from qod_magics.policies.nephele.paths import Parameters, Seen
from qod_magics.simulator.rates.run import Run, simulate
from qod_magics.simulator.rates.simulation import Simulation
from tests.texts import tells

CHAIN = ("A", "B", "C")


def snapshot(
    at_s: float, p95_s: float | None, target_s: float | None, interval_s: float = 1.0, **of_last: Any
) -> Snapshot:
    """A chain of three tasks on one task manager, a fifth of each interval in batches."""
    tasks = tuple(
        Task(
            name,
            CHAIN[n - 1 : n] if n else (),
            None if n else 100.0,
            1 if n == 2 else None,
            1.0 if n == 2 else None,
            fusable=int(n > 0),
            max_latency_s=target_s if n == 2 else None,
            latency_p95_s=p95_s if n == 2 else None,
            oldest_s=0.1 if n == 2 else None,
        )
        for n, name in enumerate(CHAIN)
    )
    instances = tuple(
        Instance(
            f"{name}.1",
            name,
            "tm1",
            100.0,
            10.0,
            False,
            state="running",
            mode="micro-batch",
            batch_interval_s=interval_s,
            busy=0.2,
            waiting=50,
        )
        for name in CHAIN
    )
    if of_last:
        instances = (*instances[:-1], replace(instances[-1], **of_last))
    found = Snapshot(
        (TaskManager("tm1", 1.0, 30.0),), tasks, (Stream("A", "B", 100.0), Stream("B", "C", 100.0)), instances, at_s
    )
    check_snapshot(found)
    return found


def gaps(plan: Plan) -> dict[str, float]:
    return {each.task: each.seconds for each in plan.actions if isinstance(each, SetBatch)}


def fusions(plan: Plan) -> list[tuple[str, str]]:
    return [each.edge for each in plan.actions if isinstance(each, Fuse)]


def run(*seen: Snapshot, decides: Nephele | None = None) -> list[Plan]:
    """The plans for snapshots in a row."""
    decides, state, plans = decides or Nephele(), None, []
    for each in seen:
        plan, state = decides.decide(each, state)
        check_plan(plan, each)
        plans.append(plan)
    return plans


def test_the_gaps_of_a_path_take_half_of_its_target_at_first() -> None:
    (plan,) = run(snapshot(0.0, None, 6.0))
    assert gaps(plan) == dict.fromkeys(CHAIN, 1.0)
    assert set(plan.desired.values()) == set(plan.non_drop.values()) == {1.0}


def test_without_a_target_nothing_is_asked_for() -> None:
    assert [plan.actions for plan in run(*(snapshot(5.0 * n, 60.0, None) for n in range(9)))] == [()] * 9


def test_a_task_that_another_query_without_a_target_needs_is_not_paced() -> None:
    base = snapshot(0.0, None, 6.0)
    beside = Task("D", ("A",), None, 1, 1.0)
    seen = replace(
        base,
        tasks=(*base.tasks, beside),
        streams=(*base.streams, Stream("A", "D", 100.0)),
        instances=(*base.instances, replace(base.instances[-1], id="D.1", task="D")),
    )
    assert set(gaps(run(seen)[0])) == {"B", "C"}


def test_gaps_of_a_late_path_shrink_and_then_its_tasks_are_fused_one_at_a_time() -> None:
    plans = run(*(snapshot(10.0 * n, 9.0, 6.0, interval_s=gap_s) for n, gap_s in enumerate([1.0] * 4 + [0.1] * 3)))
    first, *later = map(gaps, plans)
    assert later[0]["C"] < first["C"]
    assert all(after["C"] <= before["C"] for before, after in zip([first, *later], later, strict=False))
    asked = [fusions(plan) for plan in plans]
    assert not asked[1]  # gaps come first
    assert asked[-1] in ([("A", "B")], [])
    assert [("A", "B")] in asked
    assert all(len(each) <= 1 for each in asked)


def test_gaps_no_longer_than_two_batches_are_left_and_tasks_are_fused_at_once() -> None:
    """Batches of half a second and gaps of one: the batches take most of the time."""
    late = [replace(each, instances=busy(each)) for each in (snapshot(10.0 * n, 9.0, 6.0) for n in range(3))]
    plans = run(*late)
    assert gaps(plans[0]) == gaps(plans[1]) == dict.fromkeys(CHAIN, 1.0)
    assert fusions(plans[1]) == [("A", "B")]


def busy(seen: Snapshot) -> tuple[Instance, ...]:
    return tuple(replace(each, busy=0.5, cpu=20.0) for each in seen.instances)


def test_a_path_is_not_judged_until_what_changed_has_shown() -> None:
    plans = run(*(snapshot(5.0 * n, 9.0, 6.0) for n in range(4)))
    found = [gaps(plan)["C"] for plan in plans]
    assert found[0] == found[1] > found[2] == found[3]


@pytest.mark.parametrize("state", [{"warming_up": True}, {"state": "moving"}, {"state": "backing off"}])
def test_a_path_with_an_instance_that_starts_or_moves_is_left_alone(state: dict[str, Any]) -> None:
    plans = run(*(snapshot(10.0 * n, 9.0, 6.0, **state) for n in range(4)))
    assert gaps(plans[0]) == gaps(plans[-1])
    assert not any(fusions(plan) for plan in plans)


def test_what_is_not_measured_is_not_judged() -> None:
    plans = run(*(snapshot(10.0 * n, 9.0, 6.0, busy=None) for n in range(4)))
    assert gaps(plans[0]) == gaps(plans[-1])


def test_gaps_grow_again_when_all_is_well_and_not_beyond_the_first() -> None:
    late = [snapshot(10.0 * n, 9.0, 6.0) for n in range(3)]
    well = [snapshot(30.0 + 10.0 * n, 1.0, 6.0) for n in range(40)]
    found = [gaps(plan)["C"] for plan in run(*late, *well)]
    assert found[2] < found[0]
    assert found[2] < found[6] < found[-1] == found[0]
    never = [gaps(plan)["C"] for plan in run(*late, *well, decides=Nephele(parameters=Parameters(relax_below=0.0)))]
    assert never[-1] == never[2]


def test_a_stricter_target_shortens_gaps_at_once() -> None:
    plans = run(snapshot(0.0, 1.0, 6.0), snapshot(5.0, 1.0, 3.0))
    assert [gaps(plan)["C"] for plan in plans] == [1.0, 0.5]


def test_tasks_in_real_time_mode_are_neither_paced_nor_counted() -> None:
    seen = snapshot(0.0, None, 6.0, mode="real-time", batch_interval_s=None, busy=0.1)
    assert set(gaps(run(seen)[0])) == {"A", "B"}
    assert Seen.of(seen).elements["C"].wait_ms == 0.0


def test_the_reasons_name_the_worst_path_and_its_worst_element() -> None:
    seen = snapshot(0.0, 9.0, 6.0, batch_interval_s=4.0)
    decides = Nephele()
    plan, _ = decides.decide(seen)
    reasons = decides.explain(seen, plan)
    assert isinstance(reasons, NepheleReasons)
    told = " ".join(reasons.task("C"))
    assert "A > B > C" in told
    assert tells(told, "waiting", "C")
    assert "late" in told
    assert reasons.task_manager("tm1")


def test_a_plan_is_a_function_of_its_snapshot_and_state() -> None:
    decides, state = Nephele(), None
    for n in range(6):
        seen = snapshot(10.0 * n, 9.0, 6.0)
        (plan, after), (again, _) = decides.decide(seen, state), decides.decide(seen, state)
        assert plan == again
        state = after


def scenario(name: str, target_s: float | None, chain: int, rate: Any) -> Simulation:
    tasks: list[dict[str, Any]] = [
        {
            **{"id": f"Q{n}", "mode": "micro-batch", "trigger_s": 0, "work_us": 300, "fusable": n > 0},
            **({"topic": "t"} if n == 0 else {"upstream": [f"Q{n - 1}"]}),
            **({"priority": 1, "min_accuracy": 1.0, "max_latency_s": target_s} if n == chain - 1 else {}),
        }
        for n in range(chain)
    ]
    return Simulation.from_json(
        {
            **{"seed": 1, "duration_s": 150, "period_s": 5, "step_s": 0.05, "policy": name, "latency": True},
            "topics": [{"topic": "t", "rate": rate}],
            "task_managers": [{"id": "tm1", "cores": 1}],
            "tasks": tasks,
        }
    )


def p95_s(found: Run) -> float:
    """Mean over the last ten cycles."""
    snapshots = [cycle.snapshot for cycle in found.cycles[-10:] if cycle.snapshot is not None]
    known = [task.latency_p95_s for each in snapshots for task in each.tasks if task.latency_p95_s is not None]
    return fmean(known)


def intervals(found: Run) -> list[float]:
    last = found.cycles[-1].snapshot
    assert last is not None
    return [each.batch_interval_s or 0.0 for each in last.instances]


def test_simulated_batches_are_as_far_apart_as_plans_say_and_latencies_meet_their_target() -> None:
    paced = simulate(scenario("nephele", 5.0, 1, 300))
    free = simulate(scenario("nephele-flush", 5.0, 1, 300))
    assert intervals(paced)[0] == pytest.approx(2.5, abs=0.3)
    assert intervals(free)[0] < 0.3
    assert p95_s(free) < 1.0 < p95_s(paced) < 5.0


def test_a_simulated_chain_that_is_late_gets_shorter_gaps_or_is_fused() -> None:
    managed = simulate(scenario("nephele", 0.15, 3, 300))
    fixed = simulate(scenario("nephele-fixed-buffers gap_s=2", 0.15, 3, 300))
    last = managed.cycles[-1].snapshot
    assert last is not None
    assert len(last.tasks) < 3
    assert p95_s(fixed) > 10 * p95_s(managed)


def test_another_policy_sets_no_gap_and_a_fixed_one_sets_its_own() -> None:
    seen = snapshot(0.0, 1.0, 6.0)
    assert gaps(policy("nephele-fixed-buffers gap_s=3").decide(seen, None)[0]) == dict.fromkeys(CHAIN, 3.0)
    assert not gaps(policy("nephele-flush").decide(seen, None)[0])
