"""A policy that rescales tasks and starts and releases task managers, in a simulated cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qod_magics.__main__ import main as run
from qod_magics.controller import Cycle
from qod_magics.core.plan import Action, AddNode, Plan, ReleaseNode, Scale, keeping_all
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies import policy, policy_names
from qod_magics.simulator import SimulatedCluster, Simulation, simulate
from qod_magics.simulator.rates.engine import unbalanced
from tests.simulator.rates.scenarios import LEFT, RIGHT, SOURCE, scenario
from tests.texts import tells

VALUE = scenario(
    duration_s=150,
    tasks=[SOURCE, {**LEFT, "max_parallelism": 4, "max_latency_s": 5, "utility": 3}, RIGHT],
    task_managers=[
        {"id": "tm1", "price": 0.1},
        {"id": "tm2"},
        {"id": "big1", "kind": "big", "off": True, "start_s": 12},
    ],
    max_task_managers=3,
)


class Resizing:
    """Does one thing after the other, and asks for each until it is done."""

    name = "resizing"

    def decide(self, snapshot: Snapshot, state: Any) -> tuple[Plan, Any]:
        managers = [manager.id for manager in snapshot.task_managers]
        width = len([i for i in snapshot.instances if i.task == "left"])
        cycle = (state or 0) + 1
        asked: Action | None = None
        if cycle == 4:
            asked = AddNode("big", "the load rises")
        elif 8 <= cycle < 16 and width < 3:
            asked = Scale("left", 3, ("big1",), "left is slow")
        elif cycle >= 20 and width == 3:
            asked = Scale("left", 1, why="it is calm")
        elif cycle >= 24 and "big1" in managers:
            asked = ReleaseNode("big1", "it is idle")
        return keeping_all(snapshot, () if asked is None else (asked,)), cycle


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[Cycle, ...], Path]:
    record = tmp_path_factory.mktemp("resizing") / "run.jsonl"
    done = simulate(Simulation.from_json(VALUE), policy=Resizing(), record=record)
    assert done.node_hours == pytest.approx((2 * 150 + 88) / 3600, abs=0.01)
    assert done.cost == pytest.approx(0.1 * 150 / 3600)
    return done.cycles, record


def test_the_log_says_what_is_asked_for_once_and_what_was_done(recorded: tuple[tuple[Cycle, ...], Path]) -> None:
    cycles, _ = recorded
    words = [entry.words for cycle in cycles for entry in cycle.entries]
    for text in (
        "a task manager of kind big is started: the load rises",
        "big1 is up in 12.0 s: the load rises",
        "left is rescaled to 3 instances: left is slow",
        "left is rescaled to 1 instance: it is calm",
        "big1 is released: it is idle",
    ):
        assert words.count(text) >= 1, text
    scaled = [w for w in words if w.startswith("left ") and "instance" in w]
    assert len([w for w in words if tells(w, "left", "rescaled")]) == 2
    assert [w for w in scaled if tells(w, 3, 1)]
    assert [w for w in scaled if tells(w, 1, 3)]
    assert not [cycle.skipped for cycle in cycles if cycle.skipped]


def test_instances_warm_up_after_a_rescale(recorded: tuple[tuple[Cycle, ...], Path]) -> None:
    cycles, _ = recorded
    warm = [{i.id for i in c.snapshot.instances if i.warming_up} for c in cycles[8:16] if c.snapshot is not None]
    assert {"left.1", "left.2", "left.3"} in warm
    assert warm[-1] == set()


def test_the_recording_is_read_again(
    recorded: tuple[tuple[Cycle, ...], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, record = recorded
    lines = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
    actions = [a["action"] for line in lines for a in line["plan"].get("actions", ())]
    assert set(actions) == {"scale", "add-node", "release-node"}
    kinds = {event["kind"] for line in lines for event in line["events"]}
    assert {"scale", "task-manager-up", "task-manager-removed"} <= kinds
    for name in policy_names():
        assert run(["plan", str(record), "--policy", name]) == 0
        assert len(capsys.readouterr().out.splitlines()) == len(lines)


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_runs_in_such_a_cluster(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps({**VALUE, "duration_s": 60}), "utf-8")
    assert run(["simulate", str(file), "--policy", name]) == 0
    told = capsys.readouterr()
    assert ("lends" in told.err) is (name == "dirigo")
    lines = told.out.splitlines()
    assert tells(lines[2], "minimum 0.2", "100 %", "5 s")
    assert lines[3].endswith("minimum 0.1")
    assert tells(lines[1], "0.033 h", "0.001667")


@pytest.mark.closed_loop
@pytest.mark.parametrize("name", policy_names())
def test_every_policy_copes_with_instances_and_task_managers_that_come_and_go(name: str) -> None:
    rate = [[0, 400], [30, 400], [35, 3000], [80, 3000], [85, 300]]
    value = {**VALUE, "duration_s": 130, "topics": [{"topic": "rows", "rate": rate}]}
    steps: dict[int, Action] = {
        **{4: AddNode("big"), 8: Scale("left", 4), 12: Scale("left", 2, why="it may"), 16: ReleaseNode("tm2")},
        **{20: Scale("left", 1), 22: AddNode("local")},
    }

    def resize(cluster: SimulatedCluster, cycle: Cycle) -> None:
        decision, seen = cycle.decision, len(cycles)
        cycles.append(cycle)
        if decision is not None and seen in steps:
            plan = Plan(decision.plan.desired, decision.plan.non_drop, (steps[seen],))
            cluster.apply(plan, decision.dials)

    cycles: list[Cycle] = []
    done = simulate(Simulation.from_json(value), policy=policy(name), inspect=resize)
    assert [cycle.skipped for cycle in cycles if cycle.skipped] == []
    assert unbalanced(done.cluster.engine) == []
    events = [event for cycle in cycles for event in cycle.events]
    assert [e.detail["to"] for e in events if e.kind == "scale"] == [4, 2, 1]
    assert {"task-manager-up", "task-manager-removed"} <= {e.kind for e in events}
    assert [e for e in events if e.kind.endswith("-failed")] == []
    last = cycles[-1].plan
    assert last is not None
    assert min(last.desired.values()) > 0.9
