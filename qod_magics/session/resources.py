"""The resources of a session: broker, task managers and temporary files, released together."""

from __future__ import annotations

import secrets
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from qod_magics.application.streams.stream import Mode
from qod_magics.errors import KafkaError, SetupError, TaskManagerError, UsageProblem
from qod_magics.kafka.broker import EmbeddedBroker, broker_archives
from qod_magics.kafka.clusters import Clusters
from qod_magics.kafka.topics import Presence, sweep
from qod_magics.machine import class_data
from qod_magics.machine.cache import cache_dir, locked
from qod_magics.machine.child import Directory
from qod_magics.machine.cores import is_limited, planned_cpus
from qod_magics.session.keeping import Keeper
from qod_magics.session.nodes import SessionNodes
from qod_magics.session.pool import CONNECT, LOCAL, Budget, Pool
from qod_magics.session.provisioning import BudgetMaker, Provisioner
from qod_magics.session.settings import Settings, check_kind, check_session
from qod_magics.spark.plans.dial import DialBoard
from qod_magics.spark.queries.checkpoints import checkpoint_root
from qod_magics.spark.queries.warm_up import warm_up
from qod_magics.spark.runtime import SparkRuntime
from qod_magics.spark.servers.connection import begin, leave_connect_mode
from qod_magics.spark.servers.joining import start_local
from qod_magics.spark.servers.remote import NO_UI, Remote
from qod_magics.spark.servers.server import LocalServer, ServerOptions, server_archive
from qod_magics.spark.servers.task_manager import TaskManager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# --- Archives for the first start -------------------------------------------------------------------------------------
# First start on a set-up: run a session's JVMs once and archive their classes, to make later starts faster.

#: Queries run in either mode: the classes of both are archived.
MODES: tuple[Mode, ...] = ("realtime", "microbatch")


def missing() -> bool:
    """Return whether an archive is missing. Raises SetupError: there is no Java, no Spark, or no jars."""
    return any(class_data.is_wanted(archive) for archive in (server_archive(), *broker_archives()))


def make_archives(say: Callable[[str], None]) -> None:
    """Make missing archives: start a broker and a task manager, run a query, and shut both down in order.

    Concurrent processes do this once, under a lock; sessions started meanwhile run without archives.

    Args:
        say: called with one line if archiving begins.

    Raises:
        SetupError, KafkaError, TaskManagerError: a process can't be started, or the JVM wrote no archive.

    """
    with locked(cache_dir() / "class-data.lock"):
        if not missing():
            return
        say("Making archives of Java classes, once, so that later starts take less time: about a minute.")
        class_data.remove_unfinished()
        board = DialBoard("archives")
        server = LocalServer(
            "archives", ServerOptions(), archiving=True
        )  # starts beside the broker, and ends beside it
        with ExitStack() as endings:
            endings.callback(server.stop)
            broker = endings.enter_context(EmbeddedBroker(archiving=True))
            manager = start_local(server.name, server.options, board, 0.0, server=server)
            endings.callback(manager.close)
            if manager.server is not server:  # one without an archive, on other ports
                raise TaskManagerError(
                    "A port was taken meanwhile, and no archive is made: try again.", rule="free port"
                )
            for mode in [mode for mode in MODES if mode != "realtime" or not manager.no_realtime]:
                warm_up(manager, broker, DialBoard(f"archives-{mode}"), None, whole_batch=True, mode=mode)
            ended = begin(partial(server.child.end, class_data.END_S), "end")
            try:
                broker.stop()
            finally:
                ended.result()
        if server.making is not None:
            server.making.finish()
        if not all(
            archive is None or class_data.is_whole(archive) for archive in (server_archive(), *broker_archives())
        ):
            raise SetupError(
                "Java wrote no archive of its classes: starts take longer, but work. To try again, remove "
                f"{class_data.directory()}."
            )


# --- Task managers added and removed by hand --------------------------------------------------------------------------

#: The smallest share of its cores to which a task manager can be limited.
LEAST_SHARE = 0.05


class TaskManagers:
    """Adds and removes them, and waits for that.

    Args:
        runtime: which they join and leave.
        provisioner: starts them.
        settings: options of local ones.

    Attributes:
        nodes: adds and releases them within a budget; None without one.

    """

    def __init__(self, runtime: SparkRuntime, provisioner: Provisioner, settings: Settings) -> None:
        self._runtime, self._provisioner, self._settings = runtime, provisioner, settings
        self.nodes: SessionNodes | None = None

    def __repr__(self) -> str:
        return f"task managers {', '.join(self._runtime.task_managers) or 'none'}; {self.nodes or 'no budget'}"

    def use(self, budget: Budget) -> None:
        """Let plans add and release them within the budget, if it has a limit. Call it once the first have joined."""
        if budget.most is not None:
            maker = BudgetMaker(self._provisioner, self._settings, budget.each)
            # those of a local one are known: the last one may have been added by hand, with others
            local = planned_cpus(budget.each) * (1 - self._settings.headroom)
            cores = ChainMap({LOCAL: local}, self._provisioner.cores_of)
            pool = Pool(budget, self._provisioner.name, cores, self._provisioner.start_s)
            self.nodes = SessionNodes(pool, maker, self._runtime)
            self._runtime.use_nodes(self.nodes)

    def add(
        self,
        url: str | None,
        spark: SparkSession | None,
        cores: int | None,
        cpus: Sequence[int] | None,
        ui: str | None,
        ui_headers: Mapping[str, str] | None,
        jit: str | None,
        memory: str | None,
        slots: int | None,
    ) -> str:
        """`Session.add_task_manager`."""
        of_local = {"cpus": cpus, "jit": jit, "memory": memory, "slots": slots}
        if spark is not None:
            check_session(url, {"cores": cores, "ui": ui, "ui-header": ui_headers or None, **of_local})
        else:
            check_kind(url, {"ui": ui, "ui-header": ui_headers or None}, of_local)
        server = None if url is None else Remote(url, cores, "" if ui == NO_UI else ui, ui_headers or {})
        if cores is not None and cpus is not None:
            raise UsageProblem(
                "--cores and --cpus both say which cores it has: leave one of them out", rule="cores or cpus"
            )
        if cores is not None and cores < 1:
            raise UsageProblem(f"a task manager of {cores} cores: it needs 1 or more", value=cores, rule="positive")
        made = self._provisioner

        def options() -> ServerOptions:
            pinned = cpus is not None or not is_limited()
            return self._settings.server(made.cores(cores, cpus), pinned, slots=slots, jit=jit, memory=memory)

        def make(id: str) -> TaskManager:
            if spark is not None:
                return made.attached(id, spark)
            return made.started(id, options) if server is None else made.connected(id, server)

        if url is None and spark is None:
            options()  # wrong ones are refused before a standby gives way

        if self.nodes is None:
            return made.join(make(made.name())).id
        plain = all(option is None for option in (url, spark, cores, *of_local.values()))
        return self.nodes.admit(LOCAL if url is None and spark is None else CONNECT, make, plain=plain, url=url)

    def remove(self, id: str, kill: bool) -> bool:
        """`Session.remove_task_manager`."""
        if kill:
            if self.nodes is None or not self.nodes.kill(id):
                self._runtime.kill_task_manager(id)
        elif self.nodes is not None:
            return self.nodes.remove(id)
        else:
            self._runtime.remove_task_manager(id)
        return False

    def limit(self, id: str, share: float) -> None:
        """`Session.limit_cpu`."""
        if not LEAST_SHARE <= share <= 1.0:  # also NaN
            raise UsageProblem(
                f"the CPU of a task manager must be a share of its cores from {LEAST_SHARE:g} to 1, got {share!r}"
            )
        self._runtime.limit_cpu(id, share)

    def end(self) -> None:
        """Start nothing more within the budget, and close the standby."""
        if self.nodes is not None:
            self.nodes.end()


class Resources:
    """The resources of one session. If one can't be created, all are released.

    Args:
        clusters: those of Kafka, which answer.
        settings: headroom, checkpoints, and the period that rates are averaged over.
        keeper: of a session with a name, whose lease ends with the rest; None: it has none.

    Attributes:
        id: names the session's topics, dials and checkpoints.
        clusters: those of Kafka; a broker that the session has started ends with the rest.
        directory: temporary files.
        runtime: the task managers and the queries on them.
        provisioner: adds task managers to the runtime.
        managers: adds and removes them by hand, and within a budget.
        notes: what was done to the user's broker, or could not be, one line each.

    """

    def __init__(
        self,
        clusters: Clusters,
        settings: Settings,
        *,
        keeper: Keeper | None = None,
    ) -> None:
        self.id = secrets.token_hex(3) if keeper is None else keeper.id
        self.keeper = keeper
        self.clusters = clusters
        self._endings = ExitStack()  #: cleanup callbacks, last in first out
        try:
            broker = clusters.own
            if clusters.embedded is not None:
                self._endings.callback(clusters.embedded.stop)
            self.notes = () if clusters.embedded is not None or keeper is not None else self._appear()
            if keeper is not None:
                self._endings.callback(keeper.close)
                self.notes = (*keeper.notes, *keeper.uses(*clusters.all))
            elif settings.checkpoints:
                self.notes = (*self.notes, f"checkpoints stay in {settings.checkpoints} when the session ends")
            self.directory = Directory("qod-session-")
            self._endings.callback(self.directory.remove)
            root = checkpoint_root(settings.checkpoints or self.directory.path / "checkpoints")
            checkpoints = f"{root.rstrip('/')}/{self.id}" if keeper is None else str(keeper.directory)
            manifest = None if keeper is None else keeper.manifest
            self.runtime = SparkRuntime(
                broker,
                self.id,
                checkpoints,
                settings.period_s,
                named=keeper is not None,
                manifest=manifest,
                users=None if clusters.internal is None else clusters.users,
            )
            self.runtime.resuming.same_kafka = keeper is None or keeper.same_kafka
            self.provisioner = Provisioner(self.runtime, settings.headroom, clusters.embedded is not None)
            self.managers = TaskManagers(self.runtime, self.provisioner, settings)
            provisioner, managers = self.provisioner, self.managers
            for end in (leave_connect_mode, provisioner.end, self.runtime.close, managers.end, provisioner.cool):
                self._endings.callback(end)
        except BaseException:
            self.end()
            raise

    def __repr__(self) -> str:
        return f"session {self.id}: Kafka at {self.clusters.users.bootstrap}; {self.runtime}"

    def _appear(self) -> tuple[str, ...]:
        """Mark this session as alive on the broker with its own topics, and delete topics of dead ones there."""
        notes, kafka = [], self.clusters.own
        try:
            presence = Presence(kafka, self.id)
            presence.begin()
            self._endings.callback(presence.end)
        except KafkaError as error:
            notes.append(f"if this session is killed, its topics stay on this broker: {error}")
        try:
            swept = sweep(kafka)
            if swept:
                notes.append(f"deleted {sum(swept.values())} topics of sessions that were killed: {', '.join(swept)}")
        except KafkaError as error:
            notes.append(f"topics of sessions that were killed stay on this broker: {error}")
        return tuple(notes)

    def left(self) -> Sequence[str]:
        """After `end`: what could not be stopped or deleted, one line each. Our own broker has gone with its topics."""
        return [*self.runtime.unstopped, *([] if self.clusters.embedded is not None else self.runtime.undeleted)]

    def end(self) -> None:
        """Stop all queries, our servers and the session's own broker, if any; remove the files."""
        with suppress(Exception):  # all callbacks run, even if one raises
            self._endings.close()
