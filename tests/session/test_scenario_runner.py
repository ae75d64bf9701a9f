"""Events of a scenario on a session that takes note of its streams."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from qod_magics.errors import ApplicationError
from qod_magics.kafka.scenario import ScenarioEvent
from qod_magics.session.injectors import ScenarioRunner, Start
from tests.texts import tells

WAIT_S = 30.0  #: far more than anything here takes


class Declared:
    """In the place of a session: the names of its streams, and what was noted."""

    alive = True

    def __init__(self) -> None:
        self.application = self.controller = self
        self.names: tuple[str, ...] = ("before",)
        self.notes: list[tuple[str, str]] = []

    def annotate(self, **_: Any) -> None:
        return None

    def note(self, kind: str, words: str) -> None:
        self.notes.append((kind, words))

    def stream(self, name: str) -> None:
        self.names += (name,)

    def stop(self, name: str) -> None:
        self.names = tuple(n for n in self.names if n != name)


def played(
    session: Declared, applications: Mapping[str, Start], *events: tuple[str, str], at_s: float = 0.0
) -> ScenarioRunner:
    """The runner of these events (action and target), once it has come to its end: the injector's, at second 1."""
    injector: Any = SimpleNamespace(
        scenario=SimpleNamespace(events=[ScenarioEvent(at_s, *event) for event in events]),
        phase=lambda: None,
        position=lambda: 1.0,
        alive=lambda: False,
    )
    runner = ScenarioRunner(session, injector, applications)  # type: ignore[arg-type]
    assert runner.wait(WAIT_S)
    return runner


def broken(session: Any) -> None:
    session.stream("half")
    raise KeyError("no such column")


def test_an_application_that_breaks_is_noted_and_the_scenario_goes_on() -> None:
    session = Declared()
    events = ("start_application", "broken"), ("start_application", "whole")
    runner = played(session, {"broken": broken, "whole": lambda s: s.stream("whole")}, *events)
    ((kind, said),) = session.notes
    assert kind == "scenario-failed"
    assert tells(said, "start_application", "broken", "KeyError: 'no such column'")
    assert [event.target for event in runner.done] == ["whole"]
    assert session.names == ("before", "half", "whole")


def test_what_a_broken_application_declared_is_stopped_with_it() -> None:
    session = Declared()
    played(session, {"broken": broken}, ("start_application", "broken"), ("stop_application", "broken"))
    assert session.names == ("before",)


def test_an_error_that_says_what_is_wrong_is_noted_as_it_is() -> None:
    def refused(_: Any) -> None:
        raise ApplicationError("there is no stream 'trips'")

    session = Declared()
    played(session, {"app": refused}, ("start_application", "app"))
    ((kind, said),) = session.notes
    assert kind == "scenario-failed"
    assert tells(said, "start_application", "app", "'trips'")


def test_a_scenario_is_over_with_its_injector_and_what_was_not_due_is_noted() -> None:
    session = Declared()
    runner = played(session, {"app": lambda s: s.stream("x")}, ("start_application", "app"), at_s=5.0)
    ((kind, said),) = session.notes
    assert kind == "scenario-failed"
    assert tells(said, "start_application", "app", "second 5")
    assert runner.done == []
    played(session, {"app": lambda s: s.stream("x")}, ("start_application", "app"), at_s=1.0)
    assert session.names == ("before", "x")


def test_a_phase_that_begins_while_a_task_manager_starts_is_annotated_then() -> None:
    annotated, up = threading.Event(), threading.Event()

    class Slow(Declared):
        def annotate(self, **annotations: Any) -> None:
            if annotations == {"phase": "overload"}:
                annotated.set()

        def add_task_manager(self) -> str:
            assert up.wait(WAIT_S)
            return "tm2"

    injector: Any = SimpleNamespace(
        scenario=SimpleNamespace(events=[ScenarioEvent(0.0, "add_task_manager", "more")]),
        phase=lambda: "overload",
        position=lambda: 1.0,
        alive=lambda: not up.is_set(),
    )
    runner = ScenarioRunner(Slow(), injector, {})  # type: ignore[arg-type]
    assert annotated.wait(WAIT_S)
    assert runner.done == []
    up.set()
    assert runner.wait(WAIT_S)
    assert [event.target for event in runner.done] == ["more"]
    runner.stop()
