"""The judge: what did harm is taken back, what did not help is left alone, a changed load is no evidence."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from qod_magics.core.plan import AddNode, Move, Scale, keeping_all
from qod_magics.core.snapshot import replace
from qod_magics.policies.henge.utility import Allowed, Reverted, Waits
from qod_magics.policies.stack import Stack
from qod_magics.policies.stack.stage import Demand, Judge, Lever, Proposal, Trial, View, utilities
from qod_magics.policies.stream_economics.policy import reactive, staying
from tests.policies.stack.test_stages import snapshot

MOVE = Move("Q1.1", "tm2")


def view(at_s, accuracy, *, load=1.0, **task):
    """A query at a planned accuracy, at a time."""
    given = snapshot([1, 1], [10.0 * load, 40.0 * load], **task)
    plan = replace(keeping_all(given), desired={"Src": 1.0, "Q1": accuracy})
    return View(given, at_s, plan, Demand.of(given), {}, None)


def tried(*seen):
    """The verdicts on a move that is proposed first, and on nothing more after it."""
    judge, trial, verdicts = Judge(), Trial(), []
    for number, each in enumerate(seen):
        verdict, trial = judge.weighed(trial, each, (MOVE,) if number == 0 else ())
        verdicts.append(verdict)
    return verdicts, trial


def test_a_move_that_did_harm_is_taken_back():
    (first, second), _ = tried(view(0.0, 0.8), view(20.0, 0.5))
    assert isinstance(first, Allowed)
    assert isinstance(second, Reverted)
    assert second.actions == (Move("Q1.1", "tm1"),)
    assert "did harm" in second.actions[0].why


def test_a_move_that_helped_stays():
    (_, second), trial = tried(view(0.0, 0.5), view(20.0, 0.9))
    assert second is None
    verdict, _ = Judge().weighed(trial, view(25.0, 0.9), (MOVE,))
    assert isinstance(verdict, Allowed)


def test_a_move_that_did_not_help_is_left_alone_for_a_while():
    _, trial = tried(view(0.0, 0.8), view(20.0, 0.8))
    verdict, trial = Judge().weighed(trial, view(25.0, 0.8), (MOVE,))
    assert isinstance(verdict, Waits)
    assert verdict.why
    verdict, _ = Judge().weighed(trial, view(400.0, 0.8), (MOVE,))
    assert isinstance(verdict, Allowed)


def test_where_the_load_has_changed_nothing_is_judged():
    (_, second), trial = tried(view(0.0, 0.8), view(20.0, 0.4, load=2.0))
    assert second is None
    assert trial.guard.trial is None


@pytest.mark.parametrize("gone", ["task manager", "standing by", "instance"])
def test_what_can_not_be_taken_back_is_not_judged(gone):
    """An instance or a task manager left meanwhile: the plan named it all the same."""
    judge, before, after = Judge(), view(0.0, 0.8), view(20.0, 0.3)
    first, second = after.snapshot.task_managers
    changed = {
        "task manager": {"task_managers": (replace(second, cpu=50.0),)},
        "standing by": {"task_managers": (replace(first, standby=1), second)},
        "instance": {"instances": tuple(replace(i, id=f"{i.task}.2") for i in after.snapshot.instances)},
    }[gone]
    given = replace(after.snapshot, **changed)
    moved = tuple(replace(i, task_manager="tm2") for i in given.instances)
    later = replace(after, snapshot=replace(given, instances=moved))
    _, trial = judge.weighed(Trial(), before, (MOVE,))
    assert isinstance(judge.weighed(trial, after, ())[0], Reverted)
    verdict, trial = judge.weighed(trial, later, ())
    assert (verdict, trial.guard.trial) == (None, None)


def test_a_rescale_is_undone_by_the_number_of_instances_before():
    judge = Judge()
    _, trial = judge.weighed(Trial(), view(0.0, 0.8), (Scale("Q1", 3),))
    verdict, _ = judge.weighed(trial, view(20.0, 0.3), ())
    assert verdict is not None
    assert verdict.actions == (Scale("Q1", 1),)


def test_task_managers_are_not_judged():
    verdict, trial = Judge().weighed(Trial(), view(0.0, 0.8), (AddNode("local"),))
    assert verdict is None
    assert trial.guard.trial is None


@pytest.mark.parametrize(
    ("accuracy", "task", "share"),
    [
        (1.0, {}, 1.0),
        (0.5, {}, 0.5),
        (0.5, {"max_latency_s": 2.0, "latency_p95_s": 4.0}, 0.25),
        (0.5, {"max_latency_s": 2.0, "latency_p95_s": 1.0}, 0.5),
        (0.5, {"max_latency_s": 2.0}, 0.5),
        (0.5, {"utility": 10.0}, 0.5),
    ],
)
def test_utility_is_of_accuracy_and_latency(accuracy, task, share):
    found = utilities(view(0.0, accuracy, **task))["Q1"]
    assert found.share == pytest.approx(share)
    assert found.most == task.get("utility", 1.0)


@dataclass(frozen=True)
class Moves:
    """A placement stage that asks for a move to tm2 whenever the instance is elsewhere."""

    name = "place"
    owns = frozenset({Lever.PLACEMENT})

    def propose(self, view):
        home = next(each.task_manager for each in view.snapshot.instances if each.id == "Q1.1")
        return Proposal((MOVE,) if home == "tm1" else ())


def test_a_stack_takes_back_what_its_stage_did_and_waits_before_it_does_so_again():
    """After the move the query gets half of the rows that it got before, at the same input."""
    one = Stack("test", shedding=reactive(), staying=staying(), stages=(Moves(),), judge=Judge(), settle_s=10.0)
    state, done = None, []
    before = snapshot([1, 1], [10.0, 40.0], latency_p95_s=1.0, max_latency_s=2.0)
    after = snapshot([1, 2], [10.0, 40.0], latency_p95_s=8.0, max_latency_s=2.0)
    now = before
    for cycle in range(20):
        plan, state = one.decide(replace(now, at_s=5.0 * cycle), state)
        done += [(5.0 * cycle, action.to) for action in plan.actions]
        for action in plan.actions:
            now = after if action.to == "tm2" else before
        if plan.actions and plan.actions[0].to == "tm1":
            assert "judge" in plan.stages
    assert [to for _, to in done] == ["tm2", "tm1"]
