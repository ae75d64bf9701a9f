"""The REST API of an application's Spark UI: CPU of batches, cores of executors, cached tables.

Spark describes every job of a streaming query by the query's run id and the batch's id, so the completed stages give
the executors' CPU and run time of each batch. Python workers are separate processes and not included.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from qod_magics.spark.servers.connection import is_loopback
from qod_magics.spark.servers.cpu import TaskTime, setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
#: Timeout of an answer about jobs and stages, and of one about storage or of a port that may be another program's,
#: seconds.
STAGES_S, STORAGE_S = 5.0, 2.0
#: What answers on this machine is asked without the proxies of the environment.
_DIRECT, _BY_ENVIRONMENT = build_opener(ProxyHandler({})), build_opener()
_BATCH = re.compile(r"runId = ([0-9a-f-]{36})\s+batch = (\d+)")


def _answer(url: str, timeout_s: float, headers: Mapping[str, str]) -> Any:
    """Return the answer of the REST API at this address. Raises OSError, also where an answer ends before its end, and
    ValueError where it is no JSON."""
    opener = _DIRECT if is_loopback(urlsplit(url).hostname or "") else _BY_ENVIRONMENT
    try:
        with opener.open(Request(url, headers=dict(headers)), timeout=timeout_s) as reply:
            return json.load(reply)
    except HTTPException as error:  # to callers the same as a connection that breaks
        raise OSError(f"{url} was not answered whole: {error!r}") from error


def applications(address: str, headers: Mapping[str, str] = NO_HEADERS, timeout_s: float = STAGES_S) -> list[str]:
    """Return the ids of the applications behind the UI at this address. Raises OSError, ValueError."""
    return [entry["id"] for entry in _answer(f"{address.rstrip('/')}/api/v1/applications", timeout_s, headers)]


class Kept(NamedTuple):
    """What a task manager keeps in memory of a table that was cached."""

    name: str
    bytes: int
    whole: bool  #: whether all of its partitions are there: Spark evicts some where memory is short


@dataclass(frozen=True, slots=True)
class Rest:
    """The REST API of one application. Its methods raise OSError, and ValueError where an answer is no JSON."""

    address: str  #: of its UI
    application: str
    headers: Mapping[str, str]  #: that each request has

    def _ask(self, path: str, timeout_s: float = STAGES_S) -> Any:
        return _answer(
            f"{self.address.rstrip('/')}/api/v1/applications/{self.application}/{path}", timeout_s, self.headers
        )

    def completed_stages(self) -> list[dict[str, Any]]:
        """Return the completed stages that the task manager still keeps."""
        stages: list[dict[str, Any]] = self._ask("stages?status=complete")
        return stages

    def tagged_seconds(self, tag: str) -> float | None:
        """Return the CPU time, seconds, of the completed stages of all jobs with a tag; None: there is no such job."""
        tagged = [job for job in self._ask("jobs") if any(each.endswith(tag) for each in job.get("jobTags") or ())]
        stages = {id for job in tagged for id in job["stageIds"]}
        if not tagged:
            return None
        done = self.completed_stages()
        return sum(float(stage["executorCpuTime"]) / 1e9 for stage in done if stage["stageId"] in stages)

    def active_runs(self) -> set[str]:
        """Return the run ids of the streaming queries with active stages."""
        found = (_BATCH.search(stage.get("description") or "") for stage in self._ask("stages?status=active"))
        return {match[1] for match in found if match}

    def kept_tables(self) -> list[Kept]:
        """Return the cached tables."""
        return [
            Kept(each["name"], int(each["memoryUsed"]), each["numCachedPartitions"] >= each["numPartitions"])
            for each in self._ask("storage/rdd", STORAGE_S)
        ]

    def block_memory(self) -> int:
        """Return the memory for blocks of all executors, bytes."""
        return sum(int(each["maxMemory"]) for each in self._ask("executors", STORAGE_S))

    def cores(self, patience_s: float = 0.0) -> float | None:
        """Return the cores of the executors; None: it does not answer, or has none. Waits up to `patience_s` seconds
        for those of a new server."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                executors = self._ask("executors")
            except (OSError, ValueError):
                return None
            cores = sum(entry["totalCores"] for entry in executors if entry["isActive"])
            if cores or time.monotonic() >= deadline:
                return float(cores) or None
            time.sleep(0.5)


def rest_of(address: str | None, application: str | None, headers: Mapping[str, str] = NO_HEADERS) -> Rest | None:
    """Return the REST API of an application; None where its UI is unknown."""
    return None if address is None or application is None else Rest(address, application, headers)


def ui_address(spark: SparkSession) -> str | None:
    """Return the UI address of a session's application, if it is at the configured or one of the default ports."""
    host, port = setting(spark, "spark.driver.host"), setting(spark, "spark.ui.port")
    application = setting(spark, "spark.app.id")
    if host is None or setting(spark, "spark.ui.enabled") == "false":
        return None
    if port and port != "0":
        return f"http://{host}:{port}"
    for number in range(4040, 4044):  # each application on a machine takes the next port
        with suppress(OSError, ValueError):
            if application in applications(f"http://{host}:{number}", timeout_s=2.0):
                return f"http://{host}:{number}"
    return None


def times_by_batch(stages: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], TaskTime]:
    """Return the time of all tasks of a batch, by (run id, batch id)."""
    found: dict[tuple[str, int], TaskTime] = {}
    for stage in stages:
        match = _BATCH.search(stage.get("description") or "")
        if match:
            key = (match[1], int(match[2]))
            cpu_s, run_s = found.get(key, TaskTime(0.0, 0.0))
            found[key] = TaskTime(cpu_s + stage["executorCpuTime"] / 1e9, run_s + stage["executorRunTime"] / 1e3)
    return found
