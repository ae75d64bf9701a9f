"""The embedded broker: a real Apache Kafka (KRaft, one JVM) on the loopback interface, behind a password, with its data
in a temporary directory, unless another is named. It ends with the kernel.
"""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from qod_magics.errors import KafkaError, SetupError
from qod_magics.kafka.cluster import QUIET, Admin, Clients
from qod_magics.kafka.properties import (
    LARGEST_RECORD,
    Login,
    Retention,
    log4j_properties,
    server_properties,
    spark_options,
)
from qod_magics.machine import class_data
from qod_magics.machine.child import Child, temporary
from qod_magics.machine.jars import broker_jars
from qod_magics.machine.java import HOST, Java, find_java, free_ports

_STARTS = 3  #: attempts: a free port can be taken before the broker binds it
GARBAGE_COLLECTOR = "-XX:+UseSerialGC"
#: Names of the archives of classes of the broker and of its storage format tool.
ARCHIVE, FORMAT_ARCHIVE = "broker", "broker-format"
#: Age up to which the topics of a session keep their rows, seconds.
OWN_S = 3600
FORMAT_HEAP, FORMAT_TIMEOUT_S = "128m", 60.0


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a broker: `ok` when its process runs and it answers."""

    ok: bool
    problem: str = ""  #: one line, empty while healthy


class EmbeddedBroker(Clients):
    """An embedded Kafka broker. Create it, `start()` it, `stop()` it; or use it as a context manager.

    Args:
        cpus: cores to pin it to, default all.
        archiving: write archives of classes of the broker and the format tool where none fit.
        java: finds Java.
        jars: finds the broker's jars, or fetches them.

    Attributes:
        heap: the JVM's, as in `-Xmx`. Set it before `start`.
        data: the directory of its topics, which stays; None: a temporary one. Set it before `start`.
        retention: of each partition: by size alone. Kafka goes by the timestamps of records: an age would delete
            history that is written with its own timestamps before anybody has read it.

    """

    def __init__(
        self,
        cpus: set[int] | None = None,
        archiving: bool = False,
        *,
        java: Callable[[], Java] = find_java,
        jars: Callable[[], list[Path]] = broker_jars,
    ) -> None:
        self._java, self._jars = java, jars
        self.cpus = cpus
        self.heap = "512m"
        self.retention = Retention(seconds=None)
        self.archiving = archiving
        self.data: Path | None = None
        self._login = Login(secrets.token_urlsafe(24))
        self._makings: list[class_data.Making] = []
        self._admin = Admin()
        self._child: Child | None = None
        self._directory: Path | None = None
        self._port = 0
        self._owner = os.getpid()

    def __repr__(self) -> str:
        return (
            f"embedded Kafka at {self.bootstrap}, process {self.pid}"
            if self.pid is not None
            else "embedded Kafka: it is down"
        )

    @property
    def bootstrap(self) -> str:
        """`127.0.0.1:port`; raises KafkaError before the first start."""
        if not self._port:
            raise KafkaError("The embedded broker was not started: call start() first.", rule="started")
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id of the broker's JVM while it runs."""
        return self._child.pid if self._child is not None and self._child.alive() else None

    @property
    def directory(self) -> Path | None:
        """Return its data, configuration and log, until `stop`."""
        return self._directory

    def admin(self) -> AdminClient:
        """Return a client for topics and offsets, one per process."""
        return self._admin.get(self.client_config())

    @property
    def credentials(self) -> dict[str, str]:
        """Client options (librdkafka's names) that others need beside `bootstrap`, the password among them."""
        return self._login.options()

    def client_config(self) -> dict[str, Any]:
        """Return options for confluent_kafka."""
        return {
            **QUIET,
            **self.credentials,
            "bootstrap.servers": self.bootstrap,
            "broker.address.family": "v4",
            "reconnect.backoff.max.ms": 500,  # reconnect soon after a restart
            "socket.timeout.ms": 10_000,
            "message.max.bytes": LARGEST_RECORD,
        }

    def spark_options(self) -> dict[str, str]:
        """Return options for Spark's source and sink."""
        return {"kafka.bootstrap.servers": self.bootstrap, **spark_options(self.credentials)}

    @property
    def own_retention(self) -> Retention:
        """Return the retention of the session's own topics, whose rows are read as they come: that of others, or an
        hour."""
        return replace(self.retention, seconds=self.retention.seconds or OWN_S)

    def start(self, timeout_s: float = 60.0) -> None:
        """Format and run the broker on free ports and wait until it answers. Does nothing while it runs.

        Raises:
            SetupError: there is no Java, the jars can't be resolved, or there is no room for its files.
            KafkaError: it did not come up within `timeout_s` seconds; the message quotes its log.

        """
        if self._directory is not None:
            if self.pid is None:
                self.restart(timeout_s)
            return
        self._owner = os.getpid()
        java, jars = self._java(), self._jars()
        for attempt in range(1, _STARTS + 1):
            self._directory = temporary("qod-kafka-")
            try:
                self._port, controller_port = free_ports(2)
                self._configure(self._directory, controller_port)
                self._format(java, jars)
                self._run(java, jars)
                self._await(timeout_s)
                return
            except KafkaError as error:
                self.stop()
                # a broker on the same data ends some moments after its kernel
                passing = "in use" in str(error) or (self.data is not None and "lock" in str(error))
                if attempt == _STARTS or not passing:
                    raise
            except BaseException as error:
                self.stop()
                if isinstance(error, OSError):
                    raise SetupError(f"The embedded broker can't be started: {error}.") from error
                raise

    def restart(self, timeout_s: float = 60.0) -> None:
        """Restart it on the same data and ports, whether it runs, was killed or crashed."""
        if self._directory is None or self._child is None:
            self.start(timeout_s)
            return
        if self._owner != os.getpid():
            raise KafkaError("The embedded broker belongs to the process that started it: restart it there.")
        self._child.end(10.0)
        self._run(self._java(), self._jars())
        self._await(timeout_s)

    def stop(self) -> None:
        """End the broker and remove its data. Does nothing when it was not started, or in a fork of its owner."""
        if self._owner != os.getpid():
            return
        self._admin.close()
        child, directory = self._child, self._directory
        self._child = self._directory = None
        self._port = 0
        if child is not None:
            child.stop(class_data.END_S if self._makings else 5.0)
        while self._makings:
            self._makings.pop().finish()
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    def kill(self) -> None:
        """Kill the broker at once (kill -9), leaving its data, as a crash would. For tests and demonstrations."""
        if self._child is not None:
            self._child.kill()

    def health(self, timeout_s: float = 2.0) -> Health:
        """Return whether its process runs and answers within `timeout_s` seconds."""
        if self._child is None:
            return Health(False, "it was not started")
        if not self._child.alive():
            return Health(False, self._child.ending)
        try:
            brokers = self.admin().list_topics(timeout=timeout_s).brokers
        except KafkaException as error:
            return Health(False, f"it does not answer: {error.args[0].str()}")
        if not brokers:
            return Health(False, "it answers, but lists no broker")
        return Health(True)

    def log(self, lines: int = 40) -> str:
        """Return the end of its log: warnings, errors and console output."""
        child = self._child
        if child is None or self._directory is None:
            return ""
        try:
            logged = self._log_file.read_text("utf-8", "replace").splitlines()[-lines:]
        except OSError:
            logged = []
        return "\n".join([*logged, *child.tail(lines).splitlines()])

    def _has_leaders(self) -> bool:
        """Return whether all partitions have a leader: after a restart the broker answers before it leads them."""
        try:
            topics = self.admin().list_topics(timeout=1.0).topics
        except KafkaException:
            return False
        return all(partition.leader >= 0 for topic in topics.values() for partition in topic.partitions.values())

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _properties_file(self) -> str:
        assert self._directory is not None
        return str(self._directory / "server.properties")

    @property
    def _log_file(self) -> Path:
        assert self._directory is not None
        return self._directory / "broker.log"

    def _configure(self, directory: Path, controller_port: int) -> None:
        data = self.data or directory / "data"
        if self.data is not None:  # other users must not read its rows
            self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        properties = server_properties(self._port, controller_port, data, self.retention, self._login)
        Path(self._properties_file).write_text(properties, "utf-8")
        (directory / "log4j2.properties").write_text(log4j_properties(self._log_file), "utf-8")

    def _java_command(self, java: Java, jars: list[Path], heap: str) -> list[str]:
        assert self._directory is not None
        return [
            str(java.path),
            f"-Xmx{heap}",
            GARBAGE_COLLECTOR,
            "-XX:-UsePerfData",  # its file in /tmp would outlive a kill
            f"-Djava.io.tmpdir={self._directory}",
            "-XX:TieredStopAtLevel=1",  # C1 only: a short warm-up, light on small machines
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self._directory / 'log4j2.properties'}",
            *_class_path(jars),
        ]

    def _format(self, java: Java, jars: list[Path]) -> None:
        """Format the data directory with a cluster id, as KRaft requires, unless it has one."""
        if self.data is not None and (self.data / "meta.properties").exists():
            return
        tool = [*self._java_command(java, jars, FORMAT_HEAP), "kafka.tools.StorageTool", "format"]
        child = self._supervise(FORMAT_ARCHIVE, [*tool, "-t", cluster_id(), "-c", self._properties_file])
        if child.wait(FORMAT_TIMEOUT_S) != 0:
            raise KafkaError(f"Kafka's data directory {self._directory} can't be formatted: {_cause(child.tail())}")

    def _run(self, java: Java, jars: list[Path]) -> None:
        command = [*self._java_command(java, jars, self.heap), "kafka.Kafka", self._properties_file]
        self._supervise(ARCHIVE, command, self.cpus)

    def _supervise(self, archive: str, command: list[str], cpus: set[int] | None = None) -> Child:
        """Run it as a child that takes over the broker's directory from the previous one."""
        assert self._directory is not None
        making = class_data.making(archive, command) if self.archiving else None
        if making is not None:
            self._makings.append(making)
        command = class_data.with_archive(archive, command) if making is None else making.command
        before = self._child
        self._child = Child(command, log_path=self._directory / "console.log", cpus=cpus, remove=[self._directory])
        if before is not None:
            before.release()
        return self._child

    def _await(self, timeout_s: float) -> None:
        assert self._child is not None
        deadline = time.monotonic() + timeout_s
        while True:
            if _listens(self._port) and self.health(1.0).ok and self._has_leaders():
                return
            if not self._child.alive():
                raise KafkaError(f"The embedded broker ended while starting: {_cause(self.log())}")
            if time.monotonic() > deadline:
                raise KafkaError(f"The embedded broker did not answer in {timeout_s:.0f} s: {_cause(self.log())}")
            self._child.wait(0.05)


def broker_archives() -> list[Path | None]:
    """Class-data archives of the broker and the format tool, existing or not; None: impossible. Raises SetupError."""
    command = [str(find_java().path), GARBAGE_COLLECTOR, *_class_path(broker_jars())]
    return [class_data.archive_for(name, command) for name in (ARCHIVE, FORMAT_ARCHIVE)]


def _class_path(jars: list[Path]) -> list[str]:
    return ["-cp", os.pathsep.join(str(jar) for jar in jars)]


def cluster_id() -> str:
    """Return a new cluster id: 22 characters of URL-safe base64, without a leading hyphen, which Kafka's tool would
    take for an option."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made


def _listens(port: int) -> bool:
    """Return whether the port accepts connections; tested first, since librdkafka backs off when refused."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((HOST, port)) == 0


def _cause(log: str) -> str:
    """Return the most telling line of a log: the last one that names an exception or an error, else the last."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if "Exception" in line or "ERROR" in line]
    return (telling or lines or ["its log is empty"])[-1]
