"""The streams of a session: the declared ones are the deployed ones."""

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
    """An application and its runtime. A change that the runtime rejects leaves both unchanged.

    Thread-safe: changes are serialised.

    Attributes:
        application: the declared streams; its tasks are the deployed ones.

    """

    def __init__(self, runtime: SparkRuntime) -> None:
        self.application = Application()
        self._runtime = runtime
        self._changing = threading.RLock()

    def __repr__(self) -> str:
        return f"streams of a session: {', '.join(self.application.names) or 'none'}"

    def declare(self, declaration: StreamDeclaration, dry_run: bool = False) -> bool:
        """Declare and start a stream, or only check its recipe (`dry_run`). Returns whether it replaces another.

        Raises:
            ApplicationError, KafkaError, TaskManagerError.

        """
        with self._changing:
            application = self.application.declare(declaration)
            replaced = declaration.name in self.application
            with suppress(KafkaError, TaskManagerError):  # a waiting stream may be declared before its topic exists
                awaited = tasks(application.awaited(declaration.name))
                if awaited:
                    self._runtime.deployment.check(awaited, self._runtime.workshop())
            if dry_run:
                self._runtime.deployment.check(self._tasks(application), self._runtime.workshop())
            else:
                self._run(application)
            return replaced

    def remove(self, name: str) -> None:
        """Stop and remove a stream. Raises ApplicationError: there is no such stream, or others read it."""
        with self._changing:
            self._run(self.application.remove(name))

    def clear(self) -> None:
        """Stop and remove all streams."""
        with self._changing:
            self._run(Application())

    def restrict(self, name: str, *, priority: int | None = None, min_accuracy: float | None = None) -> None:
        """Change a query's restrictions while it runs. Raises ApplicationError."""
        with self._changing:
            application = self.application.restrict(name, priority=priority, min_accuracy=min_accuracy)
            self._runtime.deployer.restrict(self._tasks(application))
            self.application = application

    def results(self, name: str) -> DataFrame:
        """A memory sink's rows so far. Raises ApplicationError: there is no such query."""
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
        """The application's tasks; streams deployed as separate tasks stay separate, to keep their backlog."""
        return tasks(application, self._runtime.deployment.edges, self._runtime.deployer.inlinable(application))
