"""First start on a set-up: run a session's JVMs once and archive their classes, to make later starts faster."""

from __future__ import annotations

from collections.abc import Callable

from qod_magics.application.streams.stream import Mode
from qod_magics.errors import SetupError, TaskManagerError
from qod_magics.jvm import class_data
from qod_magics.kafka.broker import EmbeddedBroker, broker_archives
from qod_magics.machine.cache import cache_dir, locked
from qod_magics.spark.plans.dial import DialBoard
from qod_magics.spark.queries.warm_up import warm_up
from qod_magics.spark.servers.server import LocalServer, ServerOptions, server_archive
from qod_magics.spark.servers.task_manager import start_local

#: Queries run in either mode: the classes of both are archived.
MODES: tuple[Mode, ...] = ("realtime", "microbatch")


def missing() -> bool:
    """Whether an archive is missing. Raises SetupError: there is no Java, no Spark, or no jars."""
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
        with EmbeddedBroker(archiving=True) as broker:
            server = LocalServer("archives", ServerOptions(), archiving=True)
            manager = start_local(server.name, server.options, board, 0.0, server=server)
            try:
                if manager.server is not server:  # one without an archive, on other ports
                    raise TaskManagerError("A port was taken meanwhile, and no archive is made: try again.")
                for mode in [mode for mode in MODES if mode != "realtime" or not manager.no_realtime]:
                    warm_up(manager, broker, DialBoard(f"archives-{mode}"), None, whole_batch=True, mode=mode)
                server.child.end(class_data.END_S)
            finally:
                manager.close()
            if server.making is not None:
                server.making.finish()
        if not all(
            archive is None or class_data.is_whole(archive) for archive in (server_archive(), *broker_archives())
        ):
            raise SetupError(
                "Java wrote no archive of its classes: starts take longer, but work. To try again, remove "
                f"{class_data.directory()}."
            )
