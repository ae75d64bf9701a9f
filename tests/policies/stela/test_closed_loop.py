"""The policies in the controller's loop, on a simulated cluster that is overloaded."""

from __future__ import annotations

import pytest

from qod_magics.core.plan import Move, Scale
from qod_magics.simulator import Simulation
from qod_magics.testing.runs import watch

OVERLOADED = {
    "seed": 1,
    "duration_s": 60,
    "task_managers": [{"id": "tm1"}, {"id": "tm2"}],
    "topics": [{"topic": "points", "partitions": 4, "rate": 1000, "data": {"generator": "points"}}],
    "tasks": [{"id": "KNN", "topic": "points", "priority": 1, "min_accuracy": 0.1, "work_us": 2000}],
}


@pytest.mark.parametrize("name", ["stela", "storm-re-deal", "least-link-load", "most-link-load"])
def test_nothing_is_shed_neither_of_what_arrives_nor_of_what_waits(name: str) -> None:
    run = watch(Simulation.from_json({**OVERLOADED, "policy": name}))
    last = run.cycles[-1]
    assert last.decision is not None
    assert last.decision.measured.dropped == {"KNN": 0}
    assert last.decision.measured.lag["KNN"] > 20_000  # of 60,000 rows


def test_the_idle_task_manager_is_used_once() -> None:
    for name, kind in (("stela", Scale), ("least-link-load", Move)):
        run = watch(Simulation.from_json({**OVERLOADED, "policy": name}))
        actions = [action for cycle in run.cycles if cycle.plan for action in cycle.plan.actions]
        assert [type(action) for action in actions] == [kind]
