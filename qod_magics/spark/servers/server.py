"""A local Spark Connect server: one task manager of our own, on loopback, behind a token, on cores of its own."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

from qod_magics.errors import SetupError, TaskManagerError
from qod_magics.machine import class_data
from qod_magics.machine.child import Child, check_user, temporary
from qod_magics.machine.cores import CoreClaim, every_core, planned_cpus
from qod_magics.machine.jars import connector_jars
from qod_magics.machine.java import DEFAULT_JIT, HOST, JIT_OPTIONS, Java, find_java, free_ports
from qod_magics.machine.packages import check_files, check_packages, package_jars, spark_words
from qod_magics.machine.releases import check_server, release_at
from qod_magics.spark.servers.conf import CONF, SHUFFLE
from qod_magics.spark.servers.connection import CONNECT_MODE, REMOTE
from qod_magics.spark.servers.own_jars import loopback_jar, shedding_jar, state_jar, with_jar

T = TypeVar("T")

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.processing.name = org.apache.spark.sql.execution.streaming.ProcessingTimeExecutor
logger.processing.level = error
logger.clients.name = org.apache.kafka.clients
logger.clients.level = error
"""

GARBAGE_COLLECTOR = "-XX:+UseSerialGC"
#: Kafka's client reads a certificate by a regular expression that overflows a stack of 1 MB, unless it is compiled.
STACK = "-Xss4m"
#: The whole heap from the beginning, half of it for young objects. What a batch allocates, the fetches of Kafka's
#: consumer (8 MiB each) among it, is garbage soon; grown by need, the heap stays so small that it is promoted, and all
#: of the heap is collected every three seconds: 18 % of a core under 80,000 rows/s, instead of 5 %.
YOUNG = "-XX:NewRatio=1"
#: Each minute, memory that state stores and compilers have freed goes back to the operating system: glibc would keep
#: 40 to 60 MiB of a task manager after 30 moves. Updates of Java 17 before the ninth don't know the option.
TRIMMED = ("-XX:+IgnoreUnrecognizedVMOptions", "-XX:TrimNativeHeapInterval=60000")
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
#: Name of the archives of the server's classes.
ARCHIVE = "task-manager"

#: Timeout of a server's start, seconds.
LISTENS_S = 180.0
#: Task slots of a server, many more than cores: long-running tasks hold one each, and the OS shares the CPU.
SLOTS = 32


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Start options of a local task manager."""

    cpus: frozenset[int] | None = None  #: its cores; None: all
    pinned: bool = True  #: to these cores; False: it runs on any, but plans count on as many
    slots: int = SLOTS
    memory: str = "1g"  #: Java heap
    jit: str = DEFAULT_JIT  #: a key of `JIT_OPTIONS`
    conf: Mapping[str, str] = field(default_factory=dict)  #: Spark settings on top of ours
    jars: tuple[Path, ...] = ()  #: jars of the user's
    packages: tuple[str, ...] = ()  #: Maven packages of the user's: group:artifact:version
    #: its working directory, to which relative paths in recipes and the entry "" of Python's path refer; None: its own
    directory: Path | None = None

    @property
    def pinned_to(self) -> frozenset[int] | None:
        """Return the cores to pin it to; None: to none."""
        return self.cpus if self.pinned else None

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise SetupError(
                f"A task manager needs 1 task slot or more, not {self.slots}.", value=self.slots, rule="positive"
            )
        if self.jit not in JIT_OPTIONS:
            raise SetupError(
                f"Unknown JIT mode {self.jit!r}: use one of {', '.join(JIT_OPTIONS)}.", name=self.jit, rule="exists"
            )
        if not re.fullmatch(r"[1-9]\d*[kKmMgGtT]", self.memory):
            raise SetupError(
                f"A Java heap is a number with its unit, such as 900m or 2g, not {self.memory!r}.",
                value=self.memory,
                rule="size with unit",
            )
        check_packages(self.packages)
        check_files(self.jars)


def spark_home() -> Path:
    """Return Spark's installation: SPARK_HOME through `findspark` where it is set, else the one in the pyspark wheel.

    Raises:
        SetupError: SPARK_HOME is set and holds no Spark, or one that is older than pyspark.

    """
    if os.environ.get("SPARK_HOME"):
        import findspark

        try:
            home = Path(findspark.find())
        except Exception as error:
            raise SetupError(
                f"SPARK_HOME is {os.environ['SPARK_HOME']!r}, but {error}. Unset or correct it."
            ) from error
    else:
        import pyspark

        home = Path(pyspark.__file__).parent
    if not (home / "jars").is_dir():
        raise SetupError(f"No Spark in {home}: it has no folder jars. Unset or correct SPARK_HOME.", rule="Spark home")
    if (release := release_at(home)) is not None:
        check_server(release, f"SPARK_HOME={home}" if os.environ.get("SPARK_HOME") else str(home))
    return home


def connector_at(home: Path) -> list[Path]:
    """Return the jars of the Kafka connector for the Spark in this directory. Raises SetupError."""
    return connector_jars(release_at(home))


class PortTakenError(TaskManagerError):
    """A port that was free when it was chosen has been taken."""


class LocalServer:
    """A running Connect server. It ends with this process, even by `kill -9`.

    Args:
        name: the task manager's.
        options: what it is started with.
        claim: its cores, if they are claimed already; it releases them.
        tools: what it is started with, and by.
        archiving: on a regular end, leave an archive of its classes if no matching one exists: see `making`.

    Attributes:
        begun: when its start began, monotonic seconds.
        claim: its cores, held against other sessions of this machine.
        making: the archive that it will leave, to be finished when it has ended; None: none.
        no_realtime: why no query may run in real-time mode on it; "": one may.
        no_shedding_source: why Spark's own Kafka source is read there, and rows are dropped behind it; "": they are
            dropped by the reader.
        no_state_jar: why it can't assign state to other instances; "": it can.

    Raises:
        SetupError: no Java, no connector jars, or no room for its files.
        TaskManagerError: it ended while starting; the message carries the last line of its log.

    """

    def __init__(
        self,
        name: str,
        options: ServerOptions,
        claim: CoreClaim | None = None,
        *,
        archiving: bool = False,
        tools: Tools | None = None,
    ) -> None:
        tools = tools or Tools()
        self.begun = time.monotonic()
        self.name = name
        self.options = options
        self.token = secrets.token_urlsafe(24)
        self.claim = claim or CoreClaim(options.pinned_to or ())
        try:
            tools.user()
            self.directory = temporary("qod-tm-")
        except BaseException:
            self.claim.release()
            raise
        try:
            self.port, self.ui_port = free_ports(2)
            (self.directory / "log4j2.properties").write_text(_LOGGING)
            java, home = tools.java(), tools.home()
            jars, self.no_shedding_source = _with_shedding_source(tools.jars(home), java, home)
            jars, self.no_state_jar = _with_state_jar(jars, java, home)
            own = [*options.jars, *tools.packages(options.packages, home)]
            plain, self.no_realtime = _on_loopback(tools.command(java, home, _SUBMIT, self._arguments(jars, own)), home)
            self.making = class_data.making(ARCHIVE, plain) if archiving else None
            self.child = tools.child(
                class_data.with_archive(ARCHIVE, plain) if self.making is None else self.making.command,
                {
                    "SPARK_HOME": str(home),
                    "SPARK_LOCAL_IP": HOST,
                    "SPARK_LOCAL_HOSTNAME": None,  # it would go before the address
                    "SPARK_CONNECT_AUTHENTICATE_TOKEN": self.token,
                    CONNECT_MODE: None,
                    REMOTE: None,
                    "JAVA_HOME": str(java.home),
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": os.pathsep.join(_python_path(home, options.directory)),
                },
                log_path=self.directory / "server.log",
                cpus=None if options.pinned_to is None else set(options.pinned_to),
                remove=[self.directory],
                cwd=options.directory or self.directory,
            )
        except BaseException as error:
            self.claim.release()
            shutil.rmtree(self.directory, ignore_errors=True)
            if isinstance(error, OSError):
                raise SetupError(f"Task manager {name} can't be started: {error}.") from error
            raise

    def __repr__(self) -> str:
        return f"Spark Connect server {self.name} at port {self.port}: {self.child!r}"

    @property
    def url(self) -> str:
        """URL for Connect clients. The host must be localhost: with an IP address a token would force TLS."""
        return f"sc://localhost:{self.port}/;token={self.token}"

    @property
    def ui(self) -> str:
        """Return the address of the server's UI and REST API."""
        return f"http://127.0.0.1:{self.ui_port}"

    def wait_until_listening(self) -> None:
        """Return once the server accepts connections: this one, not another process on its port.

        Raises:
            PortTakenError: it ended as another process has one of its ports.
            TaskManagerError: it ended otherwise, or did not listen in time.

        """
        deadline = time.monotonic() + LISTENS_S
        while time.monotonic() < deadline:
            if not self.child.alive():
                why = _reason(self.child.tail(200))
                kind = PortTakenError if "BindException" in why else TaskManagerError
                raise kind(f"Task manager {self.name} did not start: {why} ({self.child.ending})")
            if self._listens():
                return
            time.sleep(0.05)
        raise TaskManagerError(f"Task manager {self.name} does not listen after {LISTENS_S:g} s; see its log.")

    def stop(self, timeout_s: float = 3.0) -> None:
        """End the server, after `timeout_s` seconds by force, and remove its directory."""
        try:
            self.child.stop(timeout_s)
        finally:
            self.claim.release()

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            try:
                own = psutil.Process(self.child.pid).net_connections("tcp")
            except psutil.AccessDenied:  # can't tell
                return True
            except psutil.NoSuchProcess:
                return False
            return any(each.status == psutil.CONN_LISTEN and each.laddr.port == self.port for each in own)
        return False

    def _arguments(self, jars: Sequence[Path], own: Sequence[Path]) -> list[str]:
        options = self.options
        java_options = [
            GARBAGE_COLLECTOR,
            "-XX:+ExitOnOutOfMemoryError",  # out of memory, it would hang: its queries restart elsewhere
            "-XX:-UsePerfData",  # its file in /tmp would outlive a kill
            STACK,
            f"-XX:ErrorFile={self.directory / 'hs_err_%p.log'}",
            f"-Xms{options.memory}",
            YOUNG,
            *TRIMMED,
            *JIT_OPTIONS[options.jit],
            f"-Djava.io.tmpdir={self.directory}",
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
        ]
        conf = {
            **CONF,
            "spark.driver.host": HOST,  # a spark-defaults.conf may name another
            "spark.driver.bindAddress": HOST,
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.ui.port": str(self.ui_port),
            "spark.port.maxRetries": "0",
            "spark.local.dir": str(self.directory),
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
            SHUFFLE: str(max(int(planned_cpus(len(options.cpus or every_core()))), 1)),  # of the notebook's own queries
            **options.conf,
        }
        words = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        words += ["--name", f"qod-{self.name}", "--master", f"local[{options.slots}]"]
        words += ["--driver-memory", options.memory, "--driver-java-options", " ".join(map(_quoted, java_options))]
        words += [*_on_class_path(jars), *spark_words(own)]
        for key, value in conf.items():
            words += ["--conf", f"{key}={value}"]
        return [*words, "spark-internal"]


def _on_class_path(jars: Sequence[Path]) -> list[str]:
    """Return the options that put jars on the class path of the JVM itself: unlike those of `--jars`, their classes are
    then in the archive."""
    return ["--driver-class-path", os.pathsep.join(map(str, jars))]


def _python_path(home: Path, directory: Path | None) -> list[str]:
    """Return where Python workers look for modules: as the kernel does, whatever its working directory is by then."""
    entries = [path if os.path.isabs(path) else directory and str(directory / path) for path in sys.path]
    return list(dict.fromkeys([str(home / "python"), *(entry for entry in entries if entry)]))


def _quoted(option: str) -> str:
    """Quote an option that has a space, as Spark's launcher splits the options at spaces."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"' if " " in option else option


def server_archive() -> Path | None:
    """Return the archive of a server's classes, made or not; None if none can be made. Raises SetupError."""
    java, home = find_java(), spark_home()
    jars, _ = _with_state_jar(_with_shedding_source(connector_at(home), java, home)[0], java, home)
    words = ["--class", "none", "--driver-java-options", GARBAGE_COLLECTOR, *_on_class_path(jars), "spark-internal"]
    return class_data.archive_for(ARCHIVE, _on_loopback(launch_command(java, home, _SUBMIT, words), home)[0])


def _on_loopback(command: list[str], home: Path) -> tuple[list[str], str]:
    """Return the same java command, with which shuffles in real-time mode listen on loopback, and ""; or, if that can't
    be, the command as it is, and why queries must not run in real-time mode."""
    made, why = _or(command, lambda: with_jar(command, loopback_jar(home)))
    return made, why and f"shuffles would listen on all interfaces: {why}"


def _with_shedding_source(connector: list[Path], java: Java, home: Path) -> tuple[list[Path], str]:
    """Return the jars of the connector with that of our Kafka source, and ""; or them alone, and why."""
    return _or(connector, lambda: [*connector, shedding_jar(java, home, connector)])


def _with_state_jar(jars: list[Path], java: Java, home: Path) -> tuple[list[Path], str]:
    """Return these jars with the one that assigns state, and ""; or them alone, and why."""
    return _or(jars, lambda: [*jars, state_jar(java, home)])


def _or(plain: T, make: Callable[[], T]) -> tuple[T, str]:
    """Return what is made, and ""; or the plain one, and why that can't be made."""
    try:
        return make(), ""
    except SetupError as error:
        return plain, str(error)


def launch_command(java: Java, home: Path, main: str, arguments: Sequence[str]) -> list[str]:
    """Return the java command that spark-class would run for `main`, from Spark's own launcher: needs no shell, and can
    be modified. Raises SetupError."""
    # these would have it leave out the jars of a server
    surroundings = {name: value for name, value in os.environ.items() if name not in (CONNECT_MODE, REMOTE)}
    answer = subprocess.run(
        [
            str(java.path),
            "-Xmx128m",
            "-cp",
            str(home / "jars" / "*"),
            "org.apache.spark.launcher.Main",
            main,
            *arguments,
        ],
        capture_output=True,
        env={**surroundings, "SPARK_HOME": str(home), "JAVA_HOME": str(java.home), "SPARK_SCALA_VERSION": "2.13"},
        check=False,
    )
    words = [word for word in answer.stdout.decode().replace("\n", "\0").split("\0") if word]
    if answer.returncode != 0 or not words:
        raise SetupError(f"Spark's launcher failed: {_reason(answer.stderr.decode('utf-8', 'replace'))}")
    if java.is_trimmed:
        words = [word for word in words if not word.startswith("--add-modules")]
    return words


#: Stack frames, and what Java says around the reason why it can't begin.
_SAYS_NOTHING = re.compile(
    r"\s*at |# An error report file|Error: Could not create the Java|Error: A fatal exception has occ|"
    r"Error occurred during initialization of VM"
)


def _reason(log: str) -> str:
    """Return the most informative line of a log: the last that names an error and is no stack frame."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not _SAYS_NOTHING.match(line)]
    for line in reversed(lines):
        if "Exception" in line or "Error" in line or "error" in line:
            return line[:300]
    return lines[-1][:300] if lines else "it wrote nothing"


@dataclass(frozen=True, slots=True)
class Tools:
    """What servers are started with: the checked user, Java, Spark and its jars, and what runs a command."""

    user: Callable[[], None] = check_user
    java: Callable[[], Java] = find_java
    home: Callable[[], Path] = spark_home
    jars: Callable[[Path], list[Path]] = connector_at
    packages: Callable[[Sequence[str], Path], list[Path]] = package_jars
    command: Callable[[Java, Path, str, Sequence[str]], list[str]] = launch_command
    child: Callable[..., Child] = Child
