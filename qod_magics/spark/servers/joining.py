"""Make task managers: start a local one, connect to a server, attach the session of a notebook."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from qod_magics.application.recipes.modules import with_our_path
from qod_magics.errors import SetupError, TaskManagerError
from qod_magics.machine.cores import core_count, every_core, planned_cpus
from qod_magics.machine.java import HOST
from qod_magics.machine.releases import check_server
from qod_magics.spark.plans import dial
from qod_magics.spark.servers.conf import OWN_SESSION_CONF, SESSION_CONF, SHUFFLE, SHUFFLE_DEFAULT, stated_shuffle
from qod_magics.spark.servers.connection import (
    CONNECT_MODE,
    call_within,
    clone,
    connect,
    hidden,
    is_connect,
    let_go,
    load_client,
    reason,
    refuse_beside_classic,
)
from qod_magics.spark.servers.cpu import (
    CoreMeter,
    CpuMeter,
    adopt,
    core_seconds,
    is_here,
    setting,
    tasks_at_once,
)
from qod_magics.spark.servers.remote import Remote
from qod_magics.spark.servers.rest import rest_of, ui_address
from qod_magics.spark.servers.server import LocalServer, PortTakenError, ServerOptions
from qod_magics.spark.servers.task_manager import INQUIRY_S, TaskManager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STARTS = 3  #: a port found free can be taken before the server binds it
#: Timeout for the first connection to a user's server, seconds.
PATIENCE_S = 5.0


def start_local(
    id: str,
    options: ServerOptions,
    board: dial.DialBoard,
    headroom: float,
    begun: Callable[[LocalServer], None] = lambda _: None,
    server: LocalServer | None = None,
) -> TaskManager:
    """Start a server, or use the one that is already starting, and connect to it. It is not warm yet: see `warm_up`.

    `headroom` (fraction of 1) of its cores is withheld from plans, so that a backlog can be drained. `begun` is called
    with the server as soon as its process runs; stopping it then ends the wait. If a port was taken meanwhile, another
    server is started, on other ports.

    Raises:
        SetupError, TaskManagerError: it can't be started; nothing is left behind.

    """
    refuse_beside_classic()
    for attempt in range(1, _STARTS + 1):
        try:
            return _start_once(server or LocalServer(id, options), board, headroom, begun)
        except PortTakenError:
            if attempt == _STARTS:
                raise
            server = None
    raise AssertionError("unreachable")


def _start_once(
    server: LocalServer, board: dial.DialBoard, headroom: float, begun: Callable[[LocalServer], None]
) -> TaskManager:
    id, options = server.name, server.options
    spark: SparkSession | None = None
    try:
        begun(server)
        load_client()
        server.wait_until_listening()
        spark = connect(server.url, patience_s=90.0, alive=server.child.alive, reattachable=False, dial=HOST)
        if options.directory is not None:
            with_our_path.add(spark)
        cores = planned_cpus(_core_count(options)) * (1 - headroom)
        made = partial(TaskManager, id, spark, kind="local", cores=cores, board=board, ui=server.ui, server=server)
        made = partial(made, capacity=planned_cpus(_core_count(options)))
        made = partial(made, shuffle=stated_shuffle(options.conf.get(SHUFFLE)))
        return call_within(partial(made, slots=options.slots), INQUIRY_S, id)
    except BaseException:
        if spark is not None:
            let_go(spark, 0.5)
        server.stop()
        raise


def _core_count(options: ServerOptions) -> int:
    """Return the number of cores of a local server, pinned to them or not."""
    return len(options.cpus or every_core())


def attach_url(
    id: str,
    server: Remote,
    board: dial.DialBoard,
    headroom: float,
    *,
    inquiry_s: float = INQUIRY_S,
    connect: Callable[[str, float], SparkSession] = connect,
) -> TaskManager:
    """Connect to a Connect server of the user's, and give the session there the settings of our own servers.

    The address of its UI (for CPU times) and its cores are queried from the server if the user has not given them.
    Without a UI, its cores are the tasks that it runs at once.

    Raises:
        SetupError: its Spark is older than pyspark.
        TaskManagerError: it can't be reached, does not answer in time, or does not report its cores.

    """
    spark = connect(server.url, PATIENCE_S)

    def attached() -> TaskManager:
        check_server(spark.version, hidden(server.url))
        shuffle = _chosen_shuffle(spark)
        kept = adopt(spark, OWN_SESSION_CONF)
        address = ui_address(spark) if server.ui is None else server.ui or None
        rest = rest_of(address, setting(spark, "spark.app.id"), server.headers)
        slots = None if rest is None else rest.cores(0.0 if server.cores else 15.0)
        usable = server.cores or slots or tasks_at_once(spark)
        if usable is None:
            raise TaskManagerError(
                f"the cores of {hidden(server.url)} must be known, got none from a Spark UI or from Spark; give them "
                "(--cores N), or the address of its UI (--ui URL)",
                name=hidden(server.url),
                rule="known cores",
            )
        planned = usable * (1 - headroom)
        made = partial(TaskManager, id, spark, kind="connect", cores=planned, board=board, ui=address, slots=slots)
        made = partial(made, headroom=None if server.cores else headroom, shuffle=shuffle)
        return made(headers=server.headers, capacity=usable, kept=kept)

    try:
        return call_within(attached, inquiry_s, hidden(server.url))
    except BaseException:
        let_go(spark, 2.0)
        raise


def attach_session(
    id: str,
    spark: SparkSession,
    board: dial.DialBoard,
    headroom: float,
    *,
    clone: Callable[[SparkSession], SparkSession] = clone,
    core_seconds: Callable[[], Mapping[int, float]] = core_seconds,
) -> TaskManager:
    """Use the notebook's own session, classic or Connect, as a task manager: queries run on a clone of it, which gets
    our values of the settings that checkpoints depend on. The notebook's session keeps its own.

    Raises:
        SetupError: its Spark is older than pyspark.
        TaskManagerError: it is stopped, or a classic session in a process with Connect sessions.

    """
    classic = not is_connect(spark)
    if classic and CONNECT_MODE in os.environ:
        raise TaskManagerError(
            "This kernel has Connect sessions, and pyspark supports only one kind per process: stop them (%qod down, "
            "spark.stop()) before attaching a classic session."
        )

    def cloned() -> SparkSession:
        check_server(spark.version, "the session")
        own = clone(spark)
        try:
            adopt(own, SESSION_CONF)
        except BaseException:
            release(own)
            raise
        return own

    try:
        own = call_within(cloned, INQUIRY_S, "the attached session")
    except SetupError:
        raise
    except Exception as error:
        raise TaskManagerError(f"The Spark session can't be attached: {reason(error)}") from error

    def attached() -> TaskManager:
        ui = spark.sparkContext.uiWebUrl if classic else ui_address(spark)
        rest = rest_of(ui, setting(spark, "spark.app.id"))
        cores = slots = None if rest is None else rest.cores()
        if cores is None:
            cores = float(spark.sparkContext.defaultParallelism if classic else core_count())
        here = is_here(spark)
        if here:
            cores = min(cores, planned_cpus(core_count()))
        planned = cores * (1 - headroom)
        options: dict[str, Any] = {"slots": slots, "capacity": cores, "shuffle": _chosen_shuffle(spark)}
        made = TaskManager(id, own, kind="attached", cores=planned, board=board, ui=ui, notebooks=spark, **options)
        made.cpu_meter = _attached_meter(cores, here, core_seconds())
        return made

    try:
        return call_within(attached, INQUIRY_S, "the attached session")
    except BaseException:
        release(own)
        raise


def _chosen_shuffle(spark: SparkSession) -> int | None:
    """Return into how many partitions a session shuffles by a setting of the user's; None: by Spark's default."""
    found = stated_shuffle(setting(spark, SHUFFLE))
    return None if found == SHUFFLE_DEFAULT else found


def release(own: SparkSession) -> None:
    """Release a session of our own; a classic one holds nothing."""
    if is_connect(own):
        let_go(own, 2.0)


def _attached_meter(cores: float, here: bool, counted: Collection[int]) -> CpuMeter | None:
    """Return a meter of the machine's cores, those that are counted, for a session that may use all of them, else None:
    that of a `local[2]` on eight cores would take what other programs use on the other six for CPU that its tasks don't
    get."""
    return CoreMeter(tuple(sorted(counted))) if here and counted and cores >= len(counted) else None
