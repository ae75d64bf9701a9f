"""The stack: who owns what, one action at a time, and accuracies that are those of Stream Economics."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.controller import read
from qod_magics.core.json_form import plan_from_json, snapshot_from_json
from qod_magics.core.plan import AddNode, Move, ReleaseNode, Scale
from qod_magics.core.snapshot import replace
from qod_magics.errors import UsageProblem
from qod_magics.policies import policy
from qod_magics.policies.stack import Stack, auto
from qod_magics.policies.stack.stage import LEVER_OF, TIMEOUT_S, Lever, Proposal, UnderWay
from qod_magics.policies.stream_economics.policy import reactive, staying
from qod_magics.simulator import Simulation, simulate
from tests.policies.snapshots import snapshots
from tests.raising import breaks


@dataclass(frozen=True)
class Asks:
    """A stage that always asks for the same."""

    name: str
    owns: frozenset
    actions: tuple = ()

    def propose(self, view):
        return Proposal(self.actions)


def stack(*stages, **more):
    return Stack("test", shedding=reactive(), staying=staying(), stages=stages, **more)


def test_a_lever_has_one_owner():
    first, second = Asks("one", frozenset({Lever.NODES})), Asks("two", frozenset({Lever.NODES}))
    with pytest.raises(ValueError, match=r"one.*two.*nodes"):
        stack(first, second)
    with pytest.raises(ValueError, match=r"shed.*one.*shedding"):
        stack(Asks("one", frozenset({Lever.SHEDDING})))


def test_every_action_has_a_lever_and_each_lever_of_auto_an_owner():
    assert set(LEVER_OF.values()) == set(Lever) - {Lever.SHEDDING}
    assert {Lever.SHEDDING, Lever.PLACEMENT, Lever.PARALLELISM, Lever.NODES} <= set(auto().owners)


def test_a_stage_pulls_its_own_levers_only():
    wrong = stack(Asks("one", frozenset({Lever.NODES}), (Scale("Q", 2),)))
    with pytest.raises(ValueError, match="one"):
        wrong.decide(calm(), None)


@given(snapshots())
def test_accuracies_are_those_of_stream_economics(snapshot):
    plan, _ = auto().decide(snapshot, None)
    alone, _ = reactive().decide(snapshot, None)
    assert plan.desired == alone.desired
    assert plan.non_drop == alone.non_drop
    assert plan.starved == alone.starved
    assert plan.actions[: len(alone.actions)] == alone.actions


@given(snapshots())
def test_while_an_action_is_under_way_minimums_still_hold(snapshot):
    """Accuracies are then those without moves, never below those of a policy that could not move either."""
    one = stack(Asks("one", frozenset({Lever.NODES}), (AddNode("local"),)))
    at = replace(snapshot, at_s=0.0, instances=tuple(replace(i, warming_up=False) for i in snapshot.instances))
    _, state = one.decide(at, None)
    later = replace(snapshot, at_s=5.0)
    if state.under_way is None or state.under_way.for_minimums:
        return
    plan, _ = one.decide(later, state)
    alone, _ = staying().decide(later, None)
    assert plan.desired == alone.desired
    assert not plan.actions


@given(st.data())
def test_at_most_one_action_is_under_way(data):
    """Over any sequence of snapshots of one application, whatever its effects."""
    first = data.draw(snapshots())
    names = [manager.id for manager in first.task_managers]
    wants = (AddNode("local"),) if data.draw(st.booleans()) else (ReleaseNode(names[0]),)
    one = stack(Asks("one", frozenset({Lever.NODES}), wants), settle_s=10.0)
    state, asked = None, None
    for cycle in range(40):
        now_s = 5.0 * cycle
        moved = tuple(
            replace(
                i,
                warming_up=False,
                task_manager=data.draw(st.sampled_from(names)) if cycle % 7 == 0 else i.task_manager,
            )
            for i in first.instances
        )
        snapshot = replace(first, at_s=now_s, instances=moved)
        plan, state = one.decide(snapshot, state)
        actions = [action for action in plan.actions if not isinstance(action, Move)]
        if actions:
            assert asked is None or now_s - asked > TIMEOUT_S
            asked = now_s


def test_an_action_without_effect_is_not_tried_again_at_once():
    one = stack(Asks("one", frozenset({Lever.NODES}), (AddNode("local"),)))
    first = calm()
    asked, state = [], None
    for cycle in range(80):
        plan, state = one.decide(replace(first, at_s=5.0 * cycle), state)
        if plan.actions:
            asked.append(5.0 * cycle)
    gaps = [b - a for a, b in pairwise(asked)]
    assert gaps
    assert min(gaps) > TIMEOUT_S + 100


def test_the_effect_ends_an_action_and_the_next_waits_until_it_settles():
    one = stack(Asks("one", frozenset({Lever.PARALLELISM}), (Scale("Q", 2),)), settle_s=20.0)
    first = calm()
    _, state = one.decide(replace(first, at_s=0.0), None)
    more = replace(first, instances=(*first.instances, replace(first.instances[0], id="Q.2")))
    plan, state = one.decide(replace(more, at_s=5.0), state)
    assert not plan.actions
    assert "settles" in plan.stages["one"]
    for at_s in (10.0, 15.0, 20.0):
        plan, state = one.decide(replace(more, at_s=at_s), state)
        assert not plan.actions
    plan, _ = one.decide(replace(more, at_s=25.0), state)
    assert plan.actions


def test_a_task_manager_that_joined_is_used_at_once():
    one = stack(Asks("one", frozenset({Lever.NODES}), (AddNode("local"),)), settle_s=20.0)
    first = calm()
    _, state = one.decide(replace(first, at_s=0.0), None)
    more = replace(first, task_managers=(*first.task_managers, replace(first.task_managers[0], id="new")))
    plan, _ = one.decide(replace(more, at_s=5.0), state)
    assert plan.actions


def test_nothing_disruptive_begins_while_an_instance_warms_up():
    one = stack(Asks("one", frozenset({Lever.NODES}), (AddNode("local"),)))
    first = calm()
    warm = replace(first, instances=tuple(replace(i, warming_up=True) for i in first.instances), at_s=0.0)
    plan, _ = one.decide(warm, None)
    assert not plan.actions
    assert "warms up" in plan.stages["one"]


def test_the_first_stage_has_precedence():
    one = Asks("one", frozenset({Lever.NODES}), (AddNode("a"),))
    two = Asks("two", frozenset({Lever.PARALLELISM}), (Scale("Q", 2),))
    plan, _ = stack(one, two).decide(replace(calm(), at_s=0.0), None)
    assert plan.actions == (AddNode("a"),)
    plan, _ = stack(one, two, paused=("one",)).decide(replace(calm(), at_s=0.0), None)
    assert plan.actions == (Scale("Q", 2),)


def test_a_paused_stage_proposes_nothing_and_keeps_its_memory():
    policy_ = stack(Asks("one", frozenset({Lever.NODES}), (AddNode("a"),)))
    paused = policy_.pausing("one")
    assert (paused.paused, paused.pausing("one", False).paused) == ({"one"}, frozenset())
    plan, _ = paused.decide(replace(calm(), at_s=0.0), None)
    assert not plan.actions
    with pytest.raises(UsageProblem, check=breaks("exists", name="on")):
        policy_.pausing("on")


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        (Move("Q.1", "tm2"), {}, {"Q.1": "tm2"}),
        (Move("gone", "tm2"), {}, {}),
        (Scale("Q", 1), {}, {}),
    ],
)
def test_effects(action, before, after):
    first = calm()
    seen = replace(
        first, instances=tuple(replace(i, task_manager=after.get(i.id, i.task_manager)) for i in first.instances)
    )
    assert UnderWay("one", (action,), 0.0, frozenset({"tm1"})).is_done(seen)


def test_task_managers_asked_for_together_are_counted_and_only_the_missing_ones_have_failed():
    first = calm()
    asked = UnderWay("one", (AddNode("a"), AddNode("b")), 0.0, frozenset({"tm1"}))
    one = replace(first, task_managers=(*first.task_managers, replace(first.task_managers[0], id="n1")))
    two = replace(one, task_managers=(*one.task_managers, replace(first.task_managers[0], id="n2")))
    waiting = replace(two.task_managers[2], standby=1.0)
    assert asked.not_done(first) == (AddNode("a"), AddNode("b"))
    assert asked.not_done(one) == (AddNode("b"),)
    assert asked.not_done(replace(two, task_managers=(*one.task_managers, waiting))) == (AddNode("b"),)
    assert asked.is_done(two)


def test_a_later_stage_starts_task_managers_beside_moves_and_does_nothing_else():
    moves = Asks("one", frozenset({Lever.PLACEMENT}), (Move("Q.1", "tm2"),))
    nodes = Asks("two", frozenset({Lever.NODES}), (AddNode("a"), ReleaseNode("tm2")))
    plan, state = stack(moves, nodes).decide(replace(calm(), at_s=0.0), None)
    assert plan.actions == (Move("Q.1", "tm2"), AddNode("a"))
    assert set(plan.stages) == {"one", "two"}
    plan, _ = stack(moves, nodes).decide(replace(calm(), at_s=5.0), state)
    assert not plan.actions


def test_one_that_warms_up_does_not_stop_a_large_cluster():
    one = stack(Asks("one", frozenset({Lever.NODES}), (AddNode("local"),)))
    instance = calm().instances[0]
    names = [f"Q.{n + 1}" for n in range(60)]
    for warm, begins in ((1, True), (2, False)):
        many = tuple(replace(instance, id=name, warming_up=n < warm) for n, name in enumerate(names))
        plan, _ = one.decide(replace(calm(), instances=many, at_s=0.0), None)
        assert bool(plan.actions) == begins


SCENARIO = {
    "seed": 1,
    "duration_s": 200,
    "topics": [{"topic": "trips", "rate": [[0, 500], [40, 500], [41, 1000], [200, 1000]]}],
    "task_managers": [{"id": "tm1"}, {"id": "tm2"}],
    "events": [{"at_s": 80, "add_task_manager": "tm2"}],
    "tasks": [
        {"id": "Src", "topic": "trips", "work_us": 150},
        {"id": "Q1", "upstream": ["Src"], "priority": 1, "min_accuracy": 0.2, "work_us": 500},
        {"id": "Q2", "upstream": ["Src"], "priority": 2, "min_accuracy": 0.3, "work_us": 600},
    ],
    "policy": "auto",
}


def test_a_task_manager_that_joins_is_used_where_stream_economics_alone_would_go_on_shedding():
    mine = simulate(Simulation.from_json(SCENARIO))
    alone = simulate(Simulation.from_json({**SCENARIO, "policy": "stream-economics-reactive"}))
    assert mine.cycles[-1].plan.desired["Q1"] == 1.0
    assert alone.cycles[-1].plan.desired["Q1"] < 0.5
    moves = [action for cycle in mine.cycles for action in cycle.plan.actions]
    assert len(moves) == 1


@pytest.mark.parametrize(("more", "released"), [([], 0), ([{"id": "tm3", "off": True}], 1)])
def test_what_could_not_be_started_again_is_not_released(more, released):
    idle = {**SCENARIO, "events": [], "topics": [{"topic": "trips", "rate": 200}], "duration_s": 300}
    managers = [*SCENARIO["task_managers"], *more]
    run = simulate(Simulation.from_json({**idle, "task_managers": managers}))
    actions = [action for cycle in run.cycles for action in cycle.plan.actions]
    assert sum(isinstance(action, ReleaseNode) for action in actions) == released
    assert bool(actions) == bool(released)


def test_a_recording_read_in_order_gives_its_plans_again(tmp_path):
    simulate(Simulation.from_json(SCENARIO), record=tmp_path / "run.jsonl", keep=False)
    state, again = None, policy("auto")
    for line in read(tmp_path / "run.jsonl"):
        plan, state = again.decide(snapshot_from_json(line["snapshot"]), state)
        recorded = plan_from_json(line["plan"])
        assert plan.desired == recorded.desired
        assert plan.actions == recorded.actions
        assert plan.stages == recorded.stages


def calm():
    """A query on one task manager, with nothing to do."""
    return snapshot_from_json(
        {
            "task_managers": [{"id": "tm1", "cores": 1, "cpu": 20}],
            "tasks": [{"id": "Q", "upstream": [], "external_rate": 10, "priority": 1, "min_accuracy": 0.1}],
            "streams": [],
            "instances": [
                {"id": "Q.1", "task": "Q", "task_manager": "tm1", "in_rate": 10, "cpu": 20, "warming_up": False}
            ],
        }
    )
