"""A Spark standalone cluster on loopback, as a user would have one, with a Connect server in front of it."""

from __future__ import annotations

import secrets
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import chain, count
from pathlib import Path

import psutil

from qod_magics.machine.child import Child
from qod_magics.machine.jars import connector_jars
from qod_magics.machine.java import find_java, free_ports
from qod_magics.spark.servers import server

SLOTS, WORKERS = 8, 2
LEAST_BATCH = "spark.sql.streaming.realTimeMode.minBatchDuration"  #: milliseconds, in a session's settings
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"


class Standalone:
    """A master, two workers, and a Connect server with a token, all with Spark's own settings.

    The server has `slots` task slots, half of them on each worker, and a UI or none. Workers and their executors run on
    the cores `workers_cpus`, the master and the server on the cores `cpus`; None: on any.
    """

    def __init__(
        self,
        directory: Path,
        slots: int = SLOTS,
        *,
        ui: bool = True,
        cpus: set[int] | None = None,
        workers_cpus: set[int] | None = None,
    ) -> None:
        self.directory, self.slots, self.has_ui = directory, slots, ui
        self.cpus, self.workers_cpus = cpus, workers_cpus
        self.token = secrets.token_urlsafe(12)
        self.master_port, master_ui, self.port, self.ui_port, *others = free_ports(4 + 2 * WORKERS)
        self._ports = list(zip(others[::2], others[1::2], strict=True))  #: of each worker, and of its UI
        self.master_url = f"spark://127.0.0.1:{self.master_port}"
        self._children, self._numbers = ExitStack(), count(1)
        try:
            self.master = self._start(
                "org.apache.spark.deploy.master.Master",
                ["--host", "127.0.0.1", "--port", str(self.master_port), "--webui-port", str(master_ui)],
            )
            _wait_for(self.master, self.master_port)
            self.workers = [self._worker(*ports) for ports in self._ports]
            self.connect = self._connect_server()
            self._wait()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return f"sc://localhost:{self.port}/;token={self.token}"

    def stop(self) -> None:
        self._children.close()

    def mend(self) -> None:
        """Start the workers and the server that have ended again, at the same ports."""
        self.workers = [
            worker if worker.alive() else self._worker(*ports)
            for worker, ports in zip(self.workers, self._ports, strict=True)
        ]
        if not self.connect.alive():
            self.connect = self._connect_server()
        self._wait()

    def kill_worker(self, number: int) -> None:
        """Kill a worker with its executors, as if its machine had gone."""
        worker = psutil.Process(self.workers[number].pid)
        for process in (worker, *worker.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _wait(self) -> None:
        for worker, (port, _) in zip(self.workers, self._ports, strict=True):
            _wait_for(worker, port)
        _wait_for(self.connect, self.port)

    def _worker(self, port: int, ui: int) -> Child:
        return self._start(
            "org.apache.spark.deploy.worker.Worker",
            ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui), "--memory", "1g"],
            ["--cores", str(self.slots // WORKERS), "--work-dir", str(self.directory / f"work-{port}")],
            [self.master_url],
            cpus=self.workers_cpus,
        )

    def _connect_server(self) -> Child:
        conf = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.ui.enabled": str(self.has_ui).lower(),
            "spark.ui.port": str(self.ui_port),
            "spark.executor.cores": str(self.slots // WORKERS),
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

    def _start(self, main: str, *arguments: Sequence[str], cpus: set[int] | None = None, **env: str) -> Child:
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
            cpus=cpus or self.cpus,
            cwd=self.directory,
        )
        self._children.callback(child.stop, 3.0)
        return child


class Proxy:
    """Takes connections on loopback, and passes them on to a port: it stays up whatever happens to who listens there.

    What it can't pass on gets no answer.
    """

    def __init__(self, to: int) -> None:
        self._to = to
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: list[socket.socket] = [self._listening]

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self._open.append(near)
                with suppress(OSError):
                    far = socket.create_connection(("127.0.0.1", self._to))
                    self._open.append(far)
                    for one, other in ((near, far), (far, near)):
                        threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    with suppress(OSError):
        other.shutdown(socket.SHUT_RDWR)


def _wait_for(child: Child, port: int, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        assert child.alive(), child.tail(30)
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    raise AssertionError(f"nothing listens on {port} after {timeout_s:g} s:\n{child.tail(30)}")
