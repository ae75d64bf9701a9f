"""The jars that Spark and the embedded broker need: pinned in one file, downloaded once, offline ever after.

`jars.json` has the Maven coordinates of each set with the SHA-256 that this release was tested with, so that nothing
is resolved and no repository, mirror or cache can swap a jar. A jar set is a directory in the user's cache, created
under a temporary name and renamed when complete: it exists complete or not at all.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from qod_magics.errors import SetupError
from qod_magics.machine.cache import cache_dir, locked

#: The pyspark release that this package is built on, and the ones that it accepts (first included, last excluded).
SPARK_VERSION = "4.3.0"
SPARK_SUPPORTED = ("4.2", "4.4")
_CONNECTOR = "org.apache.spark:spark-sql-kafka"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are used together: the SHA-256 of each, in hexadecimal, by its coordinate (group:artifact:version)."""

    name: str
    checksums: Mapping[str, str]

    @property
    def directory(self) -> Path:
        """Where the set is, or will be, in the cache."""
        digest = hashlib.sha256(repr(sorted(self.checksums.items())).encode()).hexdigest()[:12]
        return cache_dir() / "jars" / f"{self.name}-{digest}"

    def cached(self) -> list[Path] | None:
        """Return the jars in the cache, sorted, or None before they are downloaded."""
        return sorted(self.directory.glob("*.jar")) or None


@cache
def _released(name: str) -> JarSet:
    found = json.loads(Path(__file__).with_name("jars.json").read_text("utf-8"))
    return JarSet(name, found[name])


def connector_set() -> JarSet:
    """Return Spark's Kafka connector and its dependencies that Spark lacks: the newest one tested on SPARK_VERSION."""
    return _released("connector")


def broker_set() -> JarSet:
    """Return Apache Kafka's broker with its logger."""
    return _released("broker")


def connector_jars(*, progress: bool = True) -> list[Path]:
    """Return files for `spark.jars`: Spark's Kafka connector. See `resolve` for what is raised."""
    return resolve(connector_set(), progress=progress)


def broker_jars(*, progress: bool = True) -> list[Path]:
    """Return files for the class path of the embedded broker. See `resolve` for what is raised."""
    return resolve(broker_set(), progress=progress)


def connector_advice() -> str:
    """Return how to start a Spark session with the Kafka connector that it lacks."""
    jars = connector_set()
    coordinate = next(each for each in jars.checksums if each.startswith(_CONNECTOR))
    advice = f"start it with spark.jars.packages={coordinate}"
    return f"{advice} or, on this machine, spark.jars={jars.directory}/*.jar" if jars.cached() else advice


def resolve(jars: JarSet, *, progress: bool = True) -> list[Path]:
    """Return the files of this set: from the cache, without network access, else downloaded with a progress bar.
    Concurrent processes download it once.

    Raises:
        SetupError: a jar is published nowhere or is another one, a repository can't be reached, or the cache can't be
            written.

    """
    if found := jars.cached():
        return found
    with locked(cache_dir() / "jars.lock"):
        if found := jars.cached():
            return found
        try:
            _fill(jars, progress)
        except OSError as error:
            raise SetupError(
                f"The jars can't be kept in {cache_dir()}: {error.strerror or error}. Make room there, or set "
                "QOD_CACHE to another place.",
                rule="room",
            ) from error
    return jars.cached() or []


def installed_spark() -> str:
    """Return the version of the installed pyspark, without importing it.

    Raises:
        SetupError: it is not installed.

    """
    try:
        return version("pyspark")
    except PackageNotFoundError:
        raise SetupError(f"pyspark is not installed: pip install 'pyspark[connect]=={SPARK_VERSION}'.") from None


def _fill(jars: JarSet, progress: bool) -> None:
    from qod_magics.machine.maven import download  # loads requests

    jars.directory.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale()
    made = Path(tempfile.mkdtemp(prefix=f".{jars.name}-", dir=jars.directory.parent))
    try:
        for file in download(jars.checksums, jars.name, progress):
            shutil.copyfile(file, made / file.name)
        made.chmod(0o755)
        made.rename(jars.directory)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _remove_stale() -> None:
    """Remove what a killed process left half-done. The caller holds the lock: nobody uses it."""
    for unfinished in (cache_dir() / "jars").glob(".*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    for part in (cache_dir() / "maven").rglob("tmp*"):
        part.unlink(missing_ok=True)
