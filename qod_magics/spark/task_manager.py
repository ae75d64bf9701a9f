"""A task manager: one Spark session with its own cores, on which task instances run."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from qod_magics.errors import LostError, TaskManagerError
from qod_magics.spark import dial, stages
from qod_magics.spark.bounded import begin, bounded
from qod_magics.spark.cpu import CoreMeter, PythonMeter
from qod_magics.spark.server import LocalServer, ServerOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"


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
    ) -> None:
        self.id = id
        self.spark = spark
        self.kind = kind
        self.cores = cores
        self.ui = ui
        self.server = server
        self.silent_since: float | None = None  #: monotonic seconds; None: it answered last time
        self.dials: dict[str, float] = {}
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
        self.core_meter = CoreMeter(tuple(sorted(cpus)) if cpus else whole_machine) if kind != "connect" else None
        self.python_meter = PythonMeter(server.child.pid) if server is not None else None

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
        """False once its process has ended. A remote one is judged by its answers (`silent_since`)."""
        return self.server is None or self.server.child.alive()

    def ask(self, call: Any, what: str, timeout_s: float = 10.0) -> Any:
        """Make a call to it within a bound.

        Raises:
            LostError: its process is gone.
            TaskManagerError: no answer in time.

        """
        if not self.alive():
            raise LostError(f"Task manager {self.id} is gone (exit code {self.server.child.returncode}).")  # type: ignore[union-attr]
        return bounded(call, timeout_s, f"{self.id}: {what}")

    def turn(self, values: Mapping[str, float], timeout_s: float = 10.0) -> None:
        """Set those of these dials that differ from what it holds, in one call."""
        changed = {key: value for key, value in values.items() if self.dials.get(key) != value}
        if changed and self.reading is not dial.Reading.RESTART:
            self.ask(lambda: dial.turn(self.spark, changed), "turning dials", timeout_s)
        self.dials.update(changed)

    def stage_cpu(self) -> dict[tuple[str, int], float] | None:
        """Executor CPU seconds by (run id, batch id); None where its REST API is unknown or silent."""
        if self.ui is None or self.application is None:
            return None
        try:
            return stages.cpu_by_batch(stages.completed_stages(self.ui, self.application))
        except (OSError, ValueError):
            return None

    def close(self, timeout_s: float = 8.0) -> None:
        """Let go of the session; end the server if it is ours. The notebook's own session goes on."""
        if self.kind != "attached":
            stopping = begin(self.spark.stop, f"{self.id}-closing")
            with suppress(Exception):
                stopping.result(timeout_s if self.alive() else 0.5)
        if self.server is not None:
            self.server.stop()


def start_local(id: str, options: ServerOptions, board: dial.DialBoard, headroom: float) -> TaskManager:
    """Start a server and connect to it. It is not warm yet: see `warm_up`.

    `headroom` (fraction of 1) of its cores is kept back from the plans, so that a backlog can be drained.

    Raises:
        SetupError, TaskManagerError: it can't be started; nothing is left behind.

    """
    server = LocalServer(id, options)
    try:
        server.wait_until_listening()
        spark = connect(server.url, patience_s=90.0)
        count = len(options.cpus) if options.cpus and server.child.pinned else (os.cpu_count() or 1)
        return TaskManager(
            id, spark, kind="local", cores=count * (1 - headroom), board=board, ui=server.ui, server=server
        )
    except BaseException:
        server.stop()
        raise


def attach_url(
    id: str, url: str, board: dial.DialBoard, headroom: float, ui: str | None = None, cores: float | None = None
) -> TaskManager:
    """Connect to a Connect server of the user's.

    Its UI's address (for CPU times) and its cores are asked of the server where they are not given.

    Raises:
        TaskManagerError: it can't be reached, or does not tell its cores.

    """
    spark = connect(url, patience_s=20.0)
    if ui is None:
        host, port = _setting(spark, "spark.driver.host"), _setting(spark, "spark.ui.port")
        ui = f"http://{host}:{port}" if host and port and port != "0" else None
    if cores is None:
        cores = _executor_cores(ui, _setting(spark, "spark.app.id"))
    if cores is None:
        raise TaskManagerError(f"{_hidden(url)} does not tell how many cores it has: say so with --cores N.")
    return TaskManager(id, spark, kind="connect", cores=cores * (1 - headroom), board=board, ui=ui)


def attach_session(id: str, spark: SparkSession, board: dial.DialBoard, headroom: float) -> TaskManager:
    """Take the notebook's own session, classic or Connect, as a task manager."""
    ui = None
    cores: float = os.cpu_count() or 1
    with suppress(Exception):
        ui = spark.sparkContext.uiWebUrl
        cores = spark.sparkContext.defaultParallelism
    if ui is None:
        host, port = _setting(spark, "spark.driver.host"), _setting(spark, "spark.ui.port")
        ui = f"http://{host}:{port}" if host and port and port != "0" else None
        cores = _executor_cores(ui, _setting(spark, "spark.app.id")) or cores
    cores = min(cores, os.cpu_count() or 1) if (_setting(spark, "spark.master") or "").startswith("local") else cores
    return TaskManager(id, spark, kind="attached", cores=cores * (1 - headroom), board=board, ui=ui)


def connect(url: str, patience_s: float) -> SparkSession:
    """A new Connect session. Failing calls give up in seconds, where the client's default is ten minutes.

    Raises:
        TaskManagerError: nobody answers within `patience_s` seconds, or the token is wrong.

    """
    os.environ.setdefault(CONNECT_MODE, "1")
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    try:
        spark = ConnectSession.builder.remote(url).create()
    except Exception as error:
        raise TaskManagerError(f"{_hidden(url)}: {_first_line(error)}") from error
    spark.client.set_retry_policies([DefaultPolicy(max_retries=3, max_backoff=1000)])
    deadline = time.monotonic() + patience_s
    while True:
        try:
            bounded(lambda: spark.sql("SELECT 1").collect(), max(deadline - time.monotonic(), 1.0), _hidden(url))
            return spark
        except Exception as error:
            if time.monotonic() >= deadline or "UNAUTHENTICATED" in str(error):
                begin(spark.stop, "closing")
                raise TaskManagerError(f"{_hidden(url)} can't be used: {_first_line(error)}") from error
            time.sleep(0.5)


def _executor_cores(ui: str | None, application: str | None) -> float | None:
    import json
    import urllib.request

    if ui is None or application is None:
        return None
    try:
        with urllib.request.urlopen(f"{ui}/api/v1/applications/{application}/executors", timeout=5) as answer:
            executors = json.load(answer)
    except (OSError, ValueError):
        return None
    cores = sum(entry["totalCores"] for entry in executors if entry["isActive"])
    return float(cores) or None


def _setting(spark: SparkSession, key: str) -> str | None:
    try:
        value: str | None = spark.conf.get(key)
        return value
    except Exception:
        return None


def _hidden(url: str) -> str:
    """The URL without its token."""
    return re.sub(r"token=[^;]*", "token=...", url)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
