"""Jars that are made here for Spark's servers: to keep them on loopback, shed in Kafka's source, and assign state."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from qod_magics.errors import SetupError
from qod_magics.machine.cache import cache_dir, locked
from qod_magics.machine.class_data import ClassFile, UnknownClassError
from qod_magics.machine.java import HOST, Java

# --- Servers on loopback ----------------------------------------------------------------------------------------------
# Where Spark names no host for a server of its own, have it listen on loopback, not on all interfaces.
#
# In real-time mode each task that writes a shuffle opens a port with `TransportContext.createServer()`, which binds it
# to the wildcard address, without a login; it then tells the readers the host of the driver, which is 127.0.0.1 here.
# No setting of Spark, Netty or Java binds it elsewhere. So one instruction of that class is replaced: the null in the
# place of the host. The class, made from the one in Spark's own jar, is put in front of it on the class path. A Java
# agent could do the same, but needs a compiler, which a small Java lacks, and with it the JVM reads each archived class
# from its jar again.

_JARS = "spark-network-common_*.jar"
_CLASS = "org/apache/spark/network/TransportContext"
_SERVER = "org/apache/spark/network/server/TransportServer"
_METHOD = ("createServer", f"(ILjava/util/List;)L{_SERVER};")
_CONSTRUCTOR = f"(L{_CLASS};Ljava/lang/String;ILorg/apache/spark/network/server/RpcHandler;Ljava/util/List;)V"
#: return new TransportServer(this, null, port, rpcHandler, bootstraps)
_CODE = re.compile(rb"(\xbb..\x59\x2a)\x01(\x1b\x2a\xb4..\x2c\xb7(..)\xb0)", re.DOTALL)
_LOAD_STRING = b"\x13"  #: ldc_w
#: Time of the jar and in it, seconds since the epoch (1980-01-01): archives of classes depend on it.
_MADE = 315_532_800


def loopback_jar(home: Path) -> Path:
    """Return the jar to put in front of the class path of the Spark in `home`: in the cache, and made if it is not
    there.

    Raises:
        SetupError: it can't be made of this Spark, or the cache is no place for it.

    """
    try:
        with zipfile.ZipFile(next(home.glob(f"jars/{_JARS}"))) as jar:
            content = _jar(on_loopback(jar.read(f"{_CLASS}.class")))
    except (StopIteration, KeyError, OSError, zipfile.BadZipFile, UnknownClassError) as error:
        why = str(error) or f"it has no {_JARS}"
        raise SetupError(
            f"TransportContext of the Spark in {home} is not as expected: {why}", rule="known class"
        ) from error
    file = cache_dir() / "loopback" / f"transport-{hashlib.sha256(content).hexdigest()[:12]}.jar"
    if os.pathsep in str(file):
        raise SetupError(f"{file} can't be on a class path, which is split at {os.pathsep!r}: set QOD_CACHE")
    try:
        if not _is(file, content):
            _write(file, content)
    except OSError as error:
        raise SetupError(f"{file} can't be written: {error.strerror}") from error
    return file


def on_loopback(content: bytes) -> bytes:
    """Return the class file of TransportContext, where `createServer` without a host takes 127.0.0.1.

    Raises:
        UnknownClassError: it is not the class that Spark 4 has.

    """
    old = ClassFile(content)
    parts = _CODE.fullmatch(old.code(*_METHOD))
    if parts is None or old.member(int.from_bytes(parts[3])) != (_SERVER, "<init>", _CONSTRUCTOR):
        raise UnknownClassError("its createServer does something else")
    new, index = old.with_string(HOST)
    return bytes(new.with_code(*_METHOD, parts[1] + _LOAD_STRING + index.to_bytes(2) + parts[2]))


def with_jar(command: Sequence[str], jar: Path) -> list[str]:
    """Return the same java command with this jar in front of its class path."""
    at = command.index("-cp") + 1
    return [*command[:at], f"{jar}{os.pathsep}{command[at]}", *command[at + 1 :]]


def _jar(class_file: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as jar:
        jar.writestr(zipfile.ZipInfo(f"{_CLASS}.class"), class_file)
    return content.getvalue()


def _is(file: Path, content: bytes) -> bool:
    try:
        return file.read_bytes() == content
    except FileNotFoundError:
        return False


def _write(file: Path, content: bytes) -> None:
    """Have the file complete or not at all: the JVM passes over a jar that it can't read, and says nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as part:
            part.write(content)
        Path(name).chmod(0o644)
        os.utime(name, (_MADE, _MADE))  # the same whoever writes it
        os.replace(name, file)
    finally:
        Path(name).unlink(missing_ok=True)


# --- A Kafka source that sheds while it reads -------------------------------------------------------------------------
# Spark makes a row of each record before a plan can drop it. A record that the reader drops takes less than half of
# that CPU (`benchmarks/dropping.py`), and what is left is Kafka's consumer. No setting of Spark's source does this, so
# a reader of ours, in `shedding_kafka.scala`, stands between Spark's source and Spark. The Scala compiler among Spark's
# own jars compiles it once for each Spark and connector; the jar stays in the cache.
#
# Skipping whole blocks of offsets would spare the consumer, too, but is no sample of single rows: where a key's rows
# come in bursts of 100, intervals of 95 % then cover the truth in 23 % of cases.

SOURCE = Path(__file__).with_name("shedding_kafka.scala")
#: What sends malformed records to a topic, in the same jar.
REJECTS = Path(__file__).with_name("rejects.scala")
#: What holds a batch to a share of a core, in the same jar.
PACE = Path(__file__).with_name("pace.scala")
_COMPILER = "scala.tools.nsc.Main"
#: How long it may take to compile on a busy machine, seconds; some four on an idle one.
COMPILING_S = 120.0
#: Of the classes in the jar: it has the same content whenever it is made.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def shedding_jar(java: Java, home: Path, connector: Sequence[Path]) -> Path:
    """Return the jar of the source for the Spark in `home` and this connector: in the cache, and made if it is not
    there.

    Raises:
        SetupError: it can't be compiled, as of a Spark with other classes, or the cache can't be written.

    """
    return _own_jar((SOURCE, REJECTS, PACE), "kafka-source/shedding-kafka", java, home, connector)


def _own_jar(sources: Sequence[Path], name: str, java: Java, home: Path, connector: Sequence[Path] = ()) -> Path:
    """Return the jar of sources of ours; its `name` below the cache, without its hash. Raises SetupError."""
    names = sorted(jar.name for jar in [*connector, *home.glob("jars/spark-*.jar")])
    used = [*(source.read_text("utf-8") for source in sources), *names]
    digest = hashlib.sha256("\n".join(used).encode()).hexdigest()[:12]
    file = cache_dir() / f"{name}-{digest}.jar"
    if file.exists():
        return file
    with locked(cache_dir() / f"{file.parent.name}.lock"):
        if not file.exists():
            content = compiled(java, sources, [home / "jars" / "*", *connector])
            try:
                _write(file, content)
            except OSError as error:
                raise SetupError(f"{file} can't be written: {error.strerror}") from error
    return file


def compiled(java: Java, sources: Sequence[Path], class_path: Sequence[Path]) -> bytes:
    """Return a jar of the classes of files in Scala, for the Spark of the class path. Raises SetupError."""
    first = sources[0].name
    with tempfile.TemporaryDirectory(prefix="qod-source-") as directory:
        words = [
            str(java.path),
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-cp",
            os.pathsep.join(map(str, class_path)),
            _COMPILER,
        ]
        words += ["-usejavacp", "-nowarn", "-d", directory, *map(str, sources)]
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, errors="replace", timeout=COMPILING_S, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SetupError(f"{first} can't be compiled: {error}") from error
        if done.returncode:
            lines = (done.stdout + done.stderr).splitlines()
            said = next((line for line in lines if "error" in line.lower()), f"exit code {done.returncode}")
            raise SetupError(f"{first} can't be compiled for this Spark: {said[:300]}")
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as jar:
            for path in sorted(Path(directory).rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(str(path.relative_to(directory)), _ZIP_TIME), path.read_bytes())
        return content.getvalue()


# --- State that other instances take over -----------------------------------------------------------------------------
# Spark reads the state of a stopped query as a table (`statestore`), but nothing public writes it; its own offline
# repartitioning spreads the groups of one checkpoint over more shuffle partitions, which all stay with that query. So
# `assigned_state.scala` writes the groups of several checkpoints into one, through Spark's own state stores.

STATE_SOURCE = Path(__file__).with_name("assigned_state.scala")
#: Its class; static methods of it are called by `reflect`.
STATE_CLASS = "org.apache.spark.sql.execution.streaming.state.StateAssignment"


def state_jar(java: Java, home: Path) -> Path:
    """Return the jar that assigns state, for the Spark in `home`: in the cache, and made if it is not there. Raises
    SetupError: it can't be compiled, as of a Spark with other classes, or the cache can't be written."""
    return _own_jar((STATE_SOURCE,), "state/assigned-state", java, home)
