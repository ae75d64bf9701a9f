"""Provisioning of task managers: started locally, connected by URL, or attached from the notebook."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, as_completed, wait
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from qod_magics.machine.core_claims import CoreClaim, choosing
from qod_magics.machine.cores import check_cores, free_cores
from qod_magics.spark.connection import refuse_beside_classic
from qod_magics.spark.runtime import SparkRuntime
from qod_magics.spark.server import LocalServer, ServerOptions
from qod_magics.spark.task_manager import TaskManager, attach_session, attach_url, start_local
from qod_magics.spark.timeouts import begin
from qod_magics.spark.warm_up import warm_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How long shutdown waits for a server that is still starting, seconds.
END_S = 30.0


def launch(choose: Callable[[], Sequence[ServerOptions]]) -> list[Future[LocalServer]]:
    """Start the servers that `choose` returns (tm1, tm2, ...) in the background before the session exists: they take
    several seconds, and so does its broker. See `Provisioner.assemble` and `abandon`.

    Raises TaskManagerError: this kernel has a classic Spark session. Raises whatever `choose` raises.
    """
    with choosing():
        servers = choose()
        if servers:
            refuse_beside_classic()
        claims = [CoreClaim(options.cpus or ()) for options in servers]
    named = zip(count(1), servers, claims, strict=False)
    return [begin(partial(LocalServer, f"tm{i}", options, claim), "launch") for i, options, claim in named]


def abandon(launched: Sequence[Future[LocalServer]]) -> None:
    """End servers that were launched, whether or not a provisioner has taken them over."""
    for future in launched:
        with suppress(Exception):
            future.result(END_S).stop()


class Provisioner:
    """The task managers of one session; each joins the runtime once warmed up. Any thread may add one.

    Args:
        runtime: the runtime that they join.
        headroom: fraction of each one's cores that plans leave free.

    """

    def __init__(self, runtime: SparkRuntime, headroom: float) -> None:
        self._runtime = runtime
        self._headroom = headroom
        self._names = count(1)
        self._ended = False
        self._coming: list[Future[TaskManager]] = []  #: pending in `assemble`
        self._servers: list[LocalServer] = []

    def assemble(self, launched: Sequence[Future[LocalServer]], urls: Sequence[str]) -> Iterator[TaskManager]:
        """Take over the launched servers and connect to the URLs, concurrently; yields each one once it has joined.

        Raises the first failure (SetupError, TaskManagerError); `end` stops the others.
        """
        self._coming += [begin(partial(self._take, self._name(), server), "up") for server in launched]
        self._coming += [begin(partial(self.connect, url), "connect") for url in urls]
        for future in as_completed(self._coming):
            yield future.result()
        self._coming.clear()

    def start(self, choose: Callable[[], ServerOptions]) -> TaskManager:
        """Start a local one with the options that `choose` returns. Raises SetupError, TaskManagerError and whatever
        `choose` raises, and leaves nothing behind."""
        refuse_beside_classic()
        with choosing():
            options = choose()
            server = LocalServer(self._name(), options)
        return self._join(start_local(server.name, options, self._runtime.board, self._headroom, self._begun, server))

    def _take(self, name: str, launched: Future[LocalServer]) -> TaskManager:
        server = launched.result()
        return self._join(start_local(name, server.options, self._runtime.board, self._headroom, self._begun, server))

    def connect(self, url: str, ui: str | None = None, cores: float | None = None) -> TaskManager:
        """Connect to the server at `sc://host:port`. Raises TaskManagerError."""
        return self._join(attach_url(self._name(), url, self._runtime.board, self._headroom, ui, cores))

    def attach(self, spark: SparkSession) -> TaskManager:
        """Attach an existing Spark session. Raises TaskManagerError."""
        return self._join(attach_session("spark", spark, self._runtime.board, self._headroom))

    def cores(self, count: int | None, cpus: Collection[int] | None = None) -> frozenset[int] | None:
        """Cores for another local one: these `cpus`, or `count` of the machine's cores, free ones first.

        Raises UsageProblem when the machine has fewer cores, or lacks one of these.
        """
        check_cores(cpus)
        if cpus is not None:
            return frozenset(cpus)
        servers = [m.server for m in list(self._runtime.task_managers.values()) if m.server is not None]
        return free_cores(count, {cpu for server in servers for cpu in server.options.cpus or ()})

    def end(self) -> None:
        """Stop all servers started here; one still starting is stopped as soon as its process runs."""
        self._ended = True
        for server in list(self._servers):
            with suppress(Exception):
                server.stop()
        wait(self._coming, END_S)

    def _name(self) -> str:
        return f"tm{next(self._names)}"

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
