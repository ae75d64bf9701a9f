"""The file format: what is wrong is refused in one line that names it, and the way to JSON and back changes nothing."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from qod_magics.data.forms import names
from qod_magics.errors import ScenarioError
from qod_magics.simulator import Simulation
from qod_magics.simulator.rates.simulation import Metrics, Moves
from tests.raising import breaks
from tests.simulator.rates.scenarios import LEFT, RIGHT, SOURCE, scenario, simulations

GOOD: dict[str, Any] = scenario(
    seed=3,
    phases=[{"name": "calm", "from_s": 0}, {"name": "busy", "from_s": 20}],
    topics=[{"topic": "rows", "rate": [[0, 400], [20, 400], [20, 900]]}],
    events=[{"at_s": 10, "add_task_manager": "tm2"}, {"at_s": 20, "start_application": "more"}],
    period_s=2.5,
    step_s=0.5,
    controlled=False,
    task_managers=[
        {"id": "tm1", "cores": 2, "planned_cores": 1.5, "background": 0.25},
        {"id": "tm2", "background": [[0, 0], [30, 1]]},
    ],
    tasks=[
        {**RIGHT, "application": "more", "keeps_weight": False, "trigger_s": 3, "mode": "micro-batch"},
        {**LEFT, "parallelism": 2, "shares": [0.25, 0.75], "fixed": 0, "overhead": 0.1, "selectivity": 0.5},
        {**SOURCE, "read_us": 7},
    ],
    metrics={"report_s": 1, "delay_s": 0, "cpu_noise": 0.1, "rate_noise": 0.2, "dial_delay_s": 1},
    moves={"down_s": 1, "spread": 1, "start_cpu_s": 0, "slowdown": 1, "warm_up_s": 0, "detect_s": 0},
    faults=[
        {"at_s": 5, "kind": "task-manager-lost", "target": "tm1"},
        {"at_s": 6, "kind": "broker-pause", "target": None, "for_s": 2},
        {"at_s": 7, "kind": "query-failure", "target": "left.2"},
        {"at_s": 8, "kind": "slow-metrics", "target": "tm2", "for_s": 3},
    ],
)
GONE = object()

#: where, the value put there (GONE: taken out), the name in the error, the rule that is broken
BAD: list[tuple[str, Any, str | None, str]] = [
    ("", [], "scenario", "object"),
    ("", None, "scenario", "object"),
    ("polcy", "x", "polcy", "known"),
    ("seed", -1, "scenario.seed", "type"),
    ("seed", 1.5, "scenario.seed", "type"),
    ("duration_s", GONE, "duration_s", "present"),
    ("duration_s", 0, "scenario.duration_s", "type"),
    ("duration_s", 10**400, "scenario.duration_s", "type"),
    ("duration_s", float("inf"), "scenario.duration_s", "type"),
    ("topics", [], "scenario.topics", "type"),
    ("topics", {}, "scenario.topics", "type"),
    ("topics.0", 3, "topics[0]", "object"),
    ("topics.0.topic", "", "topics[0].topic", "type"),
    ("topics.0.rate", GONE, "topics[0].rate", "present"),
    ("topics.0.rate", -1, "topics[0].rate", "own"),
    ("topics.0.rate", [[5, 1], [0, 1]], "topics[0].rate", "own"),
    ("topics.0.data", {"generator": "nothing"}, "topics[0].data.generator", "type"),
    ("phases.1.from_s", 99, "phases[1].from_s", "own"),
    ("events.0", {"at_s": 1}, "events[0]", "one action"),
    ("events.0.at_s", 61, "events[0].at_s", "own"),
    ("events.0.add_task_manager", "tm7", "tm7", "exists"),
    ("events.1.start_application", "mroe", "mroe", "exists"),
    ("period_s", 0, "scenario.period_s", "type"),
    ("period_s", "5", "scenario.period_s", "type"),
    ("step_s", 0, "scenario.step_s", "type"),
    ("step_s", 3, "scenario.step_s", "own"),
    ("policy", "stream-economic", "scenario.policy", "own"),
    ("policy", 3, "scenario.policy", "type"),
    ("controlled", 1, "scenario.controlled", "type"),
    ("task_managers", [], None, "not empty"),
    ("task_managers", GONE, None, "not empty"),
    ("task_managers", "tm1", "scenario.task_managers", "type"),
    ("task_managers.0", "tm1", "task_managers[0]", "object"),
    ("task_managers.0.id", GONE, "task_managers[0].id", "present"),
    ("task_managers.0.id", "tm2", "tm2", "unique"),
    ("task_managers.0.cores", 0, "task_managers[0].cores", "type"),
    ("task_managers.0.cores", None, "task_managers[0].cores", "type"),
    ("task_managers.0.cpus", 1, "task_managers[0].cpus", "known"),
    ("task_managers.0.planned_cores", 0, "task_managers[0].planned_cores", "type"),
    ("task_managers.0.planned_cores", True, "task_managers[0].planned_cores", "type"),
    *(
        ("task_managers.0.background", value, "task_managers[0].background", "own")
        for value in (None, "busy", -1, [], [1, 2], [[0, 1, 2]], [[5, 1], [0, 1]], [[0, 10**400]], {"0": 1}, True)
    ),
    ("tasks", [], None, "not empty"),
    ("tasks.0", None, "tasks[0]", "object"),
    ("tasks.0.id", GONE, "tasks[0].id", "present"),
    ("tasks.0.id", "left", "left", "unique"),
    ("tasks.0.id", "a>b", "tasks[0].id", "own"),
    ("tasks.0.wrok_us", 3, "tasks[0].wrok_us", "known"),
    ("tasks.0.upstream", ["scr"], "scr", "exists"),
    ("tasks.0.upstream", "src", "tasks[0].upstream", "type"),
    ("tasks.0.upstream", ["src", "src"], "tasks[0].upstream", "own"),
    ("tasks.0.upstream", [3], "tasks[0].upstream[0]", "type"),
    ("tasks.0.upstream", False, "tasks[0].upstream", "type"),
    ("tasks.0.upstream", GONE, "tasks[0]", "one input"),
    ("tasks.0.upstream", ["right"], "right", "of a query"),
    ("tasks.0.topic", "rows", "tasks[0]", "one input"),
    ("tasks.2.topic", "row", "row", "exists"),
    ("tasks.2.topic", 5, "tasks[2].topic", "type"),
    ("tasks.2.priority", 1, "src", "of a query"),
    ("tasks.0.priority", None, "right", "of a query"),
    ("tasks.0.priority", 1.5, "tasks[0].priority", "type"),
    ("tasks.0.min_accuracy", None, "right", "of a query"),
    ("tasks.0.min_accuracy", 1.1, "tasks[0].min_accuracy", "own"),
    ("tasks.0.min_accuracy", -0.1, "tasks[0].min_accuracy", "type"),
    ("tasks.0.parallelism", 0, "tasks[0].parallelism", "type"),
    ("tasks.0.parallelism", 1.0, "tasks[0].parallelism", "type"),
    ("tasks.1.shares", [0.5, 0.4], "tasks[1].shares", "own"),
    ("tasks.1.shares", [1], "tasks[1].shares", "own"),
    *(("tasks.1.shares", value, "tasks[1].shares", "type") for value in (5, "ab", {}, False)),
    *(("tasks.1.shares", [0.5, value], "tasks[1].shares[1]", "type") for value in ("0.5", -0.5, None, 10**400)),
    ("tasks.0.application", 3, "tasks[0].application", "type"),
    ("tasks.0.max_parallelism", 0, "tasks[0].max_parallelism", "type"),
    ("tasks.1.max_parallelism", 1, "tasks[1].max_parallelism", "own"),
    ("tasks.1.max_parallelism", 3, "tasks[1].shares", "own"),
    ("tasks.0.stateful", 1, "tasks[0].stateful", "type"),
    ("tasks.0.max_latency_s", 0, "tasks[0].max_latency_s", "type"),
    ("tasks.0.max_latency_s", "1", "tasks[0].max_latency_s", "type"),
    ("tasks.2.max_latency_s", 1, "src", "of a query"),
    ("tasks.0.utility", -1, "tasks[0].utility", "type"),
    ("tasks.2.utility", 1, "src", "of a query"),
    ("max_task_managers", 0, "scenario.max_task_managers", "type"),
    ("max_task_managers", 1.5, "scenario.max_task_managers", "type"),
    ("latency", 1, "scenario.latency", "type"),
    ("task_managers.0.start_s", -1, "task_managers[0].start_s", "type"),
    ("tasks.0.mode", "batch", "tasks[0].mode", "type"),
    ("tasks.0.keeps_weight", "yes", "tasks[0].keeps_weight", "type"),
    *(
        (f"tasks.0.{name}", value, f"tasks[0].{name}", "type")
        for name in ("fixed", "overhead", "read_us", "work_us", "selectivity", "trigger_s", "latency_s")
        for value in (-1, "1", None)
    ),
    ("metrics", None, "scenario.metrics", "object"),
    ("metrics.report_s", 0, "metrics.report_s", "type"),
    *((f"metrics.{name}", -0.1, f"metrics.{name}", "type") for name in names(Metrics)),
    *((f"moves.{name}", "1", f"moves.{name}", "type") for name in names(Moves)),
    ("metrics.noise", 1, "scenario.metrics.noise", "known"),
    ("moves.down", 1, "scenario.moves.down", "known"),
    ("moves.spread", 1.5, "moves.spread", "type"),
    ("faults.0.kind", "flood", "faults[0].kind", "type"),
    ("faults.0.target", GONE, "faults[0].target", "own"),
    ("faults.0.target", "tm9", "tm9", "exists"),
    ("faults.1.target", "broker", "faults[1].target", "own"),
    ("faults.2.target", "left", "left", "exists"),
    ("faults.2.target", "left.3", "left.3", "exists"),
    ("faults.0.at_s", GONE, "faults[0].at_s", "present"),
    ("faults.0.at_s", 61, "faults[0].at_s", "own"),
    ("faults.0.for_s", -1, "faults[0].for_s", "type"),
]


def changed(where: str, value: Any) -> Any:
    """GOOD with one thing put in or taken out."""
    if not where:
        return value
    result = deepcopy(GOOD)
    *path, last = (int(part) if part.isdigit() else part for part in where.split("."))
    place: Any = result
    for part in path:
        place = place[part]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return result


@pytest.mark.parametrize(("where", "value", "name", "rule"), BAD)
def test_what_is_wrong_is_named_in_one_line(where: str, value: Any, name: str | None, rule: str) -> None:
    with pytest.raises(ScenarioError, check=breaks(rule, name=name)):
        Simulation.from_json(changed(where, value))


def test_tasks_that_read_each_other_are_refused() -> None:
    tasks = [SOURCE, {"id": "a", "upstream": ["src", "b"]}, {"id": "b", "upstream": ["a"]}, LEFT]
    with pytest.raises(ScenarioError, check=breaks("no circle")):
        Simulation.from_json(scenario(tasks=tasks))


def test_a_file_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps(GOOD), "utf-8")
    assert Simulation.read(file) == Simulation.from_json(GOOD)
    bad = {"missing.json": None, "cut.json": b'{"seed": 1', "bytes.json": b"\xff\xfe{", "deep.json": b"[" * 100_000}
    for name, content in bad.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(
            ScenarioError, check=breaks("readable" if content is None else "JSON", name=str(tmp_path / name))
        ):
            Simulation.read(tmp_path / name)
    with pytest.raises(ScenarioError, check=breaks("readable")):
        Simulation.read(tmp_path)


def test_the_way_to_json_and_back_changes_nothing() -> None:
    simulation = Simulation.from_json(GOOD)
    value = json.loads(json.dumps(simulation.to_json()))
    assert Simulation.from_json(value) == simulation
    assert [task.id for task in simulation.tasks] == ["src", "right", "left"]  # inputs before their readers
    assert simulation.machines[0].planned == 1.5
    assert simulation.machines[1].planned == pytest.approx(0.9)


def test_what_is_left_out_has_the_values_that_are_documented() -> None:
    bare = Simulation.from_json(scenario())
    assert Simulation.from_json(bare.to_json()) == bare
    assert (bare.period_s, bare.step_s, bare.policy, bare.controlled) == (5.0, 0.25, "stream-economics-reactive", True)
    assert bare.metrics == Metrics()
    assert bare.moves == Moves()


def test_latencies_are_measured_where_a_task_asks_for_it_or_the_user_says_so() -> None:
    assert not Simulation.from_json(scenario()).measures_latency
    assert Simulation.from_json(scenario(latency=True)).measures_latency
    for asked in ({"max_latency_s": 2}, {"utility": 1}, {"max_parallelism": 3}):
        tasks = [SOURCE, {**LEFT, **asked}, RIGHT]
        assert Simulation.from_json(scenario(tasks=tasks)).measures_latency
        assert not Simulation.from_json(scenario(tasks=tasks, latency=False)).measures_latency
        simulation = Simulation.from_json(scenario(tasks=tasks, latency=False))
        assert Simulation.from_json(json.loads(json.dumps(simulation.to_json()))) == simulation


@settings(max_examples=30)
@given(simulations())
def test_any_simulation_goes_to_json_and_back(value: dict[str, Any]) -> None:
    simulation = Simulation.from_json(value)
    assert Simulation.from_json(json.loads(json.dumps(simulation.to_json()))) == simulation
