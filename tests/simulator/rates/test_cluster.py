"""Moves, task managers that join and leave, applications that start and stop, time."""

from __future__ import annotations

import pytest

from qod_magics.core.plan import Move, Plan
from qod_magics.core.runtime import Count, Dials
from qod_magics.errors import TaskManagerError
from qod_magics.simulator import SimulatedCluster
from tests.raising import breaks
from tests.simulator.rates.scenarios import LEFT, RIGHT, SOURCE, Lab, simulation
from tests.texts import tells

STILL = {"spread": 0.0, "start_cpu_s": 0.0}


def test_a_move_takes_its_time_and_is_told_of_once() -> None:
    lab = Lab(moves={**STILL, "down_s": 2.0})
    lab.place(src="tm1", left="tm1", right="tm1")
    lab.cluster.move("left.1", "tm2", "by hand")
    engine = lab.cluster.engine
    read, cpu = engine.read[1], engine.cpu[1]
    lab.wait(1.75)
    assert (engine.read[1], engine.cpu[1]) == (read, cpu)
    assert lab.of("move") == []
    assert not lab.look().fresh["left.1"]
    seen = lab.wait(0.5)
    assert engine.read[1] > read
    expected = {"instance": "left.1", "from": "tm1", "to": "tm2", "took_s": 2.0, "why": "by hand"}
    assert lab.of("move") == [expected]
    assert lab.home("left.1") == "tm2"
    seen = lab.wait(60)
    assert lab.of("move") == [expected]
    assert seen.fresh["left.1"]
    rows = Count(24_000, 24_000, 0, 0)
    assert seen.measured.counts == {"src": rows, "src>left": rows, "src>right": rows}


def test_moves_take_different_times_within_the_spread() -> None:
    lab = Lab(duration_s=500, moves={"down_s": 2.0, "spread": 0.5}, step_s=0.125)
    for number in range(20):
        lab.cluster.move("left.1", ("tm1", "tm2")[number % 2], "there and back")
        lab.cluster.advance(4)
    lab.look()
    took = [move["took_s"] for move in lab.of("move")]
    assert 19 <= len(took) <= 20  # the first one may be there already
    assert min(took) >= 1.0
    assert max(took) <= 3.0 + 0.125
    assert len(set(took)) > 5


def test_a_plan_moves_what_runs_and_leaves_the_rest_alone() -> None:
    lab = Lab()
    lab.place(src="tm1", left="tm1", right="tm1")
    keep = dict.fromkeys(lab.cluster.wiring.edges, 1.0)
    accept = dict.fromkeys(("src", "left", "right"), 1.0)
    moves = (Move("left.1", "tm2", "a reason"), Move("right.1", "tm1"), Move("nobody.1", "tm2"))
    lab.cluster.apply(Plan(accept, keep, actions=moves), Dials(keep, accept))
    lab.cluster.apply(Plan(accept, keep, actions=(Move("left.1", "tm1"),)), Dials(keep, accept))
    lab.wait(10)
    (move,) = lab.of("move")  # it was moving when it was told to go back
    assert (move["instance"], move["to"], move["why"]) == ("left.1", "tm2", "a reason")
    lab.cluster.apply(Plan(accept, keep, actions=(Move("left.1", "tm9"),)), Dials(keep, accept))
    lab.wait(1)
    nobody, _, unknown = lab.of("action-refused")
    assert (nobody["action"], nobody["instance"], nobody["to"]) == ("Move", "nobody.1", "tm2")
    assert "'nobody.1'" in nobody["why"]
    assert "'tm9'" in unknown["why"]
    for instance, target, missing in (("left.1", "tm9", "tm9"), ("nobody.1", "tm1", "nobody.1")):
        with pytest.raises(TaskManagerError, check=breaks("exists", name=missing)):
            lab.cluster.move(instance, target, "it can't")


def test_just_after_its_start_an_instance_is_slow_and_pays_for_it() -> None:
    lab = Lab(duration_s=100, moves={"down_s": 1, "spread": 0, "start_cpu_s": 0.5, "slowdown": 3, "warm_up_s": 5})
    lab.place(left="tm1")
    lab.wait(40)
    engine = lab.cluster.engine

    def cost(seconds: float) -> float:
        cpu, read = engine.cpu[1], engine.read[1]
        lab.wait(seconds)
        return float((engine.cpu[1] - cpu - 0.02 * seconds) / (engine.read[1] - read))

    usual = cost(5)
    assert usual == pytest.approx(210e-6, rel=0.05)
    lab.cluster.move("left.1", "tm2", "by hand")
    cpu = engine.cpu[1]
    lab.wait(1)
    assert engine.cpu[1] == cpu
    lab.wait(1)
    assert engine.cpu[1] - cpu > 0.5  # the start
    lab.wait(0.5)
    assert 2 * usual < cost(1) < 3 * usual
    lab.wait(30)
    assert cost(5) == pytest.approx(usual, rel=0.05)


def test_a_task_manager_joins_and_what_waited_starts_there() -> None:
    lab = Lab(
        task_managers=[{"id": "tm1", "planned_cores": 0.8}],
        events=[{"at_s": 10, "add_task_manager": "tm1"}],
    )
    lab.cluster.advance(9.75)
    with pytest.raises(TaskManagerError):
        lab.cluster.observe()
    seen = lab.wait(10)
    assert lab.of("task-manager-up") == [{"task_manager": "tm1", "cores": 0.8}]
    assert [(m.id, m.cores) for m in seen.snapshot.task_managers] == [("tm1", 0.8)]
    seen = lab.wait(60)
    assert all(seen.fresh.values())
    assert lab.of("move") == lab.of("query-restarted") == []
    assert seen.measured.counts["src"] == Count(24_000, 24_000, 0, 0)
    with pytest.raises(TaskManagerError, check=breaks("unique")):
        lab.cluster.add_task_manager("tm1")
    with pytest.raises(TaskManagerError, check=breaks("exists", name="tm2")):
        lab.cluster.add_task_manager("tm2")


def test_a_task_manager_leaves_when_its_instances_have_gone() -> None:
    events = [{"at_s": 20, "remove_task_manager": "tm1"}, {"at_s": 40, "add_task_manager": "tm1"}]
    lab = Lab(duration_s=60, events=events)
    assert [m.id for m in lab.look().snapshot.task_managers] == ["tm1", "tm2"]  # it joins again, it is there at first
    lab.place(src="tm1", left="tm1", right="tm2")
    seen = lab.wait(30 - 15)
    assert [m.id for m in seen.snapshot.task_managers] == ["tm2"]
    assert {(move["from"], move["to"]) for move in lab.of("move")} == {("tm1", "tm2")}
    assert len(lab.of("move")) == 2
    assert lab.of("task-manager-removed") == [{"task_manager": "tm1"}]
    assert lab.of("task-manager-lost") == []
    seen = lab.wait(40)
    assert len(seen.snapshot.task_managers) == 2
    rows = Count(24_000, 24_000, 0, 0)
    assert seen.measured.counts == {"src": rows, "src>left": rows, "src>right": rows}


def test_the_last_task_manager_stays() -> None:
    lab = Lab(task_managers=[{"id": "tm1"}], events=[{"at_s": 10, "remove_task_manager": "tm1"}])
    seen = lab.wait(20)
    assert [m.id for m in seen.snapshot.task_managers] == ["tm1"]
    (failed,) = lab.of("scenario-failed")
    assert tells(failed["why"], "remove_task_manager", "tm1", 3)
    with pytest.raises(TaskManagerError, check=breaks("not the last")):
        lab.cluster.remove_task_manager("tm1")


def test_an_application_reads_what_comes_from_its_start() -> None:
    late = {**RIGHT, "application": "late"}
    own = {**LEFT, "id": "own", "upstream": [], "topic": "rows", "application": "late"}
    events = [{"at_s": 20, "start_application": "late"}, {"at_s": 40, "stop_application": "late"}]
    lab = Lab(tasks=[SOURCE, LEFT, late, own], events=events)
    seen = lab.wait(20)
    assert {task.id for task in seen.snapshot.tasks} == {"src", "left"}
    assert seen.measured.counts.keys() == {"src", "src>left"}
    seen = lab.wait(20)
    assert {task.id for task in seen.snapshot.tasks} == {"src", "left", "right", "own"}
    assert seen.measured.counts["own"].arrived == 20 * 400
    assert seen.measured.counts["src>right"].arrived == pytest.approx(20 * 400, abs=200)
    assert all(seen.fresh.values())
    assert seen.measured.dropped["src>right"] == 0
    seen = lab.wait(30)
    assert {task.id for task in seen.snapshot.tasks} == {"src", "left"}
    assert {i.task for i in seen.snapshot.instances} == {"src", "left"}
    rows = Count(24_000, 24_000, 0, 0)
    assert seen.measured.counts == {"src": rows, "src>left": rows}


def test_an_application_that_stops_first_runs_from_the_start() -> None:
    one = {**RIGHT, "application": "one"}
    events = [{"at_s": 20, "stop_application": "one"}, {"at_s": 40, "start_application": "one"}]
    lab = Lab(tasks=[SOURCE, LEFT, one], events=events)
    assert len(lab.wait(10).snapshot.tasks) == 3
    assert len(lab.wait(20).snapshot.tasks) == 2
    seen = lab.wait(40)
    assert len(seen.snapshot.tasks) == 3
    assert seen.measured.counts["src>right"].arrived == pytest.approx(2 * 20 * 400, abs=500)
    assert seen.measured.counts["src>right"].waiting == 0


def test_the_clock_keeps_time_whatever_the_step() -> None:
    cluster = SimulatedCluster(simulation(step_s=0.3))
    for _ in range(40):
        cluster.advance(1.0)
    assert cluster.clock.monotonic() == pytest.approx(40)
    assert cluster.now == pytest.approx(40, abs=0.16)


def test_rows_without_weight_start_again_from_their_task_s_accuracy() -> None:
    """What a row was kept with decides what the reading end still takes off."""
    for keeps, share in ((True, 1.0), (False, 0.5)):
        lab = Lab(tasks=[{**SOURCE, "keeps_weight": keeps}, LEFT, RIGHT], duration_s=20)
        keep = {(None, "src"): 0.5, ("src", "left"): 1.0, ("src", "right"): 1.0}
        accept = {"src": 1.0, "left": 0.5, "right": 1.0}
        lab.cluster.apply(Plan(accept, keep), Dials(keep, accept))
        count = lab.wait(40).measured.counts["src>left"]
        assert count.processed == pytest.approx(share * count.arrived, abs=60)
