"""Policies by name: this package's, and those that other packages register."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import pytest

from qod_magics.__main__ import main
from qod_magics.controller.plan_check import check_plan
from qod_magics.core.snapshot import Snapshot, TaskManager, replace
from qod_magics.core.validation import check_snapshot
from qod_magics.errors import UsageProblem
from qod_magics.policies import (
    BY_LATENCY,
    DEFAULT_POLICY,
    PAPER_POLICY,
    SHEDDING,
    latency_note,
    lending_note,
    policy,
    policy_names,
)
from qod_magics.policies.stack import Stack
from qod_magics.policies.stream_economics import StreamEconomics
from tests.policies.installed import install
from tests.raising import breaks


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_carries_the_name_it_is_asked_by(name: str) -> None:
    assert policy(name).name == name


@pytest.mark.parametrize("managers", [0, 1])
@pytest.mark.parametrize("name", policy_names())
def test_every_policy_decides_before_there_is_a_task(name: str, managers: int) -> None:
    """As in a session whose queries have yet to be declared, for longer than any window."""
    empty = Snapshot(tuple(TaskManager(f"tm{m}", 1.0, 0.0) for m in range(managers)), (), (), ())
    check_snapshot(empty)
    decides, state = policy(name), None
    for cycle in range(30):
        plan, state = decides.decide(replace(empty, at_s=10.0 * cycle), state)
        check_plan(plan, empty)
        assert not plan.actions


def test_the_default_is_the_one_that_does_best() -> None:
    assert policy().name == DEFAULT_POLICY == "stream-economics-reactive"


def test_the_papers_is_there_by_its_own_name() -> None:
    assert policy(PAPER_POLICY).name == PAPER_POLICY == "stream-economics"
    assert type(policy(PAPER_POLICY)) is StreamEconomics


def test_dirigo_says_while_no_query_lends() -> None:
    assert "--lend" in (lending_note("dirigo target_s=1", lends=False) or "")
    assert lending_note("dirigo", lends=True) is lending_note("cameo", lends=False) is None


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UsageProblem, check=breaks("exists", name="stream-economic")):
        policy("stream-economic")


def test_the_policies_that_shed_are_stream_economics_its_variants_and_the_stack_around_it() -> None:
    assert {DEFAULT_POLICY, PAPER_POLICY, "auto"} <= set(SHEDDING) < set(policy_names())
    assert all(isinstance(policy(name), StreamEconomics | Stack) for name in SHEDDING)


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
    with pytest.raises(UsageProblem, check=breaks("exists", name="alikes")):
        policy("alikes")


@pytest.mark.parametrize("name", sorted({DEFAULT_POLICY, *SHEDDING} - BY_LATENCY))
def test_a_policy_that_ignores_a_maximum_latency_names_one_that_acts_on_it(name: str) -> None:
    note = latency_note(name, 5.0)
    assert note is not None
    assert name in note
    assert any(known in note for known in BY_LATENCY)
    assert latency_note(name, None) is None
    assert latency_note(name, inf) is None


@pytest.mark.parametrize("name", [*sorted(BY_LATENCY), "a_package:policy"])
def test_a_policy_that_acts_on_it_or_is_foreign_gets_no_note(name: str) -> None:
    assert latency_note(name, 5.0) is None
