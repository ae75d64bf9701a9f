"""A scenario's events on a live cluster: an application and a task manager come and go."""

from __future__ import annotations

import pytest

from qod_magics.errors import ScenarioError
from qod_magics.session import Session
from tests.live.conftest import eventually

SCENARIO = {
    "duration_s": 45,
    "phases": [{"name": "first", "from_s": 0}, {"name": "second", "from_s": 20}],
    "topics": [{"topic": "played", "data": {"generator": "points"}, "rate": 100}],
    "events": [
        {"at_s": 1, "start_application": "points"},
        {"at_s": 2, "add_task_manager": "another"},
        {"at_s": 40, "remove_task_manager": "another"},
        {"at_s": 41, "stop_application": "points"},
    ],
}


def test_an_application_and_a_task_manager_come_and_go_as_the_scenario_says(qod: Session) -> None:
    def points(session: Session) -> None:
        session.stream("points", topic="played", schema="id INT, x DOUBLE", priority=1, min_accuracy=0.1)

    injector = qod.inject(SCENARIO)
    player = qod.play(injector, {"points": points})
    eventually(lambda: len(player.done) >= 2, 60, what="the first two events")
    assert "points" in qod.application.names
    assert len(qod.runtime.task_managers) == 3
    assert player.wait(120)
    injector.stop()
    assert [event.action for event in player.done] == [
        "start_application",
        "add_task_manager",
        "remove_task_manager",
        "stop_application",
    ]
    assert qod.application.names == ()
    assert len(qod.runtime.task_managers) == 2


def test_a_scenario_that_starts_what_nobody_gave_is_refused(qod: Session) -> None:
    injector = qod.inject(SCENARIO)
    with pytest.raises(ScenarioError, match="'points'"):
        qod.play(injector, {"pints": print})
    injector.stop()
