"""`python -m qod_magics simulate`, and what the other commands read of its recording."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from qod_magics.__main__ import main as run
from qod_magics.commands.simulate import summary
from qod_magics.policies import DEFAULT_POLICY
from qod_magics.recordings.criteria import format_verdict
from qod_magics.recordings.reading import load
from qod_magics.recordings.verdict import verdict
from qod_magics.simulator import Simulation, simulate
from tests.simulator.rates.scenarios import LEFT, RIGHT, SOURCE, scenario
from tests.texts import tells

ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "scenario.json"
    rate = [[0, 400], [40, 400], [40, 4000]]
    value = scenario(
        duration_s=100,
        task_managers=[{"id": "tm1"}],
        topics=[{"topic": "rows", "rate": rate}],
        phases=[{"name": "calm", "from_s": 0}, {"name": "overload", "from_s": 40}],
        policy="stream-economics",
    )
    path.write_text(json.dumps(value), "utf-8")
    return str(path)


def test_a_run_is_summed_up_and_recorded(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "runs" / "run.jsonl"
    assert run(["simulate", file, "--record", str(record)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert tells(lines[0], "100 s", 1, 3)
    assert lines[0].endswith(" 256,000 rows arrived")
    assert lines[1].startswith("left: priority 2, mean accuracy 0.")
    assert lines[1].endswith("minimum 0.2")
    assert lines[2].startswith("right: priority 1, mean accuracy 0.")
    assert lines[3] == f"recording: {record}"

    cycles = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
    assert len(cycles) == 20
    assert [cycle["phase"] for cycle in cycles] == ["calm"] * 8 + ["overload"] * 12
    assert all(cycle["applied"] for cycle in cycles)
    low = [cycle["measured"]["accuracy"]["right"] for cycle in cycles[-4:]]
    high = [cycle["measured"]["accuracy"]["left"] for cycle in cycles[-4:]]
    assert sum(low) < sum(high) < 4

    assert run(["plan", str(record)]) == 0
    plans = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert plans == [cycle["plan"] for cycle in cycles]
    said = format_verdict(verdict(load(record)))  # what `report` prints; the charts are tested with it
    assert [line.split()[0] for line in said.splitlines()][:2] == ["PASS", "PASS"]
    assert "20 of 20" in said
    assert "60 balances" in said

    assert run(["simulate", file, "--record", str(record)]) == 2
    refused = capsys.readouterr()
    assert refused.out == ""
    (line,) = refused.err.splitlines()
    assert tells(line, "simulate", record)
    assert len(record.read_text("utf-8").splitlines()) == 20


def test_a_recording_is_planned_again_by_the_policy_that_decided_in_it(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "run.jsonl"
    assert run(["simulate", file, "--policy", DEFAULT_POLICY, "--record", str(record)]) == 0
    cycles = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
    assert any(event["kind"] == "reaction" for cycle in cycles for event in cycle["events"])
    capsys.readouterr()
    assert run(["plan", str(record)]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [cycle["plan"] for cycle in cycles]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "SCENARIO.json"),
        (["nowhere.json"], "nowhere.json"),
        (["FILE", "more"], "more"),
        (["FILE", "--polcy", "x"], "--polcy"),
        (["FILE", "--policy", "economics"], "economics"),
        (["FILE", "--record"], "--record"),
        (["FILE", "--record", "."], "is there already"),
    ],
)
def test_wrong_words_are_refused_in_one_line(
    file: str, words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", *(file if word == "FILE" else word for word in words)]) == 2
    refused = capsys.readouterr()
    assert refused.out == ""
    (line,) = refused.err.splitlines()
    assert line.startswith("qod_magics simulate: ")
    assert named in line


def test_help_shows_the_format(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["simulate", "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for word in ("task_managers", "faults", "broker-pause", "slowdown", "--record"):
        assert word in shown


def test_it_runs_from_the_command_line(file: str) -> None:
    words = [sys.executable, "-m", "qod_magics", "simulate", file, "--policy", "stream-economics"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 3


def test_many_queries_are_not_all_listed() -> None:
    queries = [{**LEFT, "id": f"q{n}", "priority": n} for n in range(25)]
    queries.append({**RIGHT, "id": "idle", "upstream": [], "topic": "none"})
    topics = [{"topic": "rows", "rate": 10}, {"topic": "none", "rate": 0}]
    value = scenario(tasks=[SOURCE, queries[-1], *queries[:-1]], topics=topics, duration_s=20)
    lines = summary(simulate(Simulation.from_json(value), keep=False)).splitlines()
    assert len(lines) == 22
    assert lines[-1] == "... and 6 more queries"
    assert any(line.startswith("idle: priority 1, no input") for line in lines)


SCENARIOS = ROOT / "notebooks" / "scenarios"
#: of each system: its policy, another, and what is printed of both
TWO_POLICIES = {
    "cameo": ("cameo", "fifo", "LS2: 29 results"),
    "dirigo": ("dirigo-laxity", "dirigo-static", "timeline: 7952 results"),
    "nephele": ("nephele", "nephele-fixed-buffers", "24 tasks on 4 workers"),
    "getafix": ("getafix", "scarlett", "8,104 queries"),
}


def test_every_system_with_an_engine_of_its_own_has_a_scenario() -> None:
    assert {path.stem for path in SCENARIOS.glob("*.json")} == TWO_POLICIES.keys()


@pytest.mark.closed_loop
@pytest.mark.parametrize("name", TWO_POLICIES)
def test_the_scenarios_of_other_engines_run_under_two_policies(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = SCENARIOS / f"{name}.json"
    *policies, words = TWO_POLICIES[name]
    printed = []
    for policy in policies:
        assert run(["simulate", str(file), "--policy", policy]) == 0
        printed.append(capsys.readouterr().out)
        assert f"under {policy}" in printed[-1]
        assert words in printed[-1]
    value = json.loads(file.read_text("utf-8"))
    assert value["policy"] == policies[0]
    assert value["chosen"]
    first, second = (text.splitlines()[1:] for text in printed)
    assert first != second
