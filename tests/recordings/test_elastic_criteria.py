"""The verdict on a run whose task managers follow the load, over simulated runs that do so and that do not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qod_magics.recordings.reading import load
from qod_magics.recordings.verdict import verdict
from qod_magics.simulator import Simulation, simulate

SCENARIO: dict[str, Any] = {
    "seed": 1,
    "duration_s": 420,
    "phases": [
        {"name": "calm", "from_s": 20},
        {"name": "doubled", "from_s": 60},
        {"name": "quarter", "from_s": 200},
    ],
    "topics": [{"topic": "trips", "rate": [[0, 500], [60, 500], [60, 1000], [200, 1000], [200, 250], [420, 250]]}],
    "max_task_managers": 2,
    "latency": True,
    "task_managers": [{"id": "tm1"}, {"id": "tm2", "standby": True}],
    "tasks": [
        {"id": "Src", "topic": "trips", "work_us": 150},
        {"id": "Q1", "upstream": ["Src"], "priority": 1, "min_accuracy": 0.2, "work_us": 500, "max_latency_s": 10},
        {"id": "Q2", "upstream": ["Src"], "priority": 2, "min_accuracy": 0.3, "work_us": 600, "max_latency_s": 10},
    ],
    "policy": "auto",
}


def recorded(folder, **changes):
    path = folder / "run.jsonl"
    simulate(Simulation.from_json({**SCENARIO, **changes}), record=path, keep=False)
    return path


def judged(path):
    return {criterion.name: criterion for criterion in verdict(load(path))}


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """The recording of a run that follows the load."""
    return recorded(tmp_path_factory.mktemp("followed"))


def test_the_policy_auto_passes_every_criterion(followed):
    found = judged(followed)
    assert all(criterion.passed for criterion in found.values()), found
    assert len(found) == 9


@pytest.mark.parametrize(
    ("changes", "failed", "told"),
    [
        (
            {"policy": "stream-economics-reactive"},
            "another task manager joins, and accuracy is whole again",
            "plan",
        ),
        (
            {"task_managers": [{"id": "tm1"}]},
            "a task manager leaves once one is enough, and accuracy stays whole",
            "plan",
        ),
        ({"policy": "d-storm"}, "a step of the load is shed at once", "doubled"),
        (
            {"task_managers": [{"id": "tm1"}, {"id": "tm2", "off": True, "start_s": 500}]},
            "another task manager joins, and accuracy is whole again",
            "none",
        ),
        ({"latency": False}, "latencies are within their targets once settled", "latency"),
    ],
)
def test_a_run_that_does_not_follow_the_load_fails_where_it_does_not(tmp_path, changes, failed, told):
    found = judged(recorded(tmp_path, **changes))
    assert not found[failed].passed
    assert told in found[failed].detail


PARTED = {
    "duration_s": 700,
    "phases": [
        {"name": "calm", "from_s": 20},
        {"name": "doubled", "from_s": 150},
        {"name": "quarter", "from_s": 330},
    ],
    "topics": [{"topic": "trips", "rate": [[0, 500], [150, 500], [150, 1500], [330, 1500], [330, 250], [700, 250]]}],
    "tasks": [
        {"id": "Src", "topic": "trips", "work_us": 400},
        {"id": "Q1", "upstream": ["Src"], "priority": 1, "min_accuracy": 0.2, "work_us": 500, "fusable": True},
    ],
}


@pytest.mark.parametrize(("changes", "passed"), [({}, True), ({"duration_s": 345}, False)], ids=["whole", "cut short"])
def test_tasks_that_were_parted_are_one_query_again(tmp_path, changes, passed):
    found = judged(recorded(tmp_path, **{**PARTED, **changes}))
    criterion = found["unfused tasks are one query again"]
    assert criterion.passed == passed, criterion
    assert criterion.detail.startswith("1 unfused, ")


def test_an_attempt_at_the_load_need_not_settle(followed, tmp_path):
    """It was too low, and ended, and the next one began, before the cluster had settled."""
    lines = [json.loads(line) for line in followed.read_text().splitlines()]
    path = tmp_path / "run.jsonl"
    first = next(n for n, line in enumerate(lines) if line.get("phase") == "doubled")
    lines[first - 2]["phase"] = "doubled"
    lines[first - 1]["phase"] = None
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = verdict(load(path))
    assert all(criterion.passed for criterion in found), found
