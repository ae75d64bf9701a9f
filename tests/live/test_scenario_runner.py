"""A scenario's events on a live cluster: an application and a task manager come and go."""

from __future__ import annotations

import pytest

from qod_magics.errors import ScenarioError
from qod_magics.session.session import Session
from tests.live.conftest import PATIENCE_S
from tests.live.watching import Events

SCENARIO = {
    "duration_s": 8,
    "phases": [{"name": "first", "from_s": 0}, {"name": "second", "from_s": 5}],
    "topics": [{"topic": "played", "data": {"generator": "points"}, "rate": 100}],
    "events": [
        {"at_s": 1, "start_application": "points"},
        {"at_s": 2, "add_task_manager": "another"},
        {"at_s": 6, "remove_task_manager": "another"},
        {"at_s": 7, "stop_application": "points"},
    ],
}


def test_an_application_and_a_task_manager_come_and_go_as_the_scenario_says(qod: Session) -> None:
    begun: list[float] = []
    there = set(qod.runtime.task_managers)

    def points(session: Session) -> None:
        begun.append(injector.position())
        session.stream("points", topic="played", schema="id INT, x DOUBLE", priority=1, min_accuracy=0.1)
        assert session.application.names == ("points",)

    with Events(qod) as events:
        injector = qod.inject(SCENARIO)
        runner = qod.play(injector, {"points": points})
        assert runner.wait(PATIENCE_S)
        injector.stop()
        removed = events.first("task-manager-removed")["task_manager"]
        assert removed not in there
        assert events.of("task-manager-up", task_manager=removed)
    assert len(begun) == 1
    assert begun[0] >= 1
    assert [event.action for event in runner.done] == [
        "start_application",
        "add_task_manager",
        "remove_task_manager",
        "stop_application",
    ]
    assert qod.application.names == ()
    assert set(qod.runtime.task_managers) == there


def test_a_scenario_that_starts_what_nobody_gave_is_refused(qod: Session) -> None:
    injector = qod.inject(SCENARIO)
    with pytest.raises(ScenarioError, match="'points'"):
        qod.play(injector, {"pints": print})
    injector.stop()
