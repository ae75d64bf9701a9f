"""PyFlink in a virtual environment of its own, in the user's cache: installed once, on first use."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from qod_magics.errors import SetupError
from qod_magics.machine.cache import cache_dir, locked
from qod_magics.machine.jars import JarSet, resolve

#: Apache Flink, and the matching release of its Kafka connector. Python packages are in requirements.txt.
FLINK_VERSION = "2.0.2"
CONNECTOR_VERSION = "4.0.1-2.0"

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_CONNECTOR = JarSet(
    f"flink-connector-{CONNECTOR_VERSION}",
    {
        f"org.apache.flink:flink-sql-connector-kafka:{CONNECTOR_VERSION}": (
            "c7127a6518fba5d6b75eb4692229192e7147ea378e69c7b7cf16d0494057b0c3"
        )
    },
)
_WHOLE = "whole"  #: a marker file, written last


class Environment:
    """An installed PyFlink."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.directory / "bin" / "python"

    @property
    def home(self) -> Path:
        """FLINK_HOME: the package contains all of Flink."""
        found = next(self.directory.glob("lib/python*/site-packages/pyflink"), None)
        if found is None:
            raise SetupError(f"PyFlink {FLINK_VERSION} is incomplete: delete {self.directory}.")
        return found


def environment() -> Environment:
    """The environment, from the cache or installed now: a minute or two, 830 MB.

    Raises:
        SetupError: it can't be installed; pip's last line is in the message.

    """
    digest = hashlib.sha256(_REQUIREMENTS.read_bytes() + CONNECTOR_VERSION.encode()).hexdigest()[:12]
    found = Environment(cache_dir() / f"flink-{FLINK_VERSION}-{digest}")
    with locked(cache_dir() / "flink.lock"):
        if not (found.directory / _WHOLE).exists():
            print(f"installing PyFlink {FLINK_VERSION}, once: 830 MB", flush=True)
            shutil.rmtree(found.directory, ignore_errors=True)
            _run(sys.executable, "-m", "venv", found.directory)
            _run(found.python, "-m", "pip", "install", "--quiet", "--no-deps", "-r", _REQUIREMENTS)
            for jar in resolve(_CONNECTOR):
                shutil.copy(jar, found.home / "lib")
            (found.directory / _WHOLE).touch()
    return found


def _run(*command: str | Path, timeout_s: float = 1200.0) -> None:
    try:
        subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, timeout=timeout_s)
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise SetupError(f"PyFlink {FLINK_VERSION} can't be installed: {said[-1]}") from error
