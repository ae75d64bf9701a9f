"""The stages of a stack by themselves: which move, task manager or instance each asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.plan import AddNode, Move, ReleaseNode, Scale, keeping_all
from qod_magics.core.snapshot import Instance, Snapshot, Spare, Stream, Task, TaskManager, replace
from qod_magics.policies import policy
from qod_magics.policies.stack.place import (
    Place,
    ScaleOutAndIn,
    cheapest,
    emptying_moves,
    enough,
    helpful_moves,
    narrower_task,
    released,
    wider_task,
)
from qod_magics.policies.stack.stage import Demand, Pressure, View, exceeding_latency, pressures
from tests.texts import tells


def snapshot(homes, cpu, managers=2, spare=(), **task):
    """A source and queries Q1 ... that read it; each has one instance with the CPU given, on the task manager given."""
    names = ["Src", *(f"Q{n}" for n in range(1, len(homes)))]
    tasks = (
        Task("Src", (), 1000.0, None, None),
        *(Task(name, ("Src",), None, 1, 0.2, **task) for name in names[1:]),
    )
    instances = tuple(
        Instance(f"{name}.1", name, f"tm{home}", 1000.0, needs, False)
        for name, home, needs in zip(names, homes, cpu, strict=True)
    )
    used = [sum(i.cpu for i in instances if i.task_manager == f"tm{m + 1}") for m in range(managers)]
    return Snapshot(
        tuple(TaskManager(f"tm{m + 1}", 1.0, used[m]) for m in range(managers)),
        tasks,
        tuple(Stream("Src", name, 1000.0) for name in names[1:]),
        instances,
        spare_nodes=tuple(each for each in spare if each.count),
    )


def view(given, *, pressed_s=0.0, eased_s=None):
    pressures = {"Q1": Pressure("Q1", 100.0 - pressed_s, 0.5, None)} if pressed_s else {}
    eased = None if eased_s is None else 100.0 - eased_s
    return View(given, 100.0, keeping_all(given), Demand.of(given), pressures, eased, eased)


def needing(given, factor):
    """The demand of a snapshot, as if each instance needed this much more at full accuracy."""
    found = Demand.of(given)
    more = [each * factor for each in found.instance]
    return replace(found, instance=more, needed=[sum(more[i] for i in here) for here in found.hosted])


def test_demand_is_that_of_full_accuracy():
    given = snapshot([1, 1, 2], [10.0, 40.0, 30.0])
    half = replace(given, instances=tuple(replace(i, in_rate=500.0) if i.task == "Q1" else i for i in given.instances))
    assert Demand.of(given).needed == [50.0, 30.0]
    assert Demand.of(half).instance[1] == pytest.approx(80.0)


@pytest.mark.parametrize(("need", "available"), [(90.0, 120.0), (110.0, 200.0)])
def test_a_backlog_of_an_instance_beyond_a_core_says_nothing_of_the_other_cores(need, available):
    """Else a task manager with cores to spare seems short of CPU, and the task is neither widened nor unfused."""
    given = snapshot([1, 1], [0.0, need], managers=1, max_parallelism=4)
    host = replace(given.task_managers[0], cores=2.0, trust=0.6)
    found = Demand.of(replace(given, task_managers=(host,)))
    assert found.available == pytest.approx([available])
    more = Demand.of(replace(given, task_managers=(replace(host, trust=1.2),)))
    assert more.available == pytest.approx([240.0])


def test_the_instance_that_takes_most_load_off_goes_where_there_is_most_room():
    given = snapshot([1, 1, 1, 2], [10.0, 20.0, 50.0, 5.0], managers=3)
    assert helpful_moves(given, needing(given, 1.75), 5.0, 1.1) == (Move("Q2.1", "tm3"),)


def test_of_those_that_suffice_the_smaller_query_moves():
    given = snapshot([1, 1, 1], [10.0, 30.0, 60.0])
    assert helpful_moves(given, needing(given, 1.1), 5.0, 1.1) == (Move("Q1.1", "tm2"),)


def test_nothing_moves_where_it_does_not_fit_or_the_need_is_small():
    given = snapshot([1, 1, 2], [45.0, 45.0, 60.0])
    assert helpful_moves(given, needing(given, 1.3), 5.0, 1.1) == ()
    assert helpful_moves(snapshot([1, 1], [10.0, 92.0]), Demand.of(snapshot([1, 1], [10.0, 92.0])), 5.0, 1.1) == ()


@given(st.lists(st.tuples(st.integers(1, 4), st.floats(1.0, 60.0)), min_size=1, max_size=10), st.floats(0.5, 3.0))
def test_moves_take_load_off_and_overload_nobody(drawn, factor):
    given = snapshot([home for home, _ in drawn], [cpu for _, cpu in drawn], managers=4)
    demand = needing(given, factor)
    moves = helpful_moves(given, demand, 5.0, 1.1)
    settled = [move.to for move in moves if demand.hosted[int(move.to[2:]) - 1]]
    assert len(set(settled)) == len(settled)
    position = {instance.id: i for i, instance in enumerate(given.instances)}
    after = list(demand.needed)
    for move in moves:
        i, target = position[move.instance], int(move.to[2:]) - 1
        after[demand.home[i]] -= demand.instance[i]
        after[target] += demand.instance[i]
        assert demand.over(target) == 0
        assert after[target] <= demand.available[target]
    assert sum(max(n - a, 0) for n, a in zip(after, demand.available, strict=True)) <= demand.short - 5.0 * len(moves)


def test_what_does_not_run_stays_where_it_is():
    given = snapshot([1, 1, 2], [5.0, 110.0, 30.0])
    down = tuple(replace(i, state="given up") for i in given.instances)
    assert helpful_moves(given, Demand.of(given), 4.0, 1.0)
    assert helpful_moves(replace(given, instances=down), Demand.of(given), 4.0, 1.0) == ()
    calm = snapshot([1, 1, 2], [5.0, 20.0, 10.0])
    down = tuple(replace(i, state="backing off") for i in calm.instances)
    assert emptying_moves(calm, Demand.of(calm), 0.2, 8)
    assert emptying_moves(replace(calm, instances=down), Demand.of(calm), 0.2, 8) == ()


def test_an_empty_task_manager_takes_all_that_fits_and_others_one_for_each_core():
    given = snapshot([1, 1, 1, 1, 1], [10.0, 30.0, 25.0, 20.0, 35.0])
    assert helpful_moves(given, Demand.of(given), 5.0, 1.1) == (Move("Q3.1", "tm2"),)
    assert len(helpful_moves(given, needing(given, 1.3), 5.0, 1.1)) == 2
    busy = snapshot([1, 1, 1, 1, 2], [15.0, 45.0, 40.0, 20.0, 2.0])
    assert helpful_moves(busy, needing(busy, 1.6), 5.0, 1.1) == (Move("Q1.1", "tm2"),)
    wide = replace(busy, task_managers=(busy.task_managers[0], replace(busy.task_managers[1], cores=2.0)))
    assert len(helpful_moves(wide, needing(wide, 1.6), 5.0, 1.1)) == 2


def test_the_placement_stage_waits_and_says_why_nothing_helps():
    given = snapshot([1, 1], [50.0, 60.0], managers=1)
    assert Place(after_s=10.0).propose(view(given, pressed_s=5.0)).note == ""
    assert "move" in Place(after_s=10.0).propose(view(given, pressed_s=10.0)).note


SMALL, LARGE = Spare("small", 2, 1.0, price=1.0), Spare("large", 1, 4.0, price=3.0)


def test_the_cheapest_kind_that_suffices_is_started():
    assert cheapest((SMALL, LARGE), 80.0) is SMALL
    assert cheapest((SMALL, LARGE), 150.0) is LARGE
    assert cheapest((SMALL, LARGE), 1000.0) is LARGE
    assert cheapest((replace(SMALL, count=0),), 10.0) is None


def test_a_task_manager_is_started_once_shedding_has_lasted():
    given = snapshot([1, 1], [50.0, 90.0], managers=1, spare=(SMALL,))
    stage = ScaleOutAndIn(after_s=20.0)
    assert stage.propose(view(given, pressed_s=15.0)).actions == ()
    (action,) = stage.propose(view(given, pressed_s=25.0)).actions
    assert action == AddNode("small")
    assert "Q1 at 0.50 for 25 s" in action.why


def test_as_many_are_started_as_the_cpu_lacks_and_may_be():
    assert enough((replace(SMALL, count=5),), 250.0, 5.0) == ("small",) * 3
    assert enough((SMALL, LARGE), 450.0, 5.0) == ("large", "small")
    assert enough((SMALL,), 1000.0, 5.0) == ("small", "small")
    assert enough((SMALL,), 4.0, 5.0) == ()
    given = snapshot([1, 1, 1], [50.0, 90.0, 90.0], managers=1, spare=(replace(SMALL, count=5),))
    assert ScaleOutAndIn().propose(view(given, pressed_s=25.0)).actions == (AddNode("small"), AddNode("small"))


def test_beside_moves_only_what_no_move_gains_is_started():
    given = snapshot([1, 1, 1], [50.0, 30.0, 90.0], managers=2, spare=(replace(SMALL, count=5),))
    moves = (Move("Q1.1", "tm2"),)
    assert ScaleOutAndIn().propose(replace(view(given, pressed_s=25.0), proposed=moves)).actions == ()
    more = replace(view(given, pressed_s=25.0), proposed=moves, demand=needing(given, 1.5))
    assert ScaleOutAndIn().propose(more).actions == (AddNode("small"),)


def test_the_cpu_of_a_task_manager_that_stands_by_is_no_room():
    given = snapshot([1, 1, 1], [50.0, 90.0, 90.0], managers=2, spare=(replace(SMALL, count=5),))
    by = replace(given.task_managers[1], standby=1)
    given = replace(given, task_managers=(given.task_managers[0], by))
    assert Demand.of(given).beyond == Demand.of(given).short == 130.0
    assert ScaleOutAndIn().propose(view(given, pressed_s=25.0)).actions == (AddNode("small"), AddNode("small"))
    calm = snapshot([1, 1], [10.0, 10.0], managers=2)
    assert Demand.of(calm).is_roomy(0.2)
    assert not Demand.of(replace(calm, task_managers=(calm.task_managers[0], by))).is_roomy(0.2)


def test_without_a_budget_the_stage_says_so():
    proposal = ScaleOutAndIn().propose(view(snapshot([1, 1], [50.0, 90.0], managers=1), pressed_s=60.0))
    assert proposal.actions == ()
    assert "--max-task-managers" in proposal.note


def test_lateness_that_cpu_does_not_cause_starts_nothing():
    proposal = ScaleOutAndIn().propose(view(snapshot([1, 1], [5.0, 10.0], managers=1, spare=(SMALL,)), pressed_s=60.0))
    assert proposal.actions == ()
    assert "CPU" in proposal.note


def test_a_lack_that_is_too_small_to_start_more_for_is_named():
    given = snapshot([1, 1], [13.0, 90.0], managers=1, spare=(SMALL,))
    assert tells(ScaleOutAndIn().propose(view(given, pressed_s=60.0)).note, "3 %")


def test_a_task_beyond_a_core_gets_another_instance_where_there_is_room():
    given = snapshot([1, 1], [5.0, 90.0], managers=2, max_parallelism=4)
    assert wider_task(given, needing(given, 1.5), "") == Scale("Q1", 2, ("tm2",))
    assert wider_task(given, Demand.of(given), "") is None
    fixed = snapshot([1, 1], [5.0, 90.0], managers=2)
    assert wider_task(fixed, needing(fixed, 1.5), "") is None
    keyed = snapshot([1, 1], [5.0, 90.0], managers=2, max_parallelism=4, stateful=1)
    assert wider_task(keyed, needing(keyed, 1.5), "") is None
    divisible = snapshot([1, 1], [5.0, 90.0], managers=2, max_parallelism=4, stateful=1, divisible=1)
    assert wider_task(divisible, needing(divisible, 1.5), "") == Scale("Q1", 2, ("tm2",))


def test_a_task_beyond_a_core_gets_another_instance_where_its_task_manager_has_more_cores():
    """No CPU is short there: the one core that the instance can use is."""
    given = snapshot([1, 1], [5.0, 90.0], managers=1, spare=(SMALL,), max_parallelism=4)
    given = replace(given, task_managers=(replace(given.task_managers[0], cores=4.0),))
    pressed = view(given, pressed_s=30.0)
    (found,) = ScaleOutAndIn().propose(replace(pressed, demand=needing(given, 1.5))).actions
    assert found == Scale("Q1", 2, ("tm1",))
    assert tells(found.why, "35 %")
    assert "CPU" in ScaleOutAndIn().propose(replace(pressed, demand=needing(given, 1.15))).note


def test_where_another_instance_was_refused_a_task_manager_is_started():
    """The same instance was asked for again and again, and nothing else."""
    given = snapshot([2, 1, 2], [5.0, 90.0, 30.0], managers=2, spare=(SMALL,), max_parallelism=4)
    half = tuple(replace(i, in_rate=500.0) if i.task == "Q1" else i for i in given.instances)
    auto, state, asked = policy("auto"), None, ()
    for cycle in range(40):
        plan, state = auto.decide(replace(given, instances=half, at_s=5.0 * cycle), state)
        asked += plan.actions
    assert asked == (Scale("Q1", 2, ("tm2",)), AddNode("small"))
    pressed = view(replace(given, instances=half), pressed_s=30.0)
    assert ScaleOutAndIn().propose(replace(pressed, refused={"scale Q1 to 3"})).actions == asked[:1]
    assert ScaleOutAndIn().propose(replace(pressed, refused={"scale Q1 to 2"})).actions == asked[1:]


def test_two_instances_that_one_can_replace_become_one():
    given = snapshot([1, 1], [5.0, 20.0], managers=2, max_parallelism=4)
    two = replace(given, instances=(*given.instances, Instance("Q1.2", "Q1", "tm2", 1000.0, 20.0, False)))
    assert narrower_task(two, Demand.of(two), 0.2) == Scale("Q1", 1)
    assert narrower_task(two, needing(two, 4.0), 0.2) is None
    assert narrower_task(given, Demand.of(given), 0.2) is None


def test_the_least_loaded_is_emptied_where_the_others_hold_its_instances():
    given = snapshot([1, 1, 2], [10.0, 20.0, 25.0])
    assert emptying_moves(given, Demand.of(given), 0.2, 8) == (Move("Q2.1", "tm1"),)
    assert emptying_moves(given, needing(given, 1.5), 0.2, 8) == ()
    alone = snapshot([1], [10.0], managers=1)
    assert emptying_moves(alone, Demand.of(alone), 0.2, 8) == ()


def test_the_dearest_is_emptied_first():
    given = snapshot([1, 1, 2], [10.0, 20.0, 25.0])
    dear = replace(given.task_managers[0], price=2.0)
    priced = replace(given, task_managers=(dear, given.task_managers[1]))
    assert {move.to for move in emptying_moves(priced, Demand.of(priced), 0.2, 8)} == {"tm2"}


def test_where_none_is_emptied_by_itself_all_are_packed_anew():
    """Two of 55 % and two of 25 % on three: 55 + 25 twice, though no task manager has 55 or 25 + 25 left."""
    given = snapshot([1, 2, 3, 3], [55.0, 55.0, 24.0, 24.0], managers=3)
    moves = emptying_moves(given, Demand.of(given), 0.2, 8)
    assert {move.instance for move in moves} == {"Q2.1", "Q3.1"}
    assert {move.to for move in moves} == {"tm1", "tm2"}


@given(st.lists(st.tuples(st.integers(1, 4), st.floats(1.0, 60.0)), min_size=1, max_size=10))
def test_emptying_leaves_headroom_everywhere(drawn):
    given = snapshot([home for home, _ in drawn], [cpu for _, cpu in drawn], managers=4)
    demand = Demand.of(given)
    moves = emptying_moves(given, demand, 0.2, 8)
    position = {instance.id: i for i, instance in enumerate(given.instances)}
    after, gone = list(demand.needed), set()
    for move in moves:
        i = position[move.instance]
        after[demand.home[i]] -= demand.instance[i]
        after[int(move.to[2:]) - 1] += demand.instance[i]
        gone.add(i)
    for move in moves:
        target = int(move.to[2:]) - 1
        assert after[target] <= 0.8 * demand.available[target] + 1e-6
    assert len({move.to for move in moves}) == len(moves)  # of one core each
    done = moves
    while moves:  # what is begun is ended, and empties one
        where = {move.instance: move.to for move in moves}
        moved = (replace(i, task_manager=where.get(i.id, i.task_manager)) for i in given.instances)
        given = replace(given, instances=tuple(moved))
        moves = emptying_moves(given, Demand.of(given), 0.2, 8)
    if done:
        assert len({instance.task_manager for instance in given.instances}) < 4


def test_an_empty_one_is_released_unless_a_latency_is_near_its_target():
    given = snapshot([1, 1, 1], [10.0, 20.0, 25.0], max_latency_s=2.0, latency_p95_s=1.9)
    stage = ScaleOutAndIn(release_after_s=60.0)
    proposal = stage.propose(view(given, eased_s=90.0))
    assert proposal.actions == ()
    assert "latency" in proposal.note
    calm = snapshot([1, 1, 1], [10.0, 20.0, 25.0], max_latency_s=2.0, latency_p95_s=0.5)
    assert stage.propose(view(calm, eased_s=90.0)).actions == (ReleaseNode("tm2"),)
    assert stage.propose(view(calm, eased_s=20.0)).actions == ()
    for given in (snapshot([1, 1, 2], [10.0, 20.0, 25.0]), snapshot([1, 1], [10.0, 20.0], managers=1)):
        assert released(given, Demand.of(given), 0.2) == ()


def test_all_that_are_empty_are_released_but_for_the_headroom_of_the_others():
    given = snapshot([1, 1], [10.0, 20.0], managers=4)
    assert released(given, Demand.of(given), 0.2) == (ReleaseNode("tm4"), ReleaseNode("tm3"), ReleaseNode("tm2"))
    assert released(given, needing(given, 3.0), 0.2) == (ReleaseNode("tm4"), ReleaseNode("tm3"))


def test_several_task_managers_are_emptied_where_few_instances_arrive_at_each():
    given = snapshot([1, 2, 3, 4], [10.0, 5.0, 6.0, 7.0], managers=4)
    moves = emptying_moves(given, Demand.of(given), 0.2, 8)
    assert moves == (Move("Q1.1", "tm3"), Move("Q3.1", "tm1"))


def test_there_is_room_where_the_largest_can_be_missed():
    given = snapshot([1, 1, 2], [10.0, 20.0, 25.0])
    assert Demand.of(given).is_roomy(0.2)
    assert not needing(given, 1.5).is_roomy(0.2)
    assert not Demand.of(snapshot([1], [10.0], managers=1)).is_roomy(0.2)


def test_a_query_is_late_beyond_its_target_only():
    def query(**extra):
        return Task("Q", (), 1.0, 1, 0.1, **extra)

    assert exceeding_latency(query(latency_p95_s=9.0)) is None
    assert exceeding_latency(query(latency_p95_s=1.0, max_latency_s=2.0)) is None
    assert exceeding_latency(query(latency_p95_s=3.0, max_latency_s=2.0)) == 3.0
    assert exceeding_latency(query(latency_p95_s=1.0, oldest_s=5.0, max_latency_s=2.0)) == 5.0


def test_pressure_keeps_its_beginning_until_it_is_over():
    given = snapshot([1, 1], [5.0, 10.0])
    shed = replace(keeping_all(given), desired={"Src": 1.0, "Q1": 0.5})
    first = pressures(given, shed, 10.0, {})
    assert first["Q1"].since_s == 10.0
    assert pressures(given, shed, 20.0, first)["Q1"].since_s == 10.0
    assert pressures(given, keeping_all(given), 30.0, first) == {}
    failed = tuple(replace(i, state="given up") if i.task == "Q1" else i for i in given.instances)
    assert "Q1" not in pressures(replace(given, instances=failed), shed, 30.0, first)  # CPU would not help it
