"""D-Storm and its baselines in charge of the simulated cluster."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.core.plan import Move, ReleaseNode
from qod_magics.simulator import Simulation
from qod_magics.testing.runs import Watched, watch

#: A source and a query that one of the two cores could run.
IDLE: dict[str, Any] = {
    "seed": 1,
    "task_managers": [{"id": "tm1"}, {"id": "tm2"}],
    "topics": [{"topic": "points", "rate": 1000, "data": {"generator": "points"}}],
    "tasks": [
        {"id": "src", "topic": "points", "work_us": 100},
        {"id": "q", "upstream": ["src"], "priority": 1, "min_accuracy": 0.1, "work_us": 100},
    ],
}


def run(policy: str, duration_s: float = 700.0) -> Watched:
    found = watch(Simulation.from_json({**IDLE, "policy": policy, "duration_s": duration_s}))
    assert found.wrong == []
    return found


def test_idle_task_managers_are_emptied_after_one_interval_and_then_released() -> None:
    found = run("d-storm")
    acted = [(cycle.number, cycle.plan.actions) for cycle in found.cycles if cycle.plan and cycle.plan.actions]
    (first, moves), (later, releases) = acted
    assert moves == (Move("q.1", "tm1"),)
    assert releases == (ReleaseNode("tm2"),)
    assert 600 <= 5 * (first - 1) < 605
    assert 60 <= 5 * (later - first) < 90
    assert found.where == {"src.1": "tm1", "q.1": "tm1"}
    assert found.served("q", 8) == pytest.approx(1.0, abs=0.02)


def test_ras_schedules_once_and_round_robin_never() -> None:
    moved = [cycle for cycle in run("storm-ras", 150.0).cycles if cycle.plan and cycle.plan.actions]
    assert len(moved) == 1
    dealt = run("storm-round-robin", 60.0)
    assert {**dealt.where} == {"q.1": "tm1", "src.1": "tm2"}
    assert not any(cycle.plan.actions for cycle in dealt.cycles if cycle.plan)
