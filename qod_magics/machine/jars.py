"""The jars that Spark and the embedded broker need: versions in one place, resolved once, offline ever after.

A jar set is a directory in the user's cache, created under a temporary name and renamed when complete: it exists
complete or not at all.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from qod_magics.errors import SetupError
from qod_magics.machine.cache import cache_dir, locked

#: The pyspark release that this package is built on, and the ones that it accepts (first included, last excluded).
SPARK_VERSION = "4.3.0"
SPARK_SUPPORTED = ("4.2", "4.4")
SCALA_VERSION = "2.13"
#: The newest published connector tested on SPARK_VERSION, and its dependencies that Spark lacks.
CONNECTOR_VERSION = "4.2.0"
TOKEN_PROVIDER_VERSION = "4.0.0"
CONNECTOR_CLIENTS_VERSION = "3.9.1"
COMMONS_POOL_VERSION = "2.12.0"
#: The embedded broker, and the binding of its logger (slf4j 1).
KAFKA_VERSION = "4.2.0"
LOG4J_VERSION = "2.25.2"

_CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}"
_TOKEN_PROVIDER = f"org.apache.spark:spark-token-provider-kafka-0-10_{SCALA_VERSION}"
#: SHA-256 of the jars that this release was tested with, so that no repository, mirror or cache can swap one.
CHECKSUMS = Path(__file__).with_name("checksums.json")


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are used together.

    `choices` are lists of Maven coordinates (group:artifact:version): the first list that is fully published is used.
    `only` restricts the resolved artifacts to these names; empty keeps all. `checksums` are SHA-256 by file name: a jar
    with another one is refused, and one without is never taken from Maven's local repository.
    """

    name: str
    choices: tuple[tuple[str, ...], ...]
    only: frozenset[str] = frozenset()
    checksums: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def directory(self) -> Path:
        """Where the set is, or will be, in the cache."""
        digest = hashlib.sha256(repr((self.choices, sorted(self.only))).encode()).hexdigest()[:12]
        return cache_dir() / "jars" / f"{self.name}-{digest}"

    def cached(self) -> list[Path] | None:
        """The jars in the cache, sorted, or None before they are resolved."""
        return sorted(self.directory.glob("*.jar")) or None


def connector_set(spark_version: str | None = None) -> JarSet:
    """Spark's Kafka connector for `spark_version` (default: the installed pyspark): the release of the same
    version where published, else the tested one."""
    spark = spark_version or installed_spark()
    tested = (
        f"{_CONNECTOR}:{CONNECTOR_VERSION}",
        f"{_TOKEN_PROVIDER}:{TOKEN_PROVIDER_VERSION}",
        f"org.apache.kafka:kafka-clients:{CONNECTOR_CLIENTS_VERSION}",
        f"org.apache.commons:commons-pool2:{COMMONS_POOL_VERSION}",
    )
    beside_spark = {_CONNECTOR.split(":")[1], _TOKEN_PROVIDER.split(":")[1], "kafka-clients", "commons-pool2"}
    return JarSet(f"connector-{spark}", ((f"{_CONNECTOR}:{spark}",), tested), frozenset(beside_spark), released())


@cache
def released() -> Mapping[str, str]:
    """Return the SHA-256 of the released jars in hexadecimal, by file name."""
    found: Mapping[str, str] = json.loads(CHECKSUMS.read_text("utf-8"))
    return found


def broker_set() -> JarSet:
    """Apache Kafka's broker with its logger."""
    coordinates = (
        f"org.apache.kafka:kafka_{SCALA_VERSION}:{KAFKA_VERSION}",
        f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J_VERSION}",
    )
    return JarSet(f"broker-{KAFKA_VERSION}", (coordinates,), checksums=released())


def connector_jars(spark_version: str | None = None, *, progress: bool = True) -> list[Path]:
    """Files for `spark.jars`: Spark's Kafka connector. See `resolve` for what is raised."""
    return resolve(connector_set(spark_version), progress=progress)


def broker_jars(*, progress: bool = True) -> list[Path]:
    """Files for the class path of the embedded broker. See `resolve` for what is raised."""
    return resolve(broker_set(), progress=progress)


def connector_advice(spark_version: str) -> str:
    """How to start a Spark session with the Kafka connector that it lacks."""
    jars = connector_set(spark_version)
    own, tested = jars.choices
    cached = jars.cached() or []
    found_own = any(file.name.endswith(f"-{spark_version}.jar") and "sql-kafka" in file.name for file in cached)
    coordinates = own if found_own or not cached else tested
    advice = f"start it with spark.jars.packages={','.join(coordinates)}"
    return f"{advice} or, on this machine, spark.jars={jars.directory}/*.jar" if cached else advice


def resolve(jars: JarSet, *, progress: bool = True) -> list[Path]:
    """The files of this set: from the cache, without network access, else resolved and downloaded with a progress bar.
    Concurrent processes resolve it once.

    Raises:
        SetupError: an artifact is published nowhere, a repository can't be reached, or the cache can't be written.

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
                "QOD_CACHE to another place."
            ) from error
    return jars.cached() or []


def installed_spark() -> str:
    """The version of the installed pyspark, without importing it.

    Raises:
        SetupError: it is not installed.

    """
    try:
        return version("pyspark")
    except PackageNotFoundError:
        raise SetupError(f"pyspark is not installed: pip install 'pyspark[connect]=={SPARK_VERSION}'.") from None


def _fill(jars: JarSet, progress: bool) -> None:
    from qod_magics.machine.maven import NotPublished, download

    jars.directory.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale()
    made = Path(tempfile.mkdtemp(prefix=f".{jars.name}-", dir=jars.directory.parent))
    try:
        for file in _first_published(
            jars.choices, lambda c: download(c, jars.name, jars.only, jars.checksums, progress), NotPublished
        ):
            shutil.copyfile(file, made / file.name)
        made.chmod(0o755)
        made.rename(jars.directory)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _first_published(
    choices: tuple[tuple[str, ...], ...], fetch: Callable[[tuple[str, ...]], list[Path]], missing: type[SetupError]
) -> list[Path]:
    for choice in choices[:-1]:
        with suppress(missing):
            return fetch(choice)
    return fetch(choices[-1])


def _remove_stale() -> None:
    """Remove what a killed process left half-done. The caller holds the lock: nobody uses it."""
    for unfinished in (cache_dir() / "jars").glob(".*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    for part in (cache_dir() / "maven").rglob(".part-*"):
        part.unlink(missing_ok=True)
