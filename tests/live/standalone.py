"""A Spark standalone cluster on loopback, as a user would have one, with a Connect server in front of it."""

from __future__ import annotations

import secrets
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import chain, count
from pathlib import Path

from qod_magics.machine.child import Child
from qod_magics.machine.jars import connector_jars
from qod_magics.machine.java import find_java, free_ports
from qod_magics.spark.servers import server

SLOTS, WORKERS = 8, 2
LEAST_BATCH = "spark.sql.streaming.realTimeMode.minBatchDuration"  #: milliseconds, in a session's settings
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"


class Standalone:
    """A master, two workers, and a Connect server with a token, all with Spark's own settings.

    The server has so many `slots`, half of them on each worker, and a UI or none.
    """

    def __init__(self, directory: Path, slots: int = SLOTS, *, ui: bool = True) -> None:
        self.directory = directory
        self.token = secrets.token_urlsafe(12)
        self.master_port, master_ui, self.port, self.ui_port, *others = free_ports(4 + 2 * WORKERS)
        self.master_url = f"spark://127.0.0.1:{self.master_port}"
        self._children, self._numbers = ExitStack(), count(1)
        try:
            self.master = self._start(
                "org.apache.spark.deploy.master.Master",
                ["--host", "127.0.0.1", "--port", str(self.master_port), "--webui-port", str(master_ui)],
            )
            _wait_for(self.master, self.master_port)
            self.workers = [
                self._start(
                    "org.apache.spark.deploy.worker.Worker",
                    ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui), "--memory", "1g"],
                    ["--cores", str(slots // WORKERS), "--work-dir", str(directory / f"work-{port}"), self.master_url],
                )
                for port, ui in zip(others[::2], others[1::2], strict=True)
            ]
            self.connect = self._connect_server(slots, ui)
            for worker, port in zip(self.workers, others[::2], strict=True):
                _wait_for(worker, port)
            _wait_for(self.connect, self.port)
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return f"sc://localhost:{self.port}/;token={self.token}"

    def stop(self) -> None:
        self._children.close()

    def _connect_server(self, slots: int, ui: bool) -> Child:
        conf = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.ui.enabled": str(ui).lower(),
            "spark.ui.port": str(self.ui_port),
            "spark.executor.cores": str(slots // WORKERS),
            "spark.executor.memory": "500m",
            "spark.executor.extraJavaOptions": JVM,
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
        }
        return self._start(
            "org.apache.spark.deploy.SparkSubmit",
            ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--name", "theirs"],
            ["--master", self.master_url, "--driver-memory", "700m", "--driver-java-options", JVM],
            ["--jars", ",".join(map(str, connector_jars()))],
            *(["--conf", f"{key}={value}"] for key, value in conf.items()),
            ["spark-internal"],
            SPARK_CONNECT_AUTHENTICATE_TOKEN=self.token,
        )

    def _start(self, main: str, *arguments: Sequence[str], **env: str) -> Child:
        java, home = find_java(), server.spark_home()
        name = f"{main.rpartition('.')[2]}-{next(self._numbers)}"
        local = self.directory / f"local-{name}"
        child = Child(
            server.launch_command(java, home, main, list(chain(*arguments))),
            {
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_SCALA_VERSION": "2.13",
                "SPARK_LOCAL_DIRS": str(local),
                "SPARK_CONNECT_MODE_ENABLED": None,
                "SPARK_REMOTE": None,
                "JAVA_HOME": str(java.home),
                "PYSPARK_PYTHON": sys.executable,
                **env,
            },
            log_path=self.directory / f"{name}.log",
            cwd=self.directory,
        )
        self._children.callback(child.stop, 3.0)
        return child


def _wait_for(child: Child, port: int, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        assert child.alive(), child.tail(30)
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    raise AssertionError(f"nothing listens on {port} after {timeout_s:g} s:\n{child.tail(30)}")
