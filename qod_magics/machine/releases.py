"""Spark's releases: which are supported, which client can use which server, and what a release lacks.

What a release can do follows from its own classes or, where these can't be read, from its number.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from pathlib import Path

from qod_magics.errors import SetupError

#: The pyspark release that all is tested with, and the ones that are accepted (first included, last excluded).
SPARK_VERSION = "4.3.0"
SPARK_SUPPORTED = ("4.1", "4.4")

#: A fault of the Kafka connector of Spark 4.1, as a clause, and what to do about it.
CONNECTOR_FAULT = (
    "Spark's Kafka connector before 4.1.3 can't report the first batch after a restart, whose rows then count as "
    "unreported (SPARK-57438)",
    "start the server with the connector 4.1.3 or later",
)


def numbers(release: str) -> tuple[int, ...]:
    """Return major and minor number of a release: those of "4.3.0" are 4 and 3."""
    return tuple(int(number) for number in re.findall(r"\d+", release)[:2])


def is_supported(release: str) -> bool:
    """Return whether this package runs with that release of Spark."""
    first, beyond = map(numbers, SPARK_SUPPORTED)
    return first <= numbers(release) < beyond


def installed_spark() -> str:
    """Return the version of the installed pyspark, without importing it.

    Raises:
        SetupError: it is not installed.

    """
    try:
        return version("pyspark")
    except PackageNotFoundError:
        raise SetupError(f"pyspark is not installed: pip install 'pyspark[connect]=={SPARK_VERSION}'.") from None


def release_at(home: Path) -> str | None:
    """Return the release of the Spark in a directory; None if its jars don't show it."""
    jars = [path.stem.partition("_")[2].partition("-")[2] for path in (home / "jars").glob("spark-core_*.jar")]
    return jars[0] if jars else None


def check_server(server: str, where: str, client: str | None = None) -> None:
    """Refuse a server that is older than its client, of which Spark promises nothing.

    Args:
        server: its release.
        where: its address or directory, for the error.
        client: the release of pyspark; None: the installed one.

    Raises:
        SetupError: its release is lower than the client's, or not supported.

    """
    client = client or installed_spark()
    if not is_supported(server):
        first, beyond = SPARK_SUPPORTED
        raise SetupError(
            f"the Spark of {where} must be {first} or later, before {beyond}, got {server}; take another server",
            name=where,
            value=server,
            rule="supported release",
        )
    if numbers(server) < numbers(client):
        major, minor = numbers(server)
        raise SetupError(
            f"the Spark of {where} must not be older than its client, pyspark {client}, got {server}; "
            f"pip install 'pyspark[connect]=={major}.{minor}.*' here, or take a newer server",
            name=where,
            value=server,
            rule="client not newer",
        )


def may_have_fault(release: str) -> bool:
    """Return whether a server of this release may run with the connector of `CONNECTOR_FAULT`."""
    return numbers(release) == (4, 1)


def without_realtime() -> str:
    """Return why no query can be started in real-time mode with the installed pyspark; "": one can."""
    from pyspark.sql.streaming import DataStreamWriter

    if "realTime" in signature(DataStreamWriter.trigger).parameters:
        return ""
    return f"pyspark {installed_spark()} can't ask for it"
