"""Policies of other packages: found by their entry point, run as any other, refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qod_magics.__main__ import main
from qod_magics.errors import UsageProblem
from qod_magics.policies import GROUP, policy, policy_names

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
    """As pip leaves a package that has the entry points."""
    info = tmp_path / "alike-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: alike\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\nalike = alike_package:Alike\nbroken = alike_package:Missing\nno-policy = alike_package:Any\n"
    )
    source = Path(__file__).with_name("example_policy.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) < 60
    (tmp_path / "alike_package.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)


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
