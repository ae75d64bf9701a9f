"""D-Storm as a policy: when it acts, what it asks for, and what it waits for."""

from __future__ import annotations

import pytest
from hypothesis import given

from qod_magics.controller.plan_check import check_plan, refusals
from qod_magics.core.plan import AddNode, Move, Plan, ReleaseNode, keeping_all
from qod_magics.core.snapshot import Snapshot, Spare, replace
from qod_magics.policies import policy
from qod_magics.policies.d_storm.policy import DStorm
from tests.policies.d_storm.clusters import Cluster, Run
from tests.policies.snapshots import snapshots
from tests.texts import tells

PAIR = {"a.1": 20.0, "b.1": 10.0}
CHAIN = {"b": ["a"]}
#: A chain of two on two task managers that are mostly idle.
IDLE = Cluster({"tm1": 1.0, "tm2": 1.0}, PAIR, {"a.1": "tm1", "b.1": "tm2"}, CHAIN)
#: Four instances on one core, which can do with two thirds of the input.
FULL = Cluster(
    {"tm1": 1.0},
    {"a.1": 40.0, "b.1": 30.0, "c.1": 20.0, "d.1": 10.0},
    dict.fromkeys(("a.1", "b.1", "c.1", "d.1"), "tm1"),
    {"b": ["a"], "d": ["c"]},
    read=0.67,
)


def kinds(plan: Plan) -> list[type]:
    return [type(action) for action in plan.actions]


def test_the_first_deployment_is_a_round_and_the_next_is_one_interval_later() -> None:
    run = Run(DStorm(), IDLE)
    run.until(600.0)
    assert run.log == []
    run.until(1200.0)
    (at_s, plan), (later_s, release) = run.log
    assert at_s == 600.0
    assert plan.actions == (Move("b.1", "tm1"),)
    assert later_s == 665.0  # the window begins anew with the new placement, seen 5 s after the plan
    assert release.actions == (ReleaseNode("tm2"),)
    assert run.cluster.cores.keys() == {"tm1"}


def test_a_plan_sheds_nothing() -> None:
    plan, _ = DStorm().decide(IDLE.snapshot)
    assert plan == keeping_all(IDLE.snapshot, plan.actions)


def test_nothing_is_released_while_the_targets_are_missed() -> None:
    run = Run(DStorm(), IDLE)
    run.until(605.0)
    run.cluster = replace(run.cluster, read=0.5)
    run.until(900.0)
    assert [at_s for at_s, _ in run.log] == [600.0]
    run.cluster = replace(run.cluster, read=1.0)
    run.until(1100.0)
    assert kinds(run.log[-1][1]) == [ReleaseNode]


def test_a_task_manager_that_is_used_again_is_not_released() -> None:
    run = Run(DStorm(), IDLE)
    run.until(605.0)
    run.cluster = replace(run.cluster, place={"a.1": "tm1", "b.1": "tm2"})
    run.until(1190.0)
    assert [kinds(plan) for _, plan in run.log] == [[Move]]


def test_windows_average() -> None:
    """Every other snapshot, the last of each window too, has a latency beyond the limit; that of the mean counts."""
    for high, acts in ((0.55, False), (0.7, True)):
        run = Run(DStorm(), replace(IDLE, cpu={"a.1": 50.0, "b.1": 50.0}))
        for k in range(300):
            run.cluster = replace(run.cluster, of_task={"b": {"latency_p50_s": 0.4 if k % 2 else high}})
            run.step()
        assert bool(run.log) is acts


def test_a_warm_up_delays_the_window() -> None:
    run = Run(DStorm(), IDLE)
    run.until(590.0)
    run.cluster = replace(run.cluster, warming=frozenset({"a.1"}))
    run.until(700.0)
    assert run.log == []
    run.cluster = replace(run.cluster, warming=frozenset())
    run.step()
    assert [at_s for at_s, _ in run.log] == [700.0]


def test_what_was_never_measured_delays_the_window() -> None:
    run = Run(DStorm(), replace(IDLE, of_instance={"a.1": {"missing": ("cpu", "in_rate")}}))  # type: ignore[dict-item]
    run.until(1300.0)
    assert run.log == []


def test_consolidation_needs_a_cheaper_plan() -> None:
    """Packed, both need the large task manager, which costs more than the two small ones."""
    prices = {"tm1": {"price": 1.0}, "tm2": {"price": 1.0}, "big": {"price": 3.0}}
    small = {"tm1": {"memory_mb": 100.0}, "tm2": {"memory_mb": 100.0}, "big": {"memory_mb": 400.0}}
    cluster = replace(
        IDLE,
        cores={"tm1": 1.0, "tm2": 1.0, "big": 4.0},
        of_manager={name: {**prices[name], **small[name]} for name in prices},
        of_instance={name: {"memory_mb": 40.0} for name in PAIR},
    )
    run = Run(DStorm(), cluster)
    run.until(700.0)
    assert [plan.actions for _, plan in run.log] == [(ReleaseNode("big"),)]  # idle, and no part of the placement
    cheap = replace(cluster, of_manager={**cluster.of_manager, "big": {"price": 1.5, "memory_mb": 400.0}})
    run = Run(DStorm(), cheap)
    run.until(700.0)
    assert run.log[0][1].actions == (Move("a.1", "big"), Move("b.1", "big"))


def test_memory_is_a_limit_where_it_is_known() -> None:
    held = {name: {"memory_mb": 60.0} for name in PAIR}
    cluster = replace(IDLE, of_manager={name: {"memory_mb": 140.0} for name in IDLE.cores}, of_instance=held)
    run = Run(DStorm(), cluster)
    run.until(601.0)
    assert [kinds(plan) for _, plan in run.log] == [[Move]]
    run = Run(DStorm(), replace(cluster, of_manager={name: {"memory_mb": 121.0} for name in IDLE.cores}))
    run.until(601.0)
    assert run.log != []
    run = Run(DStorm(), replace(cluster, of_manager={name: {"memory_mb": 119.0} for name in IDLE.cores}))
    run.until(1300.0)
    assert run.log == []


def test_a_missed_throughput_starts_task_managers_first_and_moves_when_they_are_up() -> None:
    run = Run(DStorm(), replace(FULL, spare=Spare("plain", 3, 1.0, start_s=15.0)))
    run.until(600.0)
    plan = run.step()
    assert plan.actions == (AddNode("plain"),)
    assert tells(plan.actions[0].why, "throughput", "67%")
    assert run.step().moves != ()
    assert run.cluster.cores.keys() == {"tm1", "plain3"}
    place = run.cluster.place
    assert place["c.1"] == place["d.1"]
    assert place["a.1"] != place["b.1"]  # at the workload the two need 104 % of a core
    for manager in run.cluster.cores:
        assert sum(cpu for name, cpu in FULL.cpu.items() if place[name] == manager) / FULL.read <= 100.0


def test_no_more_is_started_than_it_takes_beside_what_is_up() -> None:
    """Larger ones would be filled first if all of them were offered: two of them, and tm1 would stay empty."""
    run = Run(DStorm(), replace(FULL, spare=Spare("larger", 3, 1.2)))
    run.until(600.0)
    assert run.step().actions == (AddNode("larger"),)
    run.step()
    assert {*run.cluster.place.values()} == {"tm1", "larger3"}


def test_what_is_started_late_is_waited_for() -> None:
    run = Run(DStorm(), replace(FULL, spare=Spare("plain", 3, 1.0, start_s=15.0)))
    run.until(600.0)
    waiting = run.cluster
    run.step()
    up = run.cluster
    run.cluster = replace(waiting, now_s=605.0)
    run.until(700.0)
    assert [kinds(plan) for _, plan in run.log] == [[AddNode]]
    run.cluster = replace(up, now_s=700.0)
    run.step()
    assert kinds(run.log[-1][1])[0] is Move


def test_a_start_that_never_ends_is_given_up_with_an_alert() -> None:
    run = Run(DStorm(), replace(FULL, spare=Spare("plain", 3, 1.0, start_s=15.0)))
    run.until(600.0)
    waiting = run.cluster
    run.step()
    run.cluster = replace(waiting, now_s=605.0)
    assert run.until(795.0).starved == ()
    assert run.step().starved == ("tm1",)
    run.until(1150.0)
    assert [kinds(plan) for _, plan in run.log] == [[AddNode]]


def test_a_failure_keeps_the_placement_and_says_so_until_all_is_normal() -> None:
    run = Run(DStorm(), FULL)
    plan = run.until(610.0)
    assert plan.actions == ()
    assert plan.starved == ("tm1",)
    words = run.policy.explain(run.cluster.snapshot, plan).starved("tm1")  # type: ignore[attr-defined]
    assert tells(words, "tm1", "100.0 %", "149.3 %")
    run.cluster = replace(run.cluster, read=1.0, cpu={name: cpu / 2 for name, cpu in FULL.cpu.items()})
    assert run.until(740.0).starved == ()


def test_the_plan_is_for_the_workload_not_for_what_is_read() -> None:
    """The two pairs pack into one core at what they read now, but not at what arrives."""
    cluster = replace(FULL, cores={"tm1": 1.0, "tm2": 1.0})
    run = Run(DStorm(), cluster)
    run.until(601.0)
    (at_s, plan) = run.log[0]
    assert at_s == 600.0
    assert len({*run.cluster.place.values()}) == 2
    assert all(tells(move.why, "throughput", "67%") for move in plan.moves)
    run = Run(DStorm(), replace(cluster, read=1.0))
    run.until(1300.0)
    assert run.log == []  # it keeps up, and one task manager alone is no reason


def test_latency_beyond_the_limit_starts_a_round() -> None:
    apart = {"a.1": "tm1", "b.1": "tm2", "c.1": "tm1", "d.1": "tm2"}
    cluster = Cluster({"tm1": 1.0, "tm2": 1.0}, dict.fromkeys(apart, 45.0), apart, {"b": ["a"], "d": ["c"]})
    late = {"b": {"latency_p50_s": 0.6}}
    run = Run(DStorm(), replace(cluster, of_task=late))
    run.until(601.0)
    assert len(run.log[0][1].moves) == 2
    assert tells(run.log[0][1].moves[0].why, "latency", "0.6 s", "0.5 s", "0%")
    tolerant = {"b": {"latency_p50_s": 0.6, "max_latency_s": 2.0}}
    run = Run(DStorm(), replace(cluster, of_task=tolerant))
    run.until(1300.0)
    assert run.log == []


def test_what_stands_by_takes_no_instances() -> None:
    cluster = replace(IDLE, cores={**IDLE.cores, "big": 8.0}, of_manager={"big": {"standby": 1.0}})
    run = Run(DStorm(), cluster)
    run.until(700.0)
    assert [plan.actions for _, plan in run.log] == [(Move("b.1", "tm1"),), (ReleaseNode("tm2"),)]


def test_equal_task_managers_are_relabelled_so_that_fewer_instances_move() -> None:
    """Packing alone fills tm1; most of what it puts there runs on tm2."""
    place = {"a.1": "tm2", "b.1": "tm2", "c.1": "tm3"}
    cores = dict.fromkeys(("tm1", "tm2", "tm3"), 1.0)
    run = Run(DStorm(), Cluster(cores, dict.fromkeys(place, 20.0), place, {"b": ["a"]}))
    run.until(601.0)
    assert run.log[0][1].actions == (Move("c.1", "tm2"),)


def test_a_snapshot_without_a_time_is_decided_at_once_and_the_next_by_counted_cycles() -> None:
    run = Run(DStorm(), replace(IDLE, now_s=None))
    assert run.step().actions == (Move("b.1", "tm1"),)
    plans = [run.step() for _ in range(20)]
    assert [kinds(plan) for plan in plans if plan.actions] == [[ReleaseNode]]
    fresh = Run(DStorm(), replace(IDLE, now_s=None, warming=frozenset({"a.1"})))
    assert fresh.step().actions == ()


def test_another_recording_begins_anew() -> None:
    run = Run(DStorm(), replace(IDLE, now_s=5000.0))
    run.until(5300.0)
    run.cluster = replace(run.cluster, now_s=0.0)
    run.until(600.0)
    assert run.log == []
    assert run.step().actions != ()


@given(snapshots(most_managers=3))
def test_any_snapshot_gets_a_plan_that_can_be_carried_out(snapshot: Snapshot) -> None:
    for name in ("d-storm", "storm-ras", "storm-round-robin"):
        chosen = policy(name)
        plan, _ = chosen.decide(snapshot, None)
        check_plan(plan, snapshot)
        assert refusals(plan, snapshot, {Move, AddNode, ReleaseNode}) == ()
        assert len({move.instance for move in plan.moves}) == len(plan.moves)
        reasons = chosen.explain(snapshot, plan)  # type: ignore[attr-defined]
        for manager in snapshot.task_managers:
            assert manager.id in reasons.supply(manager.id)
            assert reasons.numbers(manager.id)["available"] >= 0
            assert reasons.starved(manager.id)
            assert all(reasons.task_manager(manager.id))
        for task in snapshot.tasks:
            assert "sheds nothing" in reasons.task(task.id)[0]


@given(snapshots(wild=True))
def test_no_number_makes_it_fail(snapshot: Snapshot) -> None:
    for name in ("d-storm", "storm-ras", "storm-round-robin"):
        check_plan(policy(name).decide(snapshot, None)[0], snapshot)


def test_deciding_twice_is_the_same() -> None:
    run, again = Run(DStorm(), IDLE), Run(DStorm(), IDLE)
    run.until(1300.0)
    again.until(1300.0)
    assert run.log == again.log
    assert run.state == again.state


@pytest.mark.parametrize("name", ["d-storm", "storm-ras", "storm-round-robin"])
def test_they_say_what_they_are(name: str) -> None:
    assert repr(policy(name)) == f"policy {name}"
