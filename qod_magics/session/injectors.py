"""The injectors of a session, which end with it."""

from __future__ import annotations

import os
from contextlib import ExitStack

from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.injector import Injector, ScenarioForm
from qod_magics.machine.cores import check_cores


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
