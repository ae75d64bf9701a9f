"""A task manager: one Spark session with its own cores, on which task instances run."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import psutil

from qod_magics.errors import LostError, TaskManagerError
from qod_magics.spark import dial, stages
from qod_magics.spark.bounded import begin, bounded
from qod_magics.spark.cpu import CoreMeter, PythonMeter
from qod_magics.spark.reason import reason
from qod_magics.spark.server import OWN_SESSION_CONF, SESSION_CONF, LocalServer, PortTakenError, ServerOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
_STARTS = 3  #: a port found free can be taken before the server binds it
#: A server that listens answers within this, however busy it is.
ANSWER_S = 30.0
#: A server of the user's takes its first connection within this.
PATIENCE_S = 5.0

_open: WeakSet[SparkSession] = WeakSet()  #: Connect sessions made here
_mode_is_ours = False  #: whether it was here that Connect mode was entered


class TaskManager:
    """One session, how to reach its metrics, and the dials it holds.

    Attributes:
        id: its name in snapshots and plans.
        kind: "local" (a server of ours), "connect" (a URL of the user's) or "attached" (the notebook's own session).
        cores: what its tasks may use, in cores.
        reading: how the plans on it read their dials.

    """

    def __init__(
        self,
        id: str,
        spark: SparkSession,
        *,
        kind: str,
        cores: float,
        board: dial.DialBoard,
        ui: str | None = None,
        server: LocalServer | None = None,
        settings_before: Mapping[str, str | None] | None = None,
    ) -> None:
        self.id = id
        self.spark = spark
        self.kind = kind
        self.cores = cores
        self.ui = ui
        self.server = server
        self._settings_before = dict(settings_before or {})
        self.silent_since: float | None = None  #: monotonic seconds; None: it answered last time
        self.polling = threading.Lock()  #: held while a poll of its queries is under way
        self.dials: dict[str, float] = {}  #: those whose values are known
        self._turning = threading.Lock()
        master = _setting(spark, "spark.master") or ""
        local = master.startswith("local")
        if dial.reflection_allowed(spark, f"qod.{board.session}.probe"):
            self.reading = dial.Reading.ROW if local else dial.Reading.BATCH
        else:
            self.reading = dial.Reading.RESTART
        self.application: str | None = _setting(spark, "spark.app.id")
        if self.application is None and ui is not None:
            with suppress(OSError):
                self.application = next(iter(stages.applications(ui)), None)
        cpus = server.options.cpus if server is not None and server.child.pinned else None
        whole_machine = tuple(range(os.cpu_count() or 1))
        here = kind == "local" or (kind == "attached" and _is_here(spark))
        self.core_meter = CoreMeter(tuple(sorted(cpus)) if cpus else whole_machine) if here else None
        self.python_meter = PythonMeter(server.child.pid) if server is not None else None

    def __repr__(self) -> str:
        return self.describe

    @property
    def describe(self) -> str:
        """One line for `status`."""
        where = (
            ""
            if self.server is None or self.server.options.cpus is None
            else (
                f" on core{'s' if len(self.server.options.cpus) > 1 else ''} "
                + ",".join(map(str, sorted(self.server.options.cpus)))
                + ("" if self.server.child.pinned else " (not pinned: this system has no affinity)")
            )
        )
        return f"{self.id}: {self.kind}{where}, {self.cores:g} cores for tasks, dials per {self.reading.value}"

    def alive(self) -> bool:
        """False once its process has ended. Others than ours are judged by their answers (`silent_since`)."""
        return self.server is None or self.server.child.alive()

    def ping(self) -> None:
        """Make a call that any server answers. Raises whatever Spark raises when this one does not."""
        self.spark.conf.get("spark.sql.shuffle.partitions")

    def ask(self, call: Any, what: str, timeout_s: float = 10.0) -> Any:
        """Make a call to it within a bound.

        Raises:
            LostError: its process is gone.
            TaskManagerError: no answer in time.

        """
        self._refuse_if_gone()
        return bounded(call, timeout_s, f"{self.id}: {what}")

    def _refuse_if_gone(self) -> None:
        if not self.alive():
            raise LostError(f"Task manager {self.id} is gone (exit code {self.server.child.returncode}).")  # type: ignore[union-attr]

    def turn(self, values: Mapping[str, float], timeout_s: float = 10.0) -> None:
        """Set those of these dials that differ from what it holds, in one call.

        A call that was given up may still reach it, but never after a later one: that waits for its end.

        Raises:
            LostError: its process is gone.
            TaskManagerError: no answer in time.

        """
        self._refuse_if_gone()
        if not self._turning.acquire(timeout=timeout_s):
            raise TaskManagerError(f"{self.id} has not answered since it was last told its dials.")
        changed = {key: value for key, value in values.items() if self.dials.get(key) != value}
        if not changed or self.reading is dial.Reading.RESTART:
            self.dials.update(changed)
            self._turning.release()
            return
        for key in changed:  # unknown until it answers
            self.dials.pop(key, None)

        def turn() -> None:
            try:
                dial.turn(self.spark, changed)
                self.dials.update(changed)
            finally:
                self._turning.release()

        bounded(turn, timeout_s, f"{self.id}: turning dials")

    def stage_cpu(self) -> dict[tuple[str, int], float] | None:
        """Executor CPU seconds by (run id, batch id); None where its REST API is unknown or silent."""
        if self.ui is None or self.application is None:
            return None
        try:
            return stages.cpu_by_batch(stages.completed_stages(self.ui, self.application))
        except (OSError, ValueError):
            return None

    def works_on(self, run_id: str) -> bool | None:
        """Whether a streaming query has tasks at work; None where its REST API is unknown or silent."""
        if self.ui is None or self.application is None:
            return None
        try:
            return run_id in stages.active_runs(self.ui, self.application)
        except (OSError, ValueError):
            return None

    def close(self, timeout_s: float = 8.0) -> None:
        """Let go of the session; end the server if it is ours. The notebook's own session goes on as it was."""
        if self.kind == "attached":
            with suppress(Exception):
                bounded(self._give_back, timeout_s, f"{self.id}: its settings")
        else:
            _let_go(self.spark, timeout_s if self.alive() else 0.5)
        if self.server is not None:
            self.server.stop()

    def _give_back(self) -> None:
        for key, value in self._settings_before.items():
            if value is None:
                self.spark.conf.unset(key)
            else:
                self.spark.conf.set(key, value)


def start_local(
    id: str,
    options: ServerOptions,
    board: dial.DialBoard,
    headroom: float,
    begun: Callable[[LocalServer], None] = lambda _: None,
) -> TaskManager:
    """Start a server and connect to it. It is not warm yet: see `warm_up`.

    `headroom` (fraction of 1) of its cores is kept back from the plans, so that a backlog can be drained. `begun` is
    told the server as soon as its process runs; stopping it then ends the wait. One whose port was taken meanwhile is
    followed by another, on others.

    Raises:
        SetupError, TaskManagerError: it can't be started; nothing is left behind.

    """
    _refuse_beside_classic()
    for attempt in range(1, _STARTS + 1):
        try:
            return _start_once(id, options, board, headroom, begun)
        except PortTakenError:
            if attempt == _STARTS:
                raise
    raise AssertionError("unreachable")


def _start_once(
    id: str, options: ServerOptions, board: dial.DialBoard, headroom: float, begun: Callable[[LocalServer], None]
) -> TaskManager:
    server = LocalServer(id, options)
    spark: SparkSession | None = None
    try:
        begun(server)
        server.wait_until_listening()
        spark = connect(server.url, patience_s=90.0, alive=server.child.alive)
        count = len(options.cpus) if options.cpus and server.child.pinned else (os.cpu_count() or 1)
        return TaskManager(
            id, spark, kind="local", cores=count * (1 - headroom), board=board, ui=server.ui, server=server
        )
    except BaseException:
        if spark is not None:
            _let_go(spark, 0.5)
        server.stop()
        raise


def attach_url(
    id: str, url: str, board: dial.DialBoard, headroom: float, ui: str | None = None, cores: float | None = None
) -> TaskManager:
    """Connect to a Connect server of the user's, and give the session there the settings that our servers have.

    Its UI's address (for CPU times) and its cores are asked of the server where they are not given.

    Raises:
        TaskManagerError: it can't be reached, or does not tell its cores.

    """
    spark = connect(url, PATIENCE_S)
    try:
        adopt(spark, OWN_SESSION_CONF)
        ui = ui or _ui(spark)
        if cores is None:
            cores = _executor_cores(ui, _setting(spark, "spark.app.id"), patience_s=15.0)
        if cores is None:
            raise TaskManagerError(
                f"{_hidden(url)} does not tell how many cores it has: say so with --cores N, or where its Spark UI is "
                "with --ui URL."
            )
        return TaskManager(id, spark, kind="connect", cores=cores * (1 - headroom), board=board, ui=ui)
    except BaseException:
        _let_go(spark, 2.0)
        raise


def attach_session(id: str, spark: SparkSession, board: dial.DialBoard, headroom: float) -> TaskManager:
    """Take the notebook's own session, classic or Connect, as a task manager. The settings that checkpoints depend on
    become ours until `close`.

    Raises:
        TaskManagerError: it is stopped, or a classic session in a process with Connect sessions.

    """
    classic = not type(spark).__module__.startswith("pyspark.sql.connect.")
    if classic and CONNECT_MODE in os.environ:
        raise TaskManagerError(
            "This kernel has Connect sessions, and pyspark serves the one kind or the other: stop them (%qod down, "
            "spark.stop()) before a classic session is attached."
        )
    try:
        before = bounded(lambda: adopt(spark, SESSION_CONF), 60.0, "the attached session")
    except Exception as error:
        raise TaskManagerError(f"The Spark session can't be attached: {reason(error)}") from error
    ui = spark.sparkContext.uiWebUrl if classic else _ui(spark)
    cores = _executor_cores(ui, _setting(spark, "spark.app.id"), patience_s=0.0)
    if cores is None:
        cores = float(spark.sparkContext.defaultParallelism if classic else os.cpu_count() or 1)
    if _is_here(spark):
        cores = min(cores, float(os.cpu_count() or 1))
    return TaskManager(
        id, spark, kind="attached", cores=cores * (1 - headroom), board=board, ui=ui, settings_before=before
    )


def adopt(spark: SparkSession, conf: Mapping[str, str]) -> dict[str, str | None]:
    """Give a session these settings; returns what those were that changed.

    Raises:
        Exception: whatever Spark raises when the session is gone. A server that does not let a setting be changed
            keeps its own.

    """
    spark.sql("SELECT 1").collect()
    before = {key: _setting(spark, key) for key in conf}
    changed = {key: value for key, value in before.items() if value != conf[key]}
    for key in changed:
        with suppress(Exception):
            spark.conf.set(key, conf[key])
    return changed


def connect(url: str, patience_s: float, alive: Callable[[], bool] = lambda: True) -> SparkSession:
    """A new Connect session. Failing calls give up in seconds, where the client's default is ten minutes.

    Raises:
        TaskManagerError: nobody answers within `patience_s` seconds or while the server is `alive`, the token is
            wrong, or this process has a classic session: pyspark serves the one kind or the other.

    """
    _refuse_beside_classic()
    global _mode_is_ours
    if CONNECT_MODE not in os.environ:
        os.environ[CONNECT_MODE] = "1"
        _mode_is_ours = True
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")  # the error itself is told
    try:
        # on a thread of its own, whose active session it becomes: not the notebook's, which would keep it for ever
        spark = begin(ConnectSession.builder.remote(url).create, "connecting").result()
    except Exception as error:
        raise TaskManagerError(f"{_hidden(url)}: {reason(error)}") from error
    _open.add(spark)
    spark.client.set_retry_policies([DefaultPolicy(max_retries=0)])
    deadline = time.monotonic() + patience_s
    while True:
        try:
            bounded(lambda: spark.sql("SELECT 1").collect(), max(patience_s, ANSWER_S), _hidden(url))
            break
        except Exception as error:
            if time.monotonic() >= deadline or not alive() or "UNAUTHENTICATED" in str(error):
                _let_go(spark, 0.5)
                raise TaskManagerError(f"{_hidden(url)} can't be used: {reason(error)}.{_hint(url, error)}") from error
            time.sleep(0.5)
    spark.client.set_retry_policies([DefaultPolicy(max_retries=3, max_backoff=1000)])
    return spark


def leave_connect_mode() -> None:
    """Once no Connect session made here is open, pyspark may serve a classic session again."""
    global _mode_is_ours
    if _mode_is_ours and not _open:
        _mode_is_ours = False
        os.environ.pop(CONNECT_MODE, None)


def _let_go(spark: SparkSession, timeout_s: float) -> None:
    """Have the server forget a Connect session, within a bound; then close the connection, which ends calls that hang.

    `spark.stop` alone would do both under a lock of all sessions, and a server that hangs would hold it.
    """
    _open.discard(spark)
    with suppress(Exception):
        begin(spark.client.release_session, "releasing").result(timeout_s)
    spark.release_session_on_close = False
    with suppress(Exception):
        begin(spark.stop, "closing").result(2.0)


def _refuse_beside_classic() -> None:
    module = sys.modules.get("pyspark.core.context")
    context = module.SparkContext._active_spark_context if module is not None else None
    if context is not None and CONNECT_MODE not in os.environ:
        raise TaskManagerError(
            f"This kernel has a classic Spark session ({context.master}), and a Connect task manager would break it: "
            "take it with %qod attach, or stop it (spark.stop()) first."
        )


def _hint(url: str, error: BaseException) -> str:
    text = str(error)
    if "UNAUTHENTICATED" in text:
        return " Give its token: sc://HOST:PORT/;token=TOKEN"
    if "refused" not in text and "token=" in url and re.match(r"sc://(127\.|\[::1\])", url):
        return " With a token an address asks for TLS: write localhost instead."
    return " Is the server running, and is it a Spark Connect server?"


def _ui(spark: SparkSession) -> str | None:
    """The address of the UI of the application behind a Connect session, if it is where Spark puts it by default."""
    host, port = _setting(spark, "spark.driver.host"), _setting(spark, "spark.ui.port")
    application = _setting(spark, "spark.app.id")
    if host is None or _setting(spark, "spark.ui.enabled") == "false":
        return None
    if port and port != "0":
        return f"http://{host}:{port}"
    for number in range(4040, 4044):  # each application on a machine takes the next
        with suppress(OSError, ValueError):
            if application in stages.applications(f"http://{host}:{number}", timeout_s=2.0):
                return f"http://{host}:{number}"
    return None


def _is_here(spark: SparkSession) -> bool:
    """Whether the session computes on this machine and nowhere else."""
    if not (_setting(spark, "spark.master") or "").startswith("local"):
        return False
    host = (_setting(spark, "spark.driver.host") or "localhost").strip("[]")
    own = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
    return host in own or host in ("localhost", socket.gethostname(), socket.getfqdn())


def _executor_cores(ui: str | None, application: str | None, patience_s: float) -> float | None:
    """Cores of the executors; some of a server just started may take `patience_s` seconds to be there."""
    if ui is None or application is None:
        return None
    deadline = time.monotonic() + patience_s
    while True:
        try:
            with urllib.request.urlopen(f"{ui}/api/v1/applications/{application}/executors", timeout=5) as answer:
                executors = json.load(answer)
        except (OSError, ValueError):
            return None
        cores = sum(entry["totalCores"] for entry in executors if entry["isActive"])
        if cores or time.monotonic() >= deadline:
            return float(cores) or None
        time.sleep(0.5)


def _setting(spark: SparkSession, key: str) -> str | None:
    try:
        value: str | None = spark.conf.get(key)
        return value
    except Exception:
        return None


def _hidden(url: str) -> str:
    """The URL without its token."""
    return re.sub(r"token=[^;]*", "token=...", url)
