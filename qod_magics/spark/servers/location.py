"""Where a Spark session runs: its settings, its UI and its cores."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from qod_magics.spark.servers import stages
from qod_magics.spark.servers.connection import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def adopt(spark: SparkSession, conf: Mapping[str, str]) -> dict[str, str | None]:
    """Apply these settings to a session of ours; returns the previous values of those that differed.

    Raises:
        Exception: whatever Spark raises when the session is gone. A setting that the server refuses to change is
            skipped.

    """
    spark.sql("SELECT 1").collect()
    before = {key: setting(spark, key) for key in conf}
    changed = {key: value for key, value in before.items() if value != conf[key]}
    for key in changed:
        with suppress(Exception):
            spark.conf.set(key, conf[key])
    return changed


def setting(spark: SparkSession, key: str) -> str | None:
    """A setting of the session; None if it is not set or the session does not answer."""
    try:
        value: str | None = spark.conf.get(key)
        return value
    except Exception:
        return None


def ui_address(spark: SparkSession) -> str | None:
    """The UI address of a Connect session's application, if it is at the configured or one of the default ports."""
    host, port = setting(spark, "spark.driver.host"), setting(spark, "spark.ui.port")
    application = setting(spark, "spark.app.id")
    if host is None or setting(spark, "spark.ui.enabled") == "false":
        return None
    if port and port != "0":
        return f"http://{host}:{port}"
    for number in range(4040, 4044):  # each application on a machine takes the next port
        with suppress(OSError, ValueError):
            if application in stages.applications(f"http://{host}:{number}", timeout_s=2.0):
                return f"http://{host}:{number}"
    return None


def is_here(spark: SparkSession) -> bool:
    """Whether the session computes on this machine and nowhere else."""
    if not (setting(spark, "spark.master") or "").startswith("local"):
        return False
    host = (setting(spark, "spark.driver.host") or "localhost").strip("[]")
    own = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
    return host in own or host in ("localhost", socket.gethostname(), socket.getfqdn())


def endpoint(spark: SparkSession) -> str | None:
    """`host:port` of a Connect session's server; None for a classic session."""
    if not is_connect(spark):
        return None
    found: str = spark.client._builder.endpoint
    return found


def refuses(endpoint: str, timeout_s: float = 1.0) -> bool:
    """Whether nothing listens at this `host:port`: its process has ended. No answer in time is no proof of that."""
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout_s):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def executor_cores(ui: str | None, application: str | None, patience_s: float) -> float | None:
    """Cores of the executors, if known; waits up to `patience_s` seconds for those of a new server."""
    if ui is None or application is None:
        return None
    deadline = time.monotonic() + patience_s
    while True:
        try:
            executors = stages.answer(f"{ui}/api/v1/applications/{application}/executors", timeout_s=5.0)
        except (OSError, ValueError):
            return None
        cores = sum(entry["totalCores"] for entry in executors if entry["isActive"])
        if cores or time.monotonic() >= deadline:
            return float(cores) or None
        time.sleep(0.5)
