"""How task managers come to a session: started here, reached at an address, or taken from the notebook."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from qod_magics.spark.runtime import SparkRuntime
from qod_magics.spark.server import LocalServer, ServerOptions
from qod_magics.spark.task_manager import TaskManager, attach_session, attach_url, start_local
from qod_magics.spark.warm_up import warm_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Fleet:
    """The task managers of one session, each of which joins the runtime when it is warm. Any thread may add one.

    Args:
        runtime: what they join.
        headroom: part of each one's cores that plans leave free, fraction of 1.

    """

    def __init__(self, runtime: SparkRuntime, headroom: float) -> None:
        self._runtime = runtime
        self._headroom = headroom
        self._names = 0
        self._ended = False
        self._servers: list[LocalServer] = []

    def start(self, options: ServerOptions) -> TaskManager:
        """Start a local one. Raises SetupError, TaskManagerError; nothing is left behind then."""
        board = self._runtime.board
        return self._join(start_local(self._name(), options, board, self._headroom, self._begun))

    def connect(self, url: str, ui: str | None = None, cores: float | None = None) -> TaskManager:
        """Reach the one behind a URL `sc://host:port`. Raises TaskManagerError."""
        return self._join(attach_url(self._name(), url, self._runtime.board, self._headroom, ui, cores))

    def attach(self, spark: SparkSession) -> TaskManager:
        """Take a Spark session that is there. Raises TaskManagerError."""
        return self._join(attach_session("spark", spark, self._runtime.board, self._headroom))

    @property
    def taken_cores(self) -> frozenset[int]:
        """The numbers of the cores that local ones are on."""
        servers = [m.server for m in self._runtime.task_managers.values() if m.server is not None]
        return frozenset(cpu for server in servers for cpu in server.options.cpus or ())

    def end(self) -> None:
        """End all servers that were started here; one that is only just starting ends as soon as it has begun."""
        self._ended = True
        for server in list(self._servers):
            with suppress(Exception):
                server.stop()

    def _name(self) -> str:
        self._names += 1
        return f"tm{self._names}"

    def _begun(self, server: LocalServer) -> None:
        self._servers = [*(known for known in self._servers if known.child.alive()), server]
        if self._ended:
            server.stop()

    def _join(self, manager: TaskManager) -> TaskManager:
        try:
            warm_up(manager, self._runtime.kafka, self._runtime.board, self._runtime.checkpoints)
            self._runtime.add_task_manager(manager)
        except BaseException:
            manager.close()
            raise
        return manager
