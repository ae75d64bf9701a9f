"""The streams of a session: what is declared is what runs."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from qod_magics.application.application import Application
from qod_magics.application.tasks import TaskSpec, tasks
from qod_magics.errors import ApplicationError, KafkaError, TaskManagerError
from qod_magics.spark.results import read_results

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from qod_magics.application.stream import StreamDeclaration
    from qod_magics.spark.runtime import SparkRuntime


class Streams:
    """An application and the runtime that runs it. A change that the runtime refuses changes neither.

    Any thread may change them: one change waits for the other.

    Attributes:
        application: the declared streams; its tasks are those that the runtime has.

    """

    def __init__(self, runtime: SparkRuntime) -> None:
        self.application = Application()
        self._runtime = runtime
        self._changing = threading.RLock()

    def __repr__(self) -> str:
        return f"streams of a session: {', '.join(self.application.names) or 'none'}"

    def declare(self, declaration: StreamDeclaration, dry_run: bool = False) -> bool:
        """Run a stream too, or only try its recipe; whether it takes the place of an earlier one of its name.

        Raises:
            ApplicationError, KafkaError, TaskManagerError.

        """
        with self._changing:
            application = self.application.declare(declaration)
            replaced = declaration.name in self.application
            with suppress(KafkaError, TaskManagerError):  # what waits may be declared before its topic is there
                awaited = tasks(application.awaited(declaration.name))
                if awaited:
                    self._runtime.deployment.check(awaited, self._runtime.workshop())
            if dry_run:
                self._runtime.deployment.check(self._tasks(application), self._runtime.workshop())
            else:
                self._run(application)
            return replaced

    def remove(self, name: str) -> None:
        """Stop a stream and forget it. Raises ApplicationError: there is no such one, or others read it."""
        with self._changing:
            self._run(self.application.remove(name))

    def clear(self) -> None:
        """Stop all streams and forget them."""
        with self._changing:
            self._run(Application())

    def restrict(self, name: str, *, priority: int | None = None, min_accuracy: float | None = None) -> None:
        """Change a query's restrictions while it runs. Raises ApplicationError."""
        with self._changing:
            application = self.application.restrict(name, priority=priority, min_accuracy=min_accuracy)
            self._runtime.deployer.restrict(self._tasks(application))
            self.application = application

    def results(self, name: str) -> DataFrame:
        """What a query with a memory sink has given. Raises ApplicationError: there is no such query."""
        deployment = self._runtime.deployment
        topic = deployment.results.get(name)
        if topic is None:
            self.application[name]
            memory = ", ".join(deployment.results) or "none"
            raise ApplicationError(f"{name!r} keeps no rows in memory; streams with --sink memory: {memory}")
        return read_results(self._runtime.workshop(), topic, deployment.schemas[name])

    def _run(self, application: Application) -> None:
        self._runtime.deployer.deploy(self._tasks(application))
        self.application = application

    def _tasks(self, application: Application) -> tuple[TaskSpec, ...]:
        """The application's tasks; streams that run apart stay so, with the rows that wait between them."""
        return tasks(application, self._runtime.deployment.edges, self._runtime.deployer.inlinable(application))
