"""The policies on snapshots: what a request is, and what plans do about it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.controller.plan_check import check_plan, refusals
from qod_magics.core.json_form import plan_from_json, plan_to_json, snapshot_from_json, snapshot_to_json
from qod_magics.core.plan import AddNode, Move, ReleaseNode, Scale, keeping_all
from qod_magics.core.policy import ExplainingPolicy
from qod_magics.core.snapshot import Snapshot, replace
from qod_magics.errors import SnapshotError
from qod_magics.policies import policy
from qod_magics.policies.stela import Options, Stela, one_more
from tests.policies.snapshots import snapshots
from tests.policies.stela.clusters import machine, snapshot_of
from tests.policies.stela.oracles import scenarios
from tests.raising import breaks
from tests.texts import tells

NAMES = ["stela", "storm-re-deal", "least-link-load", "most-link-load"]
SCENARIOS = {case["name"]: case for case in scenarios()}
LINEAR = SCENARIOS["linear"]
DIAMOND = SCENARIOS["diamond"]
ALL = {Move, Scale, ReleaseNode, AddNode}


def decided(name: str, *given: Snapshot) -> list[tuple[Any, ...]]:
    """The actions of the plans for snapshots in a row."""
    one, state, found = policy(name), None, []
    for snapshot in given:
        plan, state = one.decide(snapshot, state)
        found.append(plan.actions)
    return found


@pytest.mark.parametrize("case", scenarios(), ids=lambda case: case["name"])
def test_a_task_manager_that_joins_is_scaled_out_to(case: dict[str, Any]) -> None:
    before, after = snapshot_of(case), snapshot_of(case, new=["fresh"])
    first, second = decided("stela", before, after)
    assert first == ()
    expected = case["expect"]
    added = Counter(expected["targets"])
    assert {a.task: a.parallelism for a in second} == {task: case["k"] + n for task, n in added.items()}
    assert [(a.task, a.to) for a in second] == [(task, ("fresh",) * n) for task, n in added.items()]


def test_scaling_out_to_two_task_managers_deals_in_turn() -> None:
    (actions,) = decided("stela", snapshot_of(DIAMOND, new=["a", "b"]))
    assert actions[0] == Scale("k", 8, ("a", "b", "a", "b"))
    assert tells(actions[0].why, "ETP 100%", 1000, "congested", 2200, 1000)
    assert sum(len(a.to) for a in actions) == 8
    assert "sources" in actions[1].why


def test_a_task_manager_is_new_once() -> None:
    joined = snapshot_of(DIAMOND, new=["fresh"])
    assert [bool(actions) for actions in decided("stela", joined, joined, joined)] == [True, False, False]


def test_a_task_manager_that_left_and_joined_again_is_new_again() -> None:
    joined, without = snapshot_of(DIAMOND, new=["fresh"]), snapshot_of(DIAMOND)
    assert [bool(actions) for actions in decided("stela", joined, without, joined)] == [True, False, True]


def test_a_task_manager_that_hosts_something_already_is_no_request() -> None:
    moved = snapshot_of(DIAMOND, homes=[f"m{i}" for i in range(1, 8)])
    assert decided("stela", snapshot_of(DIAMOND), moved)[1] == ()


def test_a_new_task_manager_waits_for_a_warm_up() -> None:
    warming, warm = snapshot_of(DIAMOND, new=["fresh"], warming=True), snapshot_of(DIAMOND, new=["fresh"])
    first, second = decided("stela", warming, warm)
    assert first == ()
    assert second[0].task == "k"


def test_nothing_is_placed_on_standby_until_it_is_over() -> None:
    waiting = snapshot_of(DIAMOND)
    waiting = replace(waiting, task_managers=(*waiting.task_managers, machine("spare", standby=1)))
    first, second = decided("stela", waiting, snapshot_of(DIAMOND, new=["spare"]))
    assert first == ()
    assert second[0].to == ("spare",) * 4


def with_tasks(snapshot: Snapshot, **fields: Any) -> Snapshot:
    return replace(snapshot, tasks=tuple(replace(task, **fields) for task in snapshot.tasks))


def test_without_a_known_maximum_there_is_no_limit() -> None:
    given = snapshot_of(DIAMOND, new=["a", "b"])
    assert decided("stela", with_tasks(given, max_parallelism=None))[0][0].parallelism > 8
    assert decided("stela", with_tasks(given, max_parallelism=4)) == [()]


def test_tasks_with_state_keep_their_instances() -> None:
    given = snapshot_of(DIAMOND, new=["fresh"])
    tasks = tuple(replace(t, stateful=1 if t.id == "k" else None, max_parallelism=None) for t in given.tasks)
    (actions,) = decided("stela", replace(given, tasks=tasks))
    assert actions
    assert "k" not in {action.task for action in actions}
    divisible = tuple(replace(t, divisible=t.stateful) for t in tasks)
    assert decided("stela", replace(given, tasks=divisible)) == decided(
        "stela", with_tasks(given, max_parallelism=None)
    )


def test_rates_are_means_of_the_last_twenty_snapshots() -> None:
    quiet = snapshot_of({**DIAMOND, "offered": {"s": "100"}})
    loud = snapshot_of(DIAMOND, new=["fresh"])
    assert decided("stela", loud)[0][0].why.startswith("ETP 100% of 1000 rows/s")
    # 19 samples of 400 rows/s at the sink and one of 1,000, of which 2,200 arrived: 490 / 430, not congested
    assert "ETP" not in decided("stela", *[quiet] * 30, loud)[-1][0].why
    # of the samples before those nothing is left
    assert "1000 of them" in decided("stela", *[quiet] * 30, *[snapshot_of(DIAMOND)] * 19, loud)[-1][0].why


def test_samples_of_another_configuration_are_forgotten() -> None:
    quiet = snapshot_of({**DIAMOND, "offered": {"s": "100"}}, instances={"k": 5})
    assert "1000 of them" in decided("stela", *[quiet] * 5, snapshot_of(DIAMOND, new=["fresh"]))[-1][0].why


def test_the_capacity_of_idle_children_is_taken_from_their_share_of_the_time_at_work() -> None:
    given = snapshot_of(SCENARIOS["network_like"], new=["fresh"], busy=True)
    literal, _ = Stela().decide(given)
    known, _ = Stela(options=Options(projection="capacity")).decide(given)
    assert [action.task for action in literal.actions] == ["k", "s", "a"]
    assert [action.task for action in known.actions] == ["k", "s"]


# --- scale-in


def run(snapshot: Snapshot, actions: tuple[Any, ...]) -> Snapshot:
    """The cluster after moves and releases."""
    targets = {action.instance: action.to for action in actions if isinstance(action, Move)}
    gone = {action.id for action in actions if isinstance(action, ReleaseNode)}
    return replace(
        snapshot,
        task_managers=tuple(m for m in snapshot.task_managers if m.id not in gone),
        instances=tuple(replace(i, task_manager=targets.get(i.id, i.task_manager)) for i in snapshot.instances),
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wanted", [2, ["m1", "m4"], ["m1", "m4", "left-already"]], ids=str)
def test_task_managers_that_are_to_leave_are_emptied_and_released(name: str, wanted: Any) -> None:
    given = snapshot_of(LINEAR, leaving=wanted)
    ((*actions,),) = decided(name, given)
    released = [action.id for action in actions if isinstance(action, ReleaseNode)]
    assert len(released) == 2
    if wanted != 2:
        assert set(released) == {"m1", "m4"}
    assert actions[-2:] == [ReleaseNode(id) for id in released]
    moved = [action.instance for action in actions if isinstance(action, Move)]
    assert len(moved) == len(set(moved))
    after = run(given, tuple(actions))
    assert {i.task_manager for i in after.instances} <= {m.id for m in after.task_managers}
    # carried out and still asked for: nothing more happens
    assert decided(name, given, after)[1] == ()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_done_yet_is_asked_for_again_and_of_the_same_task_managers(name: str) -> None:
    given = snapshot_of(LINEAR, leaving=2)
    first, second = decided(name, given, given)
    assert {a for a in first if isinstance(a, ReleaseNode)} == {a for a in second if isinstance(a, ReleaseNode)}
    half = replace(given, task_managers=tuple(m for m in given.task_managers if ReleaseNode(m.id) != first[-1]))
    homes = [m.id for m in half.task_managers]
    kept = tuple(i if i.task_manager in homes else replace(i, task_manager=homes[0]) for i in half.instances)
    assert [a for a in decided(name, given, replace(half, instances=kept))[1] if isinstance(a, ReleaseNode)] == [
        first[-2]
    ]


@pytest.mark.parametrize("name", NAMES)
def test_another_request_of_the_same_number_is_another_one(name: str) -> None:
    given = snapshot_of(LINEAR, leaving=1)
    first = decided(name, given)[0]
    after = run(given, first)
    quiet = replace(after, leaving=0)
    assert any(isinstance(action, ReleaseNode) for action in decided(name, given, after, quiet, after)[3])


@pytest.mark.parametrize("name", NAMES)
def test_the_last_task_manager_stays(name: str) -> None:
    for wanted in (99, [f"m{i}" for i in range(1, 7)]):
        given = snapshot_of(LINEAR, leaving=wanted)
        actions = decided(name, given)[0]
        assert len([a for a in actions if isinstance(a, ReleaseNode)]) == 5
        assert len({i.task_manager for i in run(given, actions).instances}) == 1


def test_stela_lets_those_go_whose_instances_move_least() -> None:
    # one task on each machine: only b2, the bottleneck, has paths closed before it
    homes = [op for op in LINEAR["ops"] for _ in range(6)]
    given = snapshot_of(LINEAR, homes=LINEAR["ops"], leaving=2)
    given = replace(
        given, instances=tuple(replace(i, task_manager=home) for i, home in zip(given.instances, homes, strict=True))
    )
    actions = decided("stela", given)[0]
    assert [a.id for a in actions if isinstance(a, ReleaseNode)] == ["s", "b1"]
    assert "ETPSum 0.00 among 6 task managers" in actions[-2].why


@pytest.mark.parametrize("wanted", [True, -1, 1.5, "m1", [1], {"id": "m1"}])
def test_a_request_of_another_form_is_refused_in_one_line(wanted: Any) -> None:
    with pytest.raises(SnapshotError, check=breaks("type")):
        snapshot_from_json({**snapshot_to_json(snapshot_of(LINEAR)), "leaving": wanted})


def test_joining_comes_before_leaving() -> None:
    both = snapshot_of(DIAMOND, new=["fresh"], leaving=["m1"])
    first, second = decided("stela", both, both)
    assert {type(action) for action in first} == {Scale}
    assert second[-1] == ReleaseNode("m1")


# --- baselines


def test_the_re_deal_makes_use_of_a_new_task_manager_by_moves_alone() -> None:
    given = snapshot_of(DIAMOND, new=["fresh"])
    (actions,) = decided("storm-re-deal", given)
    assert {type(action) for action in actions} == {Move}
    hosted = Counter(i.task_manager for i in run(given, actions).instances)
    assert sorted(hosted.values()) == [3, 3, 3, 3, 4, 4, 4]


def test_link_load_moves_what_stela_would_add() -> None:
    given = snapshot_of(DIAMOND, new=["a", "b"])
    for name, first in (("least-link-load", "b1.1"), ("most-link-load", "s.1")):
        (actions,) = decided(name, given)
        assert [action.to for action in actions] == ["a", "b"] * 4
        assert actions[0].instance == first


# --- every policy, every snapshot


@given(st.lists(snapshots(wild=True), min_size=1, max_size=3), st.sampled_from(NAMES), st.integers(0, 2))
def test_plans_are_valid_shed_nothing_and_are_decided_again_alike(
    given: list[Snapshot], name: str, wanted: int
) -> None:
    one, state = policy(name), None
    for snapshot in given:
        snapshot = replace(snapshot, leaving=wanted)
        plan, new = one.decide(snapshot, state)
        assert (plan, new) == policy(name).decide(snapshot, state)
        state = new
        check_plan(plan, snapshot)
        assert refusals(plan, snapshot, ALL) == ()
        assert (plan.desired, plan.non_drop) == (keeping_all(snapshot).desired, keeping_all(snapshot).non_drop)
        assert plan_from_json(json.loads(json.dumps(plan_to_json(plan, {})))).actions == plan.actions
        assert snapshot_from_json(snapshot_to_json(snapshot)) == snapshot
        named = [a.instance for a in plan.actions if isinstance(a, Move)]
        assert len(named) == len(set(named))
        if isinstance(one, ExplainingPolicy):
            reasons = one.explain(snapshot, plan)
            assert all(reasons.task(task.id) for task in snapshot.tasks)
            assert all(reasons.task_manager(m.id) and reasons.numbers(m.id) for m in snapshot.task_managers)


def test_reasons() -> None:
    given = snapshot_of(DIAMOND)
    stela = policy("stela")
    plan, _ = stela.decide(given)
    assert isinstance(stela, ExplainingPolicy)
    reasons = stela.explain(given, plan)
    (etp, load) = reasons.task("k")
    assert tells(etp, "ETP 100%", 1000)
    assert tells(load, "congested", 2200, 1000)
    (etp, load) = reasons.task("s")
    assert tells(etp, "ETP 0%", 1000)
    assert tells(load, "not congested", 550, 550)
    assert reasons.task_manager("m3") == ["ETPSum 1.00, lower on 2 of 5 others"]
    assert reasons.numbers("m3") == {"etp_sum": 1.0}
    assert tells(reasons.shedding(["k"])["k"], "stela")
    assert reasons.supply("m3") == reasons.starved("m3") == ""


# --- for policies built on this one


def test_one_more_instance_goes_where_it_moves_most() -> None:
    star = one_more(snapshot_of(SCENARIOS["star"]))
    assert [(advice.task, advice.congested) for advice in star] == [("kA", True)]
    assert star[0].etp == pytest.approx(0.65)
    quiet = one_more(snapshot_of({**DIAMOND, "offered": {"s": "100"}}))
    assert [(advice.task, advice.etp, advice.congested) for advice in quiet] == [("s", 1.0, False)]
    full = snapshot_of(DIAMOND, instances=dict.fromkeys(DIAMOND["ops"], 8))
    assert one_more(full) == ()


def test_what_a_task_sheds_makes_it_congested() -> None:
    quiet = snapshot_of({**DIAMOND, "offered": {"s": "100"}})
    shedding = [replace(i, in_rate=i.in_rate / 2) if i.task == "k" else i for i in quiet.instances]
    assert one_more(replace(quiet, instances=tuple(shedding)))[0].task == "k"
