"""`Scale`: partitions change hands, and every row is read once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.core.plan import Action, AddNode, Move, Plan, ReleaseNode, Scale
from qod_magics.core.runtime import Count, Dials
from qod_magics.simulator import SimulatedCluster, Simulation
from qod_magics.simulator.rates.engine import unbalanced
from tests.simulator.rates.scenarios import LEFT, RIGHT, SOURCE, Lab, simulations
from tests.texts import tells

WIDE: dict[str, Any] = {**LEFT, "max_parallelism": 4, "stateful": True, "divisible": True}
STILL = {"spread": 0.0, "start_cpu_s": 0.0, "down_s": 2.0}


def act(cluster: SimulatedCluster, *actions: Action) -> None:
    """Apply a plan that sheds nothing, with these actions."""
    keep = dict.fromkeys(cluster.wiring.edges, 1.0)
    accept = {task.id: 1.0 for task in cluster.simulation.tasks}
    cluster.apply(Plan(accept, keep, actions), Dials(keep, accept))


def instances(lab: Lab, task: str) -> list[str]:
    """The names of a task's instances in the snapshot."""
    return [i.id for i in lab.look().snapshot.instances if i.task == task]


def test_a_task_is_scaled_out_and_in_and_no_row_is_lost() -> None:
    lab = Lab(tasks=[SOURCE, WIDE, RIGHT], moves=STILL)
    lab.wait(20)
    tasks = {task.id: task for task in lab.look().snapshot.tasks}
    assert (tasks["left"].max_parallelism, tasks["left"].stateful, tasks["left"].divisible) == (4, 1, 1)
    assert tasks["right"].max_parallelism is tasks["right"].stateful is None
    act(lab.cluster, Scale("left", 3, ("tm2", "tm1"), "it sheds"))
    assert instances(lab, "left") == ["left.1", "left.2", "left.3"]
    assert lab.of("scale") == []
    seen = lab.wait(2.25)
    assert lab.of("scale") == [{"task": "left", "from": 1, "to": 3, "took_s": 2.0, "why": "it sheds"}]
    assert (lab.home("left.2"), lab.home("left.3")) == ("tm2", "tm1")
    assert not any(seen.fresh[f"left.{n}"] for n in (1, 2, 3))
    seen = lab.wait(18)
    assert all(seen.fresh.values())
    rates = {i.id: i.in_rate for i in seen.snapshot.instances}  # partitions 0 and 3 are those of the first
    assert [rates[f"left.{n}"] for n in (1, 2, 3)] == pytest.approx([200, 100, 100], rel=0.05)
    act(lab.cluster, Scale("left", 2))
    seen = lab.wait(60)
    assert instances(lab, "left") == ["left.1", "left.2"]
    assert [(e["from"], e["to"]) for e in lab.of("scale")] == [(1, 3), (3, 2)]
    assert lab.of("move") == lab.of("query-restarted") == []
    rows = Count(24_000, 24_000, 0, 0)
    assert seen.measured.counts == {"src": rows, "src>left": rows, "src>right": rows}


def test_state_that_belongs_to_no_key_is_not_assigned() -> None:
    lab = Lab(tasks=[SOURCE, {**WIDE, "divisible": False}, RIGHT], moves=STILL)
    lab.wait(20)
    assert {task.id: task.divisible for task in lab.look().snapshot.tasks}["left"] == 0
    act(lab.cluster, Scale("left", 3))
    lab.wait(10)
    (refused,) = lab.of("action-refused")
    assert (refused["action"], refused["task"]) == ("Scale", "left")
    assert instances(lab, "left") == ["left.1"]


def test_out_rates_do_not_count_instances_that_are_gone() -> None:
    wide = {**SOURCE, "max_parallelism": 4, "parallelism": 4}
    lab = Lab(tasks=[wide, LEFT, RIGHT], duration_s=120)
    lab.wait(30)
    act(lab.cluster, Scale("src", 1))
    seen = lab.wait(30)
    assert [s.out_rate for s in seen.snapshot.streams] == pytest.approx([400, 400], rel=0.05)
    assert [i.in_rate for i in seen.snapshot.instances] == pytest.approx([400, 400, 400], rel=0.05)


def test_instances_stop_at_the_end_of_their_batches() -> None:
    lab = Lab(tasks=[SOURCE, {**WIDE, "parallelism": 2}, RIGHT], moves={**STILL, "wait_s": 10.0}, duration_s=120)
    lab.wait(20)
    reports, engine = lab.cluster.reports, lab.cluster.engine
    ends = sorted(float(reports.next_at[lab.cluster.wiring.instances.index(f"left.{n}")]) for n in (1, 2))
    act(lab.cluster, Scale("left", 4, why="a reason"))
    while engine.now < ends[0] - 0.26:
        lab.wait(0.25)
        assert engine.running[lab.cluster.wiring.instance_task == 1].sum() == 2
    lab.wait(ends[1] - engine.now + 2.75)
    (told,) = lab.of("scale")
    assert told["took_s"] == pytest.approx(ends[1] - ends[0] + 2.0, abs=0.5)


def test_what_can_not_be_is_refused_in_one_line() -> None:
    lab = Lab(tasks=[SOURCE, WIDE, RIGHT], moves=STILL)
    lab.wait(10)
    act(lab.cluster, Scale("left", 5), Scale("lef", 2), Scale("left", 2, ("tm7",)), Scale("right", 2))
    act(lab.cluster, Scale("left", 1))  # as it is
    act(lab.cluster, Scale("left", 2))
    act(lab.cluster, Scale("left", 3))
    lab.wait(5)
    whys = [event["why"] for event in lab.of("action-refused")]
    assert [event["task"] for event in lab.of("action-refused")] == ["left", "lef", "left", "right", "left"]
    assert tells(whys[0], "left", 5, 4)
    assert "'left'" in whys[1]
    assert "'tm7'" in whys[2]
    assert tells(whys[3], "right", 2, 1)
    assert tells(whys[4], "left", 2)
    assert [(e["from"], e["to"]) for e in lab.of("scale")] == [(1, 2)]


def test_an_instance_whose_task_manager_is_lost_meanwhile_starts_elsewhere() -> None:
    lab = Lab(tasks=[SOURCE, WIDE, RIGHT], moves=STILL)
    lab.place(src="tm1", left="tm1", right="tm1")
    act(lab.cluster, Scale("left", 2, ("tm2",)))
    lab.wait(1)
    lab.cluster.lose("tm2")
    seen = lab.wait(60)
    assert lab.home("left.2") == "tm1"
    assert len(lab.of("scale")) == 1
    assert seen.measured.counts["src>left"] == Count(24_000, 24_000, 0, 0)


KINDS = ("scale", "scale", "lose", "add", "fail", "move", "stop", "start-node", "release")
HAPPENINGS = st.lists(st.tuples(st.integers(1, 70), st.sampled_from(KINDS), st.integers(0, 9)), max_size=10)


@settings(max_examples=15)
@given(simulations(), st.lists(st.integers(0, 3), min_size=5, max_size=5), st.sampled_from([0.0, 4.0]), HAPPENINGS)
def test_books_stay_exact_whatever_else_happens(
    value: dict[str, Any], more: list[int], wait_s: float, happenings: list[tuple[int, str, int]]
) -> None:
    for task, extra in zip(value["tasks"], more, strict=False):
        task.pop("shares", None)
        task["max_parallelism"] = task["parallelism"] + extra
    managers = [*value["task_managers"], {"id": "off1", "kind": "more", "off": True, "start_s": 2}]
    value = {**value, "task_managers": managers, "moves": {"wait_s": wait_s}}
    cluster = SimulatedCluster(Simulation.from_json(value))
    engine, machines = cluster.engine, cluster.simulation.machines
    arrived = np.zeros(len(engine.came), np.int64)
    for number in range(72):
        for step, what, which in happenings:
            if step == number:
                task = cluster.simulation.tasks[which % len(cluster.simulation.tasks)]
                machine = machines[which % len(machines)].id
                if what == "scale":
                    act(cluster, Scale(task.id, which % task.partitions + 1))
                elif what == "move":
                    act(cluster, Move(f"{task.id}.1", machine))
                elif what == "fail":
                    cluster.fail(cluster.wiring.instances[which % len(cluster.wiring.instances)])
                elif what == "lose" and engine.up.sum() > 1:
                    cluster.lose(machine)
                elif what == "add" and not engine.up[which % len(machines)]:
                    cluster.add_task_manager(machine)
                elif what == "start-node":
                    act(cluster, AddNode("more"))
                elif what == "release":
                    act(cluster, ReleaseNode(machine))
                elif what == "stop":
                    cluster.stop_tasks([task.id])
                    cluster.start_tasks([task.id])
        cluster.advance(engine.step_s)
        assert unbalanced(engine) == []
        assert (engine.came >= arrived).all()
        arrived = engine.came.copy()
        seen = cluster.observe()
        for name, count in seen.measured.counts.items():
            assert count.arrived == count.processed + count.dropped + count.waiting, name
        there = {i.id for i in seen.snapshot.instances}
        runs = {cluster.wiring.instances[i] for i in np.flatnonzero(engine.running)}
        assert runs <= there
        for t, task in enumerate(cluster.simulation.tasks):
            width = len([i for i in seen.snapshot.instances if i.task == task.id])
            owners = engine.wiring.channel_instance[engine.wiring.channel_task == t]
            first = int(engine.wiring.first_instance[t])
            assert set(owners.tolist()) == set(range(first, first + width))
