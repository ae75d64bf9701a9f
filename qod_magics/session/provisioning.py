"""Start task managers, connect to them, and warm them up: at the beginning of a session, and later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, as_completed, wait
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from qod_magics.errors import QodError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.names import own_topic
from qod_magics.machine.cores import CoreClaim, check_cores, choosing, free_cores, is_limited
from qod_magics.session.settings import Settings
from qod_magics.spark.plans.dial import DialBoard
from qod_magics.spark.queries.checkpoints import check_shared
from qod_magics.spark.queries.warm_up import check_kafka, warm_up
from qod_magics.spark.runtime import SparkRuntime
from qod_magics.spark.servers.connection import begin, load_client, refuse_beside_classic
from qod_magics.spark.servers.dial_topic import read_from_topic
from qod_magics.spark.servers.joining import attach_session, attach_url, start_local
from qod_magics.spark.servers.remote import Remote
from qod_magics.spark.servers.server import LocalServer, ServerOptions
from qod_magics.spark.servers.task_manager import TaskManager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
#: How long shutdown waits for a server that is still starting, seconds.
END_S = 30.0
#: How long a task manager is left alone before its warm-up begins, seconds: where the first query follows at once, as
#: when all cells of a notebook are run, a warm-up beside it would only delay its rows.
ALONE_S = 1.0


def launch(choose: Callable[[], Sequence[ServerOptions]]) -> list[Future[LocalServer]]:
    """Start the servers that `choose` returns (tm1, tm2, ...) in the background before the session exists: they take
    several seconds, and so does its broker. See `Provisioner.assemble` and `abandon`.

    Raises TaskManagerError: this kernel has a classic Spark session. Raises whatever `choose` raises.
    """
    with choosing():
        servers = choose()
        if servers:
            refuse_beside_classic()
        claims = [CoreClaim(options.pinned_to or ()) for options in servers]
    if servers:
        begin(load_client, "client")  # Python imports it while the JVMs start
    named = zip(count(1), servers, claims, strict=False)
    return [begin(partial(LocalServer, f"tm{i}", options, claim), "launch") for i, options, claim in named]


def abandon(launched: Sequence[Future[LocalServer]], timeout_s: float = END_S) -> None:
    """End servers that were launched, whether or not a provisioner has taken them over. Waits for that for `timeout_s`
    seconds: one whose jars are still being downloaded ends when it has begun."""
    wait([begin(partial(_stop, future), "abandon") for future in launched], timeout_s)


def _stop(launched: Future[LocalServer]) -> None:
    launched.result().stop()


class Provisioner:
    """The task managers of one session. Any thread may add one.

    Each joins the runtime once warmed up. Those of a session that starts join before that where all of it is our own:
    the warm-up goes on while the first cell is written, and ends at once when a query is placed there, whose own
    batches do as much. So it is with the user's servers, once they have been asked what a query needs.

    Args:
        runtime: the runtime that they join.
        headroom: fraction of each one's cores that plans leave free.
        own_kafka: whether the session started the broker; with a user's, `assemble` tells what a query lacks there.

    """

    def __init__(
        self,
        runtime: SparkRuntime,
        headroom: float,
        own_kafka: bool = False,
        *,
        alone_s: float = ALONE_S,
        start: Callable[..., TaskManager] = start_local,
        check: Callable[[TaskManager, str], None] = check_shared,
        check_kafka: Callable[[TaskManager, Kafka, DialBoard], None] = check_kafka,
        warm_up: Callable[..., float] = warm_up,
    ) -> None:
        self._runtime = runtime
        self._alone_s, self._start, self._warm_up = alone_s, start, warm_up
        self._check, self._check_kafka = check, check_kafka
        self._headroom = headroom
        self._own_kafka = own_kafka
        self._names = count(1)
        self._ended = False
        self._cooling = threading.Event()  #: set: warm-ups in the background end
        self._lock = threading.Lock()  #: held while one of the two lists below is replaced
        self._coming: list[Future[Any]] = []  #: under way in the background
        self._servers: list[LocalServer] = []
        self.start_s: dict[str, float] = {}  #: by kind: seconds until the last one was warm
        self.cores_of: dict[str, float] = {}  #: by kind: cores of the last one, as plans see it
        self._urls: dict[str, str] = {}  #: by id: of those connected to; may hold tokens
        self._abandoned: set[str] = set()  #: ids of local ones that are to end once their process runs

    def __repr__(self) -> str:
        return f"provisioner of {', '.join(server.name for server in self._servers) or 'no local task manager'}"

    def name(self) -> str:
        """Return the id of the next one."""
        return f"tm{next(self._names)}"

    def assemble(
        self, launched: Sequence[Future[LocalServer]], servers: Sequence[Remote], warm: bool = False
    ) -> Iterator[TaskManager]:
        """Take over the launched servers and connect to the user's, concurrently; yields each one once it has joined,
        which with `warm` is when it is warm.

        Raises the first failure (SetupError, TaskManagerError); `end` stops the others.
        """
        coming = [self.track(begin(partial(self._take, self.name(), server, warm), "up")) for server in launched]
        coming += [self.track(begin(partial(self._connect, self.name(), each, warm), "connect")) for each in servers]
        for future in as_completed(coming):
            yield future.result()

    def track(self, under_way: Future[T]) -> Future[T]:
        """Have `end` wait for it."""
        with self._lock:
            self._coming = [*(future for future in self._coming if not future.done()), under_way]
        return under_way

    def started(self, id: str, choose: Callable[[], ServerOptions]) -> TaskManager:
        """A local one with the options that `choose` returns, up and warm; it has not joined. Raises SetupError,
        TaskManagerError and whatever `choose` raises, and leaves nothing behind."""
        refuse_beside_classic()
        with choosing():
            options = choose()
            server = LocalServer(id, options)
        return self._warmed(self._start(id, options, self._runtime.board, self._headroom, self._begun, server))

    def _take(self, id: str, launched: Future[LocalServer], warm: bool) -> TaskManager:
        server = launched.result()
        made = self._start(id, server.options, self._runtime.board, self._headroom, self._begun, server)
        if warm or not self._own_kafka:
            return self.join(self._warmed(made))
        self.join(made)
        self.track(begin(partial(self._warm_unless_used, made), f"warm-up-{id}"))
        return made

    def _warm_unless_used(self, manager: TaskManager) -> None:
        """Warm one up that has joined, until a query is placed on it. Queries tell why they can't run themselves."""

        def is_unused() -> bool:
            used = any(instance.task_manager is manager for instance in self._runtime.cluster.all_instances)
            return not (used or self._cooling.is_set())

        if self._cooling.wait(self._alone_s) or not is_unused():
            return
        with suppress(QodError):
            runtime = self._runtime
            self._warm_up(manager, runtime.kafka, runtime.board, runtime.checkpoints, needed=is_unused)
            if is_unused():
                self._keep_time(manager)

    def connected(self, id: str, server: Remote) -> TaskManager:
        """Return a server of the user's, warm; it has not joined. Raises TaskManagerError."""
        begun = time.monotonic()
        made = attach_url(id, server, self._runtime.board, self._headroom)
        made = self._warmed(self._with_dials(made), begun)
        self._urls[id] = server.url
        return made

    def _connect(self, id: str, server: Remote, warm: bool) -> TaskManager:
        """Have a server join once it is known to read topics and to share checkpoints; it is warmed up as ours are."""
        if warm:
            return self.join(self.connected(id, server))
        made = self._with_dials(attach_url(id, server, self._runtime.board, self._headroom))
        try:
            reads = begin(partial(self._check_kafka, made, self._runtime.kafka, self._runtime.board), f"check-{id}")
            self._check(made, self._runtime.checkpoints)
            reads.result()
        except BaseException:
            made.close()
            raise
        self._urls[id] = server.url
        self.join(made)
        self.track(begin(partial(self._warm_unless_used, made), f"warm-up-{id}"))
        return made

    def url_of(self, id: str) -> str | None:
        """Return the URL of a connected one, once."""
        return self._urls.pop(id, None)

    def attach(self, spark: SparkSession) -> TaskManager:
        """Attach an existing Spark session. Raises TaskManagerError."""
        return self.join(self.attached("spark", spark))

    def attached(self, id: str, spark: SparkSession) -> TaskManager:
        """Return a session of the notebook's, warm; it has not joined. Raises TaskManagerError."""
        return self._warmed(self._with_dials(attach_session(id, spark, self._runtime.board, self._headroom)))

    def _with_dials(self, made: TaskManager) -> TaskManager:
        """Return the same one, with a topic for its dials where it needs one; if that fails, it is closed. Raises
        KafkaError, LostError, TaskManagerError."""
        try:
            kafka = self._runtime.kafka
            name = own_topic(kafka.prefix, self._runtime.board.session, f"{made.id}.dials")
            read_from_topic(made, kafka, name)
        except BaseException:
            made.close()
            raise
        return made

    def join(self, manager: TaskManager) -> TaskManager:
        """Add a warm one to the runtime; if that fails, it is closed. Raises TaskManagerError."""
        try:
            self._runtime.add_task_manager(manager)
        except BaseException:
            if self._runtime.task_managers.get(manager.id) is not manager:  # else interrupted after that
                manager.close()
            raise
        return manager

    def cores(self, count: int | None, cpus: Collection[int] | None = None) -> frozenset[int] | None:
        """Return cores for another local one: these `cpus`, or `count` of the machine's cores, free ones first.

        Raises UsageProblem when the machine has fewer cores, or lacks one of these.
        """
        check_cores(cpus)
        if cpus is not None:
            return frozenset(cpus)
        servers = [server for server in list(self._servers) if server.child.alive()]
        return free_cores(count, [cpu for server in servers for cpu in server.options.cpus or ()])

    def abandon(self, id: str) -> None:
        """End a local one that is still starting; if its process does not run yet, as soon as it does."""
        self._abandoned.add(id)
        for server in list(self._servers):
            if server.name == id:
                begin(server.stop, f"abandon-{id}")

    def cool(self) -> None:
        """End the warm-ups in the background."""
        self._cooling.set()

    def end(self) -> None:
        """Stop all servers started here; one still starting is stopped as soon as its process runs."""
        self._ended = True
        for server in list(self._servers):
            with suppress(Exception):
                server.stop()
        wait(self._coming, END_S)

    def _begun(self, server: LocalServer) -> None:
        with self._lock:
            self._servers = [*(known for known in self._servers if known.child.alive()), server]
        if self._ended or server.name in self._abandoned:
            server.stop()

    def _warmed(self, manager: TaskManager, begun: float | None = None) -> TaskManager:
        try:
            self._check(manager, self._runtime.checkpoints)
            self._warm_up(manager, self._runtime.kafka, self._runtime.board, self._runtime.checkpoints)
        except BaseException:
            manager.close()
            raise
        self._keep_time(manager, begun)
        return manager

    def _keep_time(self, manager: TaskManager, begun: float | None = None) -> None:
        begun = manager.server.begun if manager.server is not None else begun
        if begun is not None:
            self.start_s[manager.kind] = time.monotonic() - begun
        self.cores_of[manager.kind] = manager.cores


class BudgetMaker:
    """Starts the task managers of a budget (`session.nodes.Maker`).

    Args:
        provisioner: of the session.
        settings: options of local ones.
        cores: of each local one; None: all that are free.

    """

    def __init__(self, provisioner: Provisioner, settings: Settings, cores: int | None) -> None:
        self._provisioner, self._settings, self._cores = provisioner, settings, cores
        self.url_of, self.abandon, self.track = provisioner.url_of, provisioner.abandon, provisioner.track

    def local(self, id: str) -> TaskManager:
        """Return a local one that is up and warm, with the session's options; it has not joined."""
        return self._provisioner.started(
            id, lambda: self._settings.server(self._provisioner.cores(self._cores), not is_limited())
        )

    def remote(self, id: str, url: str) -> TaskManager:
        """Return a task manager on the server at `url`; it has not joined."""
        return self._provisioner.connected(id, Remote(url))
