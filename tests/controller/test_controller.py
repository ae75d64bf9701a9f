from __future__ import annotations

import json

import pytest

from qod_magics.controller import Controller, InlineWorker, ManualClock, Recording, read
from qod_magics.core.json_form import plan_to_json, snapshot_from_json, snapshot_to_json
from qod_magics.core.load import current_accuracy
from qod_magics.core.plan import AddNode, Move, Plan, Scale, Stop
from qod_magics.core.runtime import Event
from qod_magics.core.snapshot import replace
from qod_magics.errors import LostError, UsageProblem
from qod_magics.policies.stream_economics import StreamEconomics
from tests.controller.scripted import FixedPolicy, Takes, bench, chain, place, seen
from tests.raising import breaks
from tests.texts import tells


def kinds(cycle):
    return [event.kind for event in cycle.events]


def test_a_cycle_observes_decides_and_applies_the_plan_of_the_policy():
    b = bench(seen(chain(rate=2000.0)))
    cycle = b.controller.step()
    plan, settings = b.runtime.applied[0]
    assert cycle.applied
    assert plan == cycle.plan == StreamEconomics().decide(cycle.snapshot)[0]
    assert settings == cycle.decision.dials == b.controller.dials
    assert b.controller.last is cycle


def test_the_policy_gets_the_state_that_it_gave():
    states = []

    class Counting(FixedPolicy):
        def decide(self, snapshot, state):
            states.append(state)
            return super().decide(snapshot, state)

    b = bench(policy=Counting(), warm_up_timeout_s=0.0)
    b.cycles(3)
    assert states[-1] == 2
    b.controller.policy = Counting()
    b.cycles(1)
    assert states[-1] is None


def test_the_policy_sees_and_the_cycle_holds_the_warm_ups():
    policy = FixedPolicy()
    b = bench(policy=policy)
    first, second = b.cycles(2)
    assert [i.warming_up for i in first.snapshot.instances] == [True, True]
    assert policy.seen[0] == first.snapshot
    assert [i.warming_up for i in second.snapshot.instances] == [False, False]
    assert kinds(second) == ["warm-up-over", "warm-up-over"]


def test_a_move_that_was_applied_is_warming_up_until_it_has_arrived():
    there = place(chain(), "Snk.1", "tm2")
    move = FixedPolicy(actions=(Move("Snk.1", "tm2", "tm1 has no room"),))
    b = bench(seen(), seen(), seen(), seen(there), seen(there), policy=move)
    b.cycles(2)
    move.more = {}
    waiting, arrived, over = b.cycles(3)
    assert [c.snapshot.instances[1].warming_up for c in (waiting, arrived, over)] == [True, True, False]


# ---- what goes wrong


def test_observe_that_raises_costs_its_cycle_only_and_is_said_once():
    broken = LostError("tm1 is gone; start it again")
    b = bench(seen(), broken, broken, seen())
    good, bad, again, recovered = b.cycles(4)
    assert bad.decision is None
    assert tells(bad.skipped, "observe()", "tm1 is gone; start it again")
    assert (kinds(bad), kinds(again)) == (["observe-failed"], [])
    assert "observe-failed-over" in kinds(recovered)
    assert good.applied
    assert recovered.applied
    assert len(b.runtime.applied) == 2


def test_observe_that_hangs_is_not_called_again_and_its_events_are_not_lost():
    late = seen(None, Event("task-manager-lost", {"task_manager": "tm9"}))
    b = bench(seen(), Takes(27.0, late), seen())
    cycles = b.cycles(7)
    assert b.workers.overlaps == []
    assert [cycle.decision is None for cycle in cycles] == [False, True, True, True, True, True, False]
    assert tells(cycles[1].skipped, "observe()", "10 s")
    assert [kinds(c) for c in cycles[1:6]] == [["observe-slow"], [], [], [], []]
    assert kinds(cycles[6])[:2] == ["task-manager-lost", "observe-slow-over"]
    assert tells(cycles[6].events[1].detail["why"], "observe()", "27.0 s")
    assert b.runtime.observed == 3


def test_a_late_observation_is_too_old_to_decide_on():
    old = place(chain(), "Snk.1", "tm2")
    b = bench(Takes(11.0, seen(old)), seen())
    *_, third = b.cycles(3)
    assert third.snapshot.instances[1].task_manager == "tm1"
    assert b.runtime.observed == 2


def test_how_long_observe_may_take_can_be_set():
    b = bench(Takes(4.0, seen()), observe_timeout_s=3.0)
    assert b.controller.step().decision is None


def test_an_observe_that_takes_a_while_but_not_too_long_is_fine():
    assert bench(Takes(9.0, seen())).controller.step().applied


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (replace(chain(), instances=()), "has no instance"),
        (replace(chain(), streams=()), "streams has no row"),
        (chain(cpu=float("nan")), "is not a finite number"),
        (place(chain(), "Snk.1", "tm7"), "tm7"),
        (None, "NoneType"),
    ],
)
def test_an_invalid_snapshot_is_refused_by_name(snapshot, words):
    observation = replace(seen(), snapshot=snapshot, events=(Event("task-manager-up", {"task_manager": "tm2"}),))
    b = bench(observation, seen())
    bad, good = b.cycles(2)
    assert "snapshot" in bad.skipped
    assert words in bad.skipped
    assert kinds(bad) == ["task-manager-up", "snapshot-invalid"]
    assert "snapshot-invalid-over" in kinds(good)
    assert good.applied


def test_a_policy_that_raises_leaves_the_dials_and_the_loop_alone():
    policy = FixedPolicy(desired=0.7)
    b = bench(policy=policy)
    b.cycles(2)
    before = b.controller.dials
    policy.error = ZeroDivisionError("division by zero")
    bad, _ = b.cycles(2)
    assert tells(bad.skipped, "fixed", "ZeroDivisionError")
    assert b.controller.dials == before
    assert len(b.runtime.applied) == 2
    policy.error = None
    assert b.cycles(1)[0].applied


def test_the_snapshot_that_broke_the_policy_is_kept_in_the_event():
    policy = FixedPolicy()
    policy.error = ValueError("no")
    event = bench(policy=policy).controller.step().events[-1]
    assert snapshot_from_json(event.detail["snapshot"]) == policy.seen[-1]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"desired": 1.2}, "desired['Src'] is 1.2"),
        ({"desired": float("nan")}, "desired['Src'] is nan"),
    ],
)
def test_a_plan_that_makes_no_sense_is_not_applied(more, words):
    b = bench(policy=FixedPolicy(**more))
    assert words in b.controller.step().skipped
    assert b.runtime.applied == []


def test_a_plan_without_a_row_for_a_stream_is_not_applied():
    class Forgetful(FixedPolicy):
        def decide(self, snapshot, state):
            plan, state = super().decide(snapshot, state)
            return Plan(plan.desired, {(None, "Src"): 1.0}), state

    assert tells(bench(policy=Forgetful()).controller.step().skipped, "non_drop", "'Src'", "'Snk'")


def test_a_plan_with_a_row_for_a_stream_that_is_not_there_is_not_applied():
    class Inventive(FixedPolicy):
        def decide(self, snapshot, state):
            plan, state = super().decide(snapshot, state)
            return Plan(plan.desired, {**plan.non_drop, ("Snk", "Src"): 1.0}), state

    skipped = bench(policy=Inventive()).controller.step().skipped
    assert tells(skipped, "non_drop", "'Snk'", "'Src'")


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (Move("Snk.7", "tm2"), "'Snk.1'"),
        (Move("Snk.1", "tm7"), "'tm7'"),
        (Scale("Snk", 2), "Scale"),
        (Stop("Snk.1"), "Stop"),
        (AddNode("small"), "AddNode"),
    ],
)
def test_an_action_that_can_not_be_carried_out_is_refused_once_and_the_rest_of_the_plan_holds(action, why):
    good = Move("Src.1", "tm2", "to make room")
    b = bench(policy=FixedPolicy(desired=0.5, actions=(good, action)))
    first, second = b.cycles(2)
    (event,) = [event for event in first.events if event.kind == "action-refused"]
    assert event.detail["action"] == type(action).__name__
    assert why in event.detail["why"]
    assert "action-refused" not in kinds(second)
    assert first.applied
    assert first.plan.actions == (good, action)
    assert [plan.actions for plan, _ in b.runtime.applied] == [(good,), (good,)]
    (move,) = [entry for entry in first.entries if entry.kind == "move"]
    assert tells(move.words, "Src.1", "tm1", "tm2", "to make room")
    if isinstance(action, Move | Stop) and action.instance == "Snk.1":
        assert "refused" in b.controller.why("Snk.1")


def test_apply_that_raises_is_said_and_the_dials_in_force_are_the_ones_before():
    policy = FixedPolicy(desired=0.9)
    b = bench(policy=policy, applying=[None, RuntimeError("no route"), None])
    b.cycles(1)
    policy.desired = 0.5
    bad, good = b.cycles(2)
    assert not bad.applied
    assert bad.decision is not None
    assert "apply() failed: RuntimeError: no route" in [e.detail["why"] for e in bad.events]
    assert good.applied
    assert b.controller.dials.keep[None, "Src"] == 0.5


def test_a_slow_apply_is_bounded_and_never_doubled():
    policy = FixedPolicy(desired=0.9)
    b = bench(policy=policy, applying=[Takes(13.0), None])
    first, second, third, fourth = b.cycles(4)
    assert b.workers.overlaps == []
    assert [c.applied for c in (first, second, third, fourth)] == [False, False, False, True]
    assert tells(first.events[-1].detail["why"], "apply()", "cycle 1")
    assert "apply-slow" not in kinds(second)
    assert "apply-slow-over" in kinds(fourth)
    assert len(b.runtime.applied) == 2


def test_dials_of_a_slow_apply_count_once_it_has_ended():
    b = bench(policy=FixedPolicy(desired=0.9), applying=[Takes(7.0)])
    b.cycles(1)
    assert b.controller.dials is None
    b.controller.pause()
    b.cycles(2)
    assert b.controller.dials.keep[None, "Src"] == 0.9


def test_a_subscriber_that_raises_is_said_and_harms_nobody():
    b = bench()
    got = []

    def bad(cycle):
        raise KeyError("view")

    b.controller.subscribe(bad)
    unsubscribe = b.controller.subscribe(got.append)
    cycles = b.cycles(2)
    assert got == cycles
    assert any("raised KeyError: 'view'" in entry.words for entry in b.controller.log.entries())
    unsubscribe()
    b.cycles(1)
    assert len(got) == 2


# ---- recommend only


def test_a_paused_controller_recommends():
    b = bench(policy=FixedPolicy(desired=0.5, actions=(Move("Snk.1", "tm2"),)))
    b.controller.pause()
    first, second = b.cycles(2)
    assert first.plan.moves == (Move("Snk.1", "tm2"),)
    assert not first.applied
    assert b.runtime.applied == []
    assert "paused" in kinds(first)
    assert tells(first.entries[-1].words, "Snk.1", "tm1", "tm2")
    assert "recommended" in b.controller.why("Snk")
    assert not second.snapshot.instances[1].warming_up  # nothing was moved
    b.controller.resume()
    assert b.cycles(1)[0].applied


# ---- recording


def test_snapshots_say_when_they_were_measured_also_when_they_are_read_again():
    b = bench()
    first, second = (cycle.snapshot for cycle in b.cycles(2))
    assert second.at_s - first.at_s == pytest.approx(5.0)
    assert snapshot_from_json(json.loads(json.dumps(snapshot_to_json(second)))).at_s == second.at_s
    assert snapshot_from_json(snapshot_to_json(chain())).at_s is None  # as in older recordings


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "run.jsonl"


def test_a_recorded_plan_is_what_the_policy_gives_for_the_recorded_snapshot(path):
    b = bench(
        seen(chain(rate=2000.0, cpu=85.0)), seen(chain(rate=3000.0, read=800.1, cpu=85.3)), recording=Recording(path)
    )
    b.controller.annotate(phase="overload")
    b.cycles(4)
    b.controller.close()
    lines = list(read(path))
    assert len(lines) == 4
    for number, line in enumerate(lines, 1):
        assert list(line)[:6] == ["at", "snapshot", "plan", "applied", "measured", "events"]
        given = snapshot_from_json(line["snapshot"])
        plan, _ = StreamEconomics().decide(given)
        assert json.loads(json.dumps(plan_to_json(plan, current_accuracy(given)))) == line["plan"]
        assert (line["cycle"], line["phase"], line["period_s"], line["policy"]) == (
            number,
            "overload",
            5.0,
            "stream-economics",
        )
        assert line["dials"]["keep"][0]["to"] == "Src"
    assert [line["at"][-10:] for line in lines] == ["00:00.000Z", "00:05.000Z", "00:10.000Z", "00:15.000Z"]


def test_events_of_cycles_without_a_decision_come_with_the_next_line(path):
    lost = replace(seen(), snapshot=None, events=(Event("task-manager-lost", {"task_manager": "tm2"}),))
    b = bench(seen(), lost, seen(), recording=Recording(path))
    b.cycles(3)
    b.controller.close()
    _, second = read(path)
    found = [event["kind"] for event in second["events"]]
    assert found[:3] == ["task-manager-lost", "snapshot-invalid", "snapshot-invalid-over"]
    assert second["cycle"] == 3


def test_events_that_no_line_took_are_recorded_at_the_end(path):
    b = bench(seen(), LostError("tm1 is gone"), recording=Recording(path))
    b.cycles(3)
    b.controller.close()
    first, last = read(path)
    assert (last["repeated"], last["applied"], last["plan"]) == (True, False, first["plan"])
    assert last["events"] == [{"kind": "observe-failed", "why": "observe() failed: tm1 is gone"}]


def test_a_recording_that_can_not_be_written_is_said_once_and_catches_up(tmp_path):
    path = tmp_path / "run.jsonl"
    path.mkdir()
    b = bench(recording=Recording(path))
    _, second = b.cycles(2)
    assert second.applied
    assert b.kinds().count("recording-failed") == 1
    path.rmdir()
    b.cycles(2)
    b.controller.close()
    lines = list(read(path))
    assert [event["kind"] for event in lines[0]["events"]][:2] == ["warm-up", "warm-up"]  # those of the first cycle
    assert [line["cycle"] for line in lines] == [3, 4]
    assert b.kinds().count("recording-failed-over") == 1


def test_a_full_disk_does_not_end_the_loop():
    b = bench(recording=Recording("/dev/full"))
    cycles = b.cycles(3)
    assert all(cycle.applied for cycle in cycles)
    (entry,) = b.controller.log.entries(kind="recording-failed")
    assert tells(entry.words, "/dev/full", "[Errno 28]")


def test_annotations_do_not_take_the_names_of_the_format():
    b = bench()
    with pytest.raises(UsageProblem, check=breaks("free name", name="plan")):
        b.controller.annotate(plan="b")
    b.controller.annotate(phase="a", run=1)
    b.controller.annotate(phase=None)
    assert b.controller.step().annotations == {"run": 1}


@pytest.mark.parametrize("period_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_period_is_a_number_of_seconds(period_s):
    with pytest.raises(UsageProblem, check=breaks("positive")):
        bench(period_s=period_s)


def test_starvation_is_an_event_with_its_numbers(path):
    snapshot = chain(rate=1000.0, read=1000.0, cpu=99.0, minimum=0.9, managers=1)
    snapshot = replace(snapshot, task_managers=(replace(snapshot.task_managers[0], cpu=200.0),))
    b = bench(seen(snapshot), recording=Recording(path), warm_up_timeout_s=5.0)
    _, second, third = b.cycles(3)
    (event,) = [event for event in second.events if event.kind == "starved"]
    assert event.detail["task_manager"] == "tm1"
    assert tells(event.detail["why"], "tm1", "89.1 %")
    assert "starved" not in kinds(third)


def test_the_controller_works_on_a_machine_thread_and_inline_alike():
    clock = ManualClock()
    b = bench()
    for worker in (InlineWorker, None):
        options = {"worker": worker} if worker else {}
        controller = Controller(b.runtime, StreamEconomics(), clock=clock, **options)
        assert controller.step().applied
        controller.close()


def test_shedders_are_opened_also_after_a_cycle_without_a_plan():
    b = bench(seen(), LostError("tm1 is gone"), policy=FixedPolicy(desired=0.5))
    b.cycles(2)
    b.controller.open_shedders()
    _, dials = b.runtime.applied[-1]
    assert set(dials.keep.values()) == {1.0}
    assert b.controller.dials == dials


def test_a_pause_during_a_cycle_holds_from_the_next_one_on():
    """The policy decides on it, so the plan must be applied by it: a stage would wait for an action never begun."""

    class Pausing(FixedPolicy):
        def decide(self, snapshot, state):
            b.controller.pause()
            return super().decide(snapshot, state)

    b = bench(policy=Pausing(desired=0.5))
    first, second = b.cycles(2)
    assert (first.paused, first.applied, first.snapshot.paused) == (False, True, False)
    assert (second.paused, second.applied, second.snapshot.paused) == (True, False, True)


@pytest.mark.parametrize(("period_s", "observe_s", "apply_s"), [(1.0, 5.0, 4.0), (5.0, 10.0, 6.0), (0.2, 5.0, 4.0)])
def test_a_cycle_waits_no_shorter_than_a_runtime_does_for_a_task_manager_that_does_not_answer(
    period_s, observe_s, apply_s
):
    b = bench(Takes(observe_s - 0.1, seen()), applying=[Takes(apply_s - 0.1)], period_s=period_s)
    (cycle,) = b.cycles(1)
    assert cycle.applied


def test_notes_made_before_the_recording_changes_are_in_the_log(path):
    b = bench(recording=Recording(path))
    b.cycles(1)
    b.controller.pause()
    b.controller.record(None)
    assert len(b.controller.log.entries(kind="paused")) == 1
    assert [event["kind"] for event in [*read(path)][-1]["events"]] == ["paused"]
