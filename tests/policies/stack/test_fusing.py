"""Neighbours that become one query while all is calm, and part where one of them must leave."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.core.fusing import fused_streams, neighbours, within_a_core
from qod_magics.core.plan import Fuse, Move, Unfuse, keeping_all
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager, replace
from qod_magics.errors import SnapshotError
from qod_magics.policies import policy
from qod_magics.policies.stack.place import Place, fusing, separating
from qod_magics.policies.stack.stack import StackState
from qod_magics.policies.stack.stage import Demand, Pressure, UnderWay, View, subject
from qod_magics.simulator import Simulation, simulate
from tests.raising import breaks
from tests.texts import tells


def chain(homes=("tm1", "tm1", "tm1"), cpu=(20.0, 20.0, 20.0), managers=2, second=None, third=None, **instance):
    """Src, Mid and End; Mid and End can each be one query with what they read."""
    names = ("Src", "Mid", "End")
    extra = [{}, {"fusable": 1, **(second or {})}, {"fusable": 1, **(third or {})}]
    tasks = (
        Task("Src", (), 1000.0, None, None, **extra[0]),
        Task("Mid", ("Src",), None, None, None, **extra[1]),
        Task("End", ("Mid",), None, 1, 0.2, **extra[2]),
    )
    instances = tuple(
        Instance(f"{name}.1", name, home, 1000.0, used, False, **dict(instance))
        for name, home, used in zip(names, homes, cpu, strict=True)
    )
    load = [sum(i.cpu for i in instances if i.task_manager == f"tm{m + 1}") for m in range(managers)]
    return Snapshot(
        tuple(TaskManager(f"tm{m + 1}", 1.0, load[m]) for m in range(managers)),
        tasks,
        (Stream("Src", "Mid", 1000.0), Stream("Mid", "End", 1000.0)),
        instances,
    )


def fused(cpu, managers=2, spare_s=0.0):
    """Src, and End with Mid within it."""
    given = chain(cpu=(20.0, 0.0, cpu), managers=managers)
    end = Task("End", ("Src",), None, 1, 0.2, fused=["Mid>End"])
    return replace(
        given,
        tasks=(given.tasks[0], end),
        streams=(Stream("Src", "End", 1000.0),),
        instances=(given.instances[0], given.instances[2]),
    )


def view(given, *, pressed_s=0.0, eased_s=None, together=None):
    found = {"End": Pressure("End", 100.0 - pressed_s, 0.5, None)} if pressed_s else {}
    eased = None if eased_s is None else 100.0 - eased_s
    return View(given, 100.0, keeping_all(given), Demand.of(given), found, eased, None, together or {})


def needs(given):
    return Demand.of(given).by_instance(given)


def test_neighbours_run_side_by_side_and_keep_one_state_at_most():
    assert neighbours(chain()) == (("Src", "Mid"), ("Mid", "End"))
    assert neighbours(chain(homes=("tm1", "tm2", "tm2"))) == (("Mid", "End"),)
    assert neighbours(chain(second={"fusable": 0})) == (("Mid", "End"),)
    assert neighbours(chain(second={"stateful": 1}, third={"stateful": 1})) == (("Src", "Mid"),)
    assert neighbours(chain(rests_s=3.0)) == neighbours(chain(state="backing off")) == ()
    given = chain()
    modes = [replace(i, mode=mode) for i, mode in zip(given.instances, ("a", "a", "b"), strict=True)]
    assert neighbours(replace(given, instances=tuple(modes))) == (("Src", "Mid"),)
    warming = tuple(replace(i, warming_up=i.task == "End") for i in given.instances)
    assert neighbours(replace(given, instances=warming)) == (("Src", "Mid"),)
    wider = (*given.instances, Instance("End.2", "End", "tm1", 0.0, 0.0, False))
    assert neighbours(replace(given, instances=wider)) == (("Src", "Mid"),)


def test_the_pair_that_has_been_there_longest_is_fused_once_it_has_been_long_enough():
    together = {("Src", "Mid"): 30.0, ("Mid", "End"): 20.0}
    assert fusing(together, 79.9, 60.0) == ()
    (found,) = fusing(together, 80.0, 60.0)
    assert found == Fuse(("Mid", "End"))
    assert "for 60 s" in found.why
    assert fusing({}, 1000.0, 60.0) == ()


def test_the_stage_fuses_while_no_query_is_under_pressure_only():
    given, together = chain(), {("Src", "Mid"): 0.0}
    assert Place().propose(view(given, eased_s=60.0, together=together)).actions == (Fuse(("Src", "Mid")),)
    assert Place().propose(view(given, eased_s=59.0, together=together)).actions == ()
    assert Place().propose(view(given, together=together)).actions == ()


def test_what_would_need_more_than_a_core_is_not_fused():
    """It would part again as soon as it runs."""
    given = chain(cpu=(40.0, 50.0, 60.0), managers=1)
    given = replace(given, task_managers=(replace(given.task_managers[0], cores=2.0),))
    together = {("Src", "Mid"): 0.0, ("Mid", "End"): 0.0}
    assert within_a_core(together, given, needs(given)) == (("Src", "Mid"),)
    (found,) = Place().propose(view(given, eased_s=60.0, together={("Mid", "End"): 0.0, ("Src", "Mid"): 20.0})).actions
    assert found == Fuse(("Src", "Mid"))
    assert within_a_core((), given, needs(given)) == ()
    wider = (*given.instances, *(replace(i, id=f"{i.task}.2", cpu=30.0) for i in given.instances[:2]))
    wider = replace(given, instances=wider)
    assert within_a_core([("Src", "Mid")], wider, needs(wider)) == (("Src", "Mid"),)
    wider = replace(wider, instances=(*wider.instances[:4], replace(wider.instances[4], cpu=150.0)))
    assert within_a_core([("Src", "Mid")], wider, needs(wider)) == ()


def test_a_fused_task_parts_where_it_is_too_large_to_move():
    tight = fused(95.0)
    needs = Demand.of(tight)
    (found,) = separating(tight, needs, 5.0)
    assert found == Unfuse(("Mid", "End"))
    assert "tm1 lacks" in found.why
    assert separating(fused(95.0, managers=1), Demand.of(fused(95.0, managers=1)), 5.0) == ()  # nowhere to go
    assert separating(fused(30.0), Demand.of(fused(30.0)), 5.0) == ()
    end = replace(tight.tasks[1], fused=["Src>Mid", "Mid>End"], inseparable=["Mid>End"])
    whole = replace(tight, tasks=(tight.tasks[0], end))
    assert separating(whole, needs, 5.0) == (Unfuse(("Src", "Mid")),)
    whole = replace(tight, tasks=(tight.tasks[0], replace(end, fused=["Mid>End"])))
    assert separating(whole, needs, 5.0) == ()
    assert (
        separating(chain(cpu=(60.0, 60.0, 60.0)), Demand.of(chain(cpu=(60.0, 60.0, 60.0))), 5.0) == ()
    )  # none is fused
    above = fused(130.0, managers=1)
    assert separating(above, Demand.of(above), 5.0) == ()  # it would only cost more
    two = replace(above, task_managers=(replace(above.task_managers[0], cores=2.0),))
    (found,) = separating(two, Demand.of(two), 5.0)
    assert found == Unfuse(("Mid", "End"))
    assert tells(found.why, "130 %")


def beside(given, cpu):
    """With another query on tm2."""
    other = Task("Other", (), 1000.0, 1, 0.2)
    managers = (given.task_managers[0], replace(given.task_managers[1], cpu=cpu))
    running = Instance("Other.1", "Other", "tm2", 1000.0, cpu, False)
    return replace(given, task_managers=managers, tasks=(*given.tasks, other), instances=(*given.instances, running))


def test_a_fused_task_parts_only_where_one_of_its_parts_fits_elsewhere():
    """Else it would cost more where it is, and nothing could leave."""
    given = fused(95.0)
    for used, parts in ((40.0, True), (52.0, True), (53.0, False), (90.0, False)):
        full = beside(given, used)
        assert bool(separating(full, Demand.of(full), 5.0)) == parts
    full = beside(given, 50.0)
    assert separating(full, Demand.of(full), 5.0, 1.1) == ()


@pytest.mark.parametrize("row", [{"rests_s": 30.0}, {"state": "moving"}, {"state": "given up"}])
def test_what_is_to_stay_for_now_is_not_parted_but_moves_as_a_whole_later(row):
    given = fused(90.0)
    staying = (replace(given.instances[0], rests_s=30.0), replace(given.instances[1], **row))
    assert Place().propose(view(replace(given, instances=staying), pressed_s=20.0)).actions == ()
    (found,) = Place().propose(view(given, pressed_s=20.0)).actions
    assert isinstance(found, Move)


def test_what_needs_more_than_a_core_parts_where_next_to_nothing_else_is_short():
    """Between no lack at all and one that counts, it stayed as it was."""
    given = fused(130.0)
    for cores, parts in ((1.6, True), (1.48, True), (1.46, True), (1.44, False)):
        wide = beside(replace(given, task_managers=(replace(given.task_managers[0], cores=cores),) * 2), 95.0)
        wide = replace(wide, task_managers=(wide.task_managers[0], TaskManager("tm2", 1.0, 95.0)))
        assert bool(separating(wide, Demand.of(wide), 5.0)) == parts


def test_a_move_that_helps_precedes_it():
    given = fused(60.0)
    busy = replace(given, instances=(replace(given.instances[0], cpu=60.0), given.instances[1]))
    (found,) = Place().propose(view(busy, pressed_s=20.0)).actions
    assert isinstance(found, Move)


def test_fusing_is_under_way_until_the_snapshot_shows_it():
    fuse = UnderWay("place", (Fuse(("Mid", "End")),), 0.0, frozenset())
    part = UnderWay("place", (Unfuse(("Mid", "End")),), 0.0, frozenset())
    assert (fuse.is_done(chain()), fuse.is_done(fused(10.0))) == (False, True)
    assert (part.is_done(chain()), part.is_done(fused(10.0))) == (True, False)
    assert fuse.disturbs
    assert [subject(each.actions[0]) for each in (fuse, part)] == [("fuse", "Mid>End"), ("unfuse", "Mid>End")]


def test_fusing_that_is_refused_does_not_wait_for_its_time_out():
    """The first task runs on: nobody stopped it. Where the runtime doesn't say what runs, only time tells."""
    fuse = UnderWay("place", (Fuse(("Src", "Mid")),), 0.0, frozenset())
    part = UnderWay("place", (Unfuse(("Mid", "End")),), 0.0, frozenset())

    def running(given, stopped=""):
        states = ("stopped" if i.task == stopped else "running" for i in given.instances)
        return replace(
            given, instances=tuple(replace(i, state=s) for i, s in zip(given.instances, states, strict=True))
        )

    for asked, seen, stops in ((fuse, chain(), "Src"), (part, fused(50.0), "End")):
        assert [asked.has_failed(running(seen), at_s) for at_s in (30.0, 35.0)] == [False, True]
        for begun in (running(seen, stops), seen):
            assert [asked.has_failed(begun, at_s) for at_s in (35.0, 90.0, 95.0)] == [False, False, True]
    move = UnderWay("place", (Move("Src.1", "tm2"),), 0.0, frozenset())
    assert not move.has_failed(running(chain()), 35.0)


def test_a_pair_that_could_not_be_fused_lets_others_go_first():
    given, fuse = replace(chain(), at_s=100.0), Fuse(("Src", "Mid"))
    together = {("Src", "Mid"): 0.0, ("Mid", "End"): 5.0}
    known = StackState(now_s=95.0, together=together, under_way=UnderWay("place", (fuse,), 5.0, frozenset()))
    stack = policy("auto")
    _, state = stack.decide(given, known)
    assert state.under_way is None
    assert state.refused == {("fuse", "Src>Mid"): 220.0}
    assert state.together == {("Src", "Mid"): 100.0, ("Mid", "End"): 5.0}
    assert stack.decide(given, replace(known, now_s=90.0, together=together, under_way=None))[1].together == together


def test_streams_within_a_task_are_names_of_streams():
    with pytest.raises(SnapshotError, check=breaks("edge")):
        fused_streams(Task("a", (), None, None, None, fused=["a"]))


@settings(max_examples=40, deadline=None)
@given(
    homes=st.tuples(*[st.sampled_from(("tm1", "tm2"))] * 3),
    cpu=st.tuples(*[st.floats(0.0, 150.0)] * 3),
    pressed_s=st.sampled_from((0.0, 5.0, 30.0)),
    eased_s=st.sampled_from((None, 30.0, 90.0)),
    since=st.sampled_from((0.0, 90.0)),
)
def test_who_does_not_run_side_by_side_is_never_fused(homes, cpu, pressed_s, eased_s, since):
    given = chain(homes, cpu)
    together = dict.fromkeys(neighbours(given), since)
    calm = eased_s if not pressed_s else None
    for action in Place().propose(view(given, pressed_s=pressed_s, eased_s=calm, together=together)).actions:
        if isinstance(action, Fuse):
            at = [i.task_manager for i in given.instances if i.task in action.edge]
            assert at[0] == at[1]
            assert not pressed_s


TASKS = [
    {"id": "src", "topic": "rows", "work_us": 200},
    {"id": "mid", "upstream": ["src"], "work_us": 250, "hop_us": 20, "fusable": True},
    {
        "id": "end",
        "upstream": ["mid"],
        "work_us": 300,
        "fusable": True,
        "hop_us": 20,
        "priority": 1,
        "min_accuracy": 0.1,
    },
]


def run(rate, policy="auto", managers=1, late_s=None, duration_s=300, cores=1.0):
    names = [f"tm{n + 1}" for n in range(managers)]
    events = [] if late_s is None else [{"at_s": late_s, "add_task_manager": names[-1]}]
    made = Simulation.from_json(
        {
            **{"duration_s": duration_s, "topics": [{"topic": "rows", "rate": rate}], "tasks": TASKS},
            **{"task_managers": [{"id": name, "cores": cores} for name in names], "events": events, "policy": policy},
        }
    )
    return simulate(made).cycles


def events(cycles, kind):
    return [e.detail for cycle in cycles for e in cycle.events if e.kind == kind]


def test_auto_fuses_a_calm_chain_and_stream_economics_never_does():
    cycles = run(500)
    assert [e["to"] for e in events(cycles, "fuse")] == ["end", "mid"]
    assert [task.id for task in cycles[-1].snapshot.tasks] == ["end"]
    assert cycles[-1].plan.desired["end"] == 1.0
    assert events(run(500, policy="stream-economics"), "fuse") == []
    assert events(cycles, "unfuse") == events(cycles, "action-refused") == []


def test_auto_parts_what_must_move_once_there_is_room_for_it():
    cycles = run([[0, 500], [200, 500], [210, 1600]], managers=2, late_s=320, duration_s=500)
    assert len(events(cycles, "fuse")) == 2
    assert events(cycles, "unfuse")
    assert events(cycles, "move")
    assert {i.task_manager for i in cycles[-1].snapshot.instances} == {"tm1", "tm2"}
    late, early = cycles[-1].plan.desired["end"], min(c.plan.desired["end"] for c in cycles if c.plan is not None)
    assert late > early


def test_auto_parts_what_needs_more_than_a_core_where_there_are_more():
    """It stayed shed: its backlog was taken for a lack of CPU on the whole task manager."""
    cycles = run([[0, 500], [200, 500], [210, 1600]], cores=2.0, duration_s=400)
    assert [len(events(cycles, kind)) for kind in ("fuse", "unfuse")] == [2, 1]
    assert [c.plan.desired["end"] for c in cycles[-8:]] == [1.0] * 8
