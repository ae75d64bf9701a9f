"""Policies of other packages: found by their entry point, run as any other, refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qod_magics.__main__ import main
from qod_magics.errors import UsageProblem
from qod_magics.policies import policy, policy_names
from tests.policies.installed import install

SCENARIO = {
    "seed": 1,
    "duration_s": 60,
    "policy": "alike",
    "task_managers": [{"id": "tm1"}],
    "topics": [{"topic": "points", "partitions": 1, "rate": 1000, "data": {"generator": "points"}}],
    "tasks": [{"id": "KNN", "topic": "points", "priority": 1, "min_accuracy": 0.1, "work_us": 2000}],
}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)


def test_it_is_one_of_the_policies() -> None:
    assert "alike" in policy_names()
    assert policy("alike").name == "alike"


def test_it_decides_in_the_simulator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, record = tmp_path / "scenario.json", tmp_path / "run.jsonl"
    scenario.write_text(json.dumps(SCENARIO))
    assert main(["simulate", str(scenario), "--record", str(record)]) == 0
    last = json.loads(record.read_text().splitlines()[-1])
    assert last["policy"] == "alike"
    assert 0.1 <= last["plan"]["desired"]["KNN"] < 0.9  # 1,000 rows/s of 2 ms each are two cores' work


@pytest.mark.parametrize("name", ["broken", "no-policy"])
def test_what_makes_no_policy_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(UsageProblem, match=name.removeprefix("no-")) as caught:
        policy(name)
    assert "\n" not in str(caught.value)


def test_of_an_unknown_name_the_nearest_is_named() -> None:
    with pytest.raises(UsageProblem, match="Did you mean 'alike'"):
        policy("alikes")
