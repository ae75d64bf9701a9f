"""The injectors of a session, which end with it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from qod_magics.controller.journal import describe
from qod_magics.errors import ScenarioError, nearest
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.injector import Injector, ScenarioForm
from qod_magics.kafka.scenario import ScenarioEvent
from qod_magics.machine.cores import check_cores

if TYPE_CHECKING:
    from qod_magics.session.interface import SessionInterface


class Injectors:
    """Starts injectors, each in a process of its own.

    Args:
        kafka: the broker that they send to.
        endings: what is done when the session ends; each injector is stopped then.

    Attributes:
        started: the oldest first; some may have ended.

    """

    def __init__(self, kafka: Kafka, endings: ExitStack) -> None:
        self.started: list[Injector] = []
        self._kafka, self._endings = kafka, endings

    def __repr__(self) -> str:
        return f"{len(self.started)} injectors, {sum(injector.alive() for injector in self.started)} at work"

    def start(self, scenario: ScenarioForm, record: str | os.PathLike[str] | None, cpus: set[int] | None) -> Injector:
        """`Session.inject`."""
        check_cores(cpus)
        injector = Injector.into(self._kafka, scenario, record, cpus)
        injector.start()
        self._endings.callback(injector.stop)
        self.started.append(injector)
        return injector


# --- Events of a scenario ---------------------------------------------------------------------------------------------

#: An application of a scenario: declares its streams on the given session.
Start = Callable[[Any], object]

LOOK_S = 0.1


class ScenarioRunner:
    """Follows an injector on threads of its own: annotates the scenario's phases, and applies its events to the session
    when they are due.

    A task manager that the scenario adds gets the session's next id; the scenario's name for it only serves to remove
    the same one later. Applications are functions that declare streams; stopping one stops the streams it declared.
    A failed event is noted in the recording, and the scenario continues. It is over when its injector has ended: where
    that was stopped or killed, the events that were not due yet are noted instead.
    """

    def __init__(self, session: SessionInterface, injector: Injector, applications: Mapping[str, Start]) -> None:
        for event in injector.scenario.events:
            if event.action == "start_application" and event.target not in applications:
                raise ScenarioError(
                    f"the scenario starts the application {event.target!r}, which was not given."
                    f"{nearest(event.target, applications)}"
                )
        self.session = session
        self.injector = injector
        self.applications = applications
        self.done: list[ScenarioEvent] = []  #: events applied so far
        self._managers: dict[str, str] = {}  #: id by the scenario's name
        self._streams: dict[str, tuple[str, ...]] = {}  #: declared streams, by application
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="qod-scenario-runner", daemon=True)
        self._phases = threading.Thread(target=self._annotate, name="qod-scenario-phases", daemon=True)
        self._phases.start()
        self._thread.start()

    def __repr__(self) -> str:
        return f"runner of a scenario: {len(self.done)} of {len(self.injector.scenario.events)} events are done"

    def stop(self) -> None:
        """Apply no more events; the injector keeps sending."""
        self._ended.set()
        self._thread.join(30.0)
        self._phases.join(30.0)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the scenario is over; False when `timeout_s` seconds passed first."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _annotate(self) -> None:
        """Name each phase when it begins; events may take longer than a phase."""
        phase: str | None = None
        ended = False
        while not ended and not self._ended.wait(LOOK_S) and self.session.alive:
            ended = not self.injector.alive()
            now = self.injector.phase()
            if now != phase:
                phase = now
                self.session.annotate(phase=phase)

    def _run(self) -> None:
        left = list(self.injector.scenario.events)
        while not self._ended.wait(LOOK_S) and self.session.alive:
            ended = not self.injector.alive()  # first: what is due by its end is done
            while left and left[0].at_s <= self.injector.position():
                event = left.pop(0)
                try:
                    self._do(event)
                    self.done.append(event)
                except Exception as error:  # applications are functions of the user's
                    words = f"{event.action} {event.target}: {describe(error)}"
                    self.session.controller.note("scenario-failed", words)
            if ended:
                for event in left:
                    words = f"{event.action} {event.target}: the injector ended before second {event.at_s:g}"
                    self.session.controller.note("scenario-failed", words)
                return

    def _do(self, event: ScenarioEvent) -> None:
        session, name = self.session, event.target
        if event.action == "add_task_manager":
            self._managers[name] = session.add_task_manager()
        elif event.action == "remove_task_manager":
            session.remove_task_manager(self._managers.pop(name, name))
        elif event.action == "start_application":
            before = set(session.application.names)
            try:
                self.applications[name](session)
            finally:  # one that breaks half-way has declared some
                self._streams[name] = tuple(n for n in session.application.names if n not in before)
        else:
            for stream in reversed(self._streams.pop(name, ())):
                session.stop(stream)
