"""CPU and run time of streaming batches, from Spark's REST API.

Spark describes every job of a streaming query by the query's run id and the batch's id, so the completed stages give
the executors' CPU and run time of each batch. Python workers are separate processes and not included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from qod_magics.spark.servers.connection import is_loopback

#: What answers on this machine is asked without the proxies of the environment.
_DIRECT, _BY_ENVIRONMENT = build_opener(ProxyHandler({})), build_opener()
_BATCH = re.compile(r"runId = ([0-9a-f-]{36})\s+batch = (\d+)")


class TaskTime(NamedTuple):
    """Of the tasks of a batch, seconds."""

    cpu_s: float
    run_s: float  #: from begin to end of each task, with what it waited for its core


def answer(url: str, timeout_s: float) -> Any:
    """What the REST API answers at this address. Raises OSError, also where an answer ends before its end, and
    ValueError where it is no JSON."""
    opener = _DIRECT if is_loopback(urlsplit(url).hostname or "") else _BY_ENVIRONMENT
    try:
        with opener.open(url, timeout=timeout_s) as reply:
            return json.load(reply)
    except HTTPException as error:  # to callers the same as a connection that breaks
        raise OSError(f"{url} was not answered whole: {error!r}") from error


def completed_stages(api: str, application: str, timeout_s: float = 5.0) -> list[dict[str, Any]]:
    """The completed stages that the task manager still keeps. `api` is the UI's address. Raises OSError."""
    url = f"{api.rstrip('/')}/api/v1/applications/{application}/stages?status=complete"
    stages: list[dict[str, Any]] = answer(url, timeout_s)
    return stages


def active_runs(api: str, application: str, timeout_s: float = 5.0) -> set[str]:
    """Run ids of the streaming queries with active stages. Raises OSError."""
    url = f"{api.rstrip('/')}/api/v1/applications/{application}/stages?status=active"
    found = (_BATCH.search(stage.get("description") or "") for stage in answer(url, timeout_s))
    return {match[1] for match in found if match}


def applications(api: str, timeout_s: float = 5.0) -> list[str]:
    """Ids of the applications behind this UI. Raises OSError."""
    return [entry["id"] for entry in answer(f"{api.rstrip('/')}/api/v1/applications", timeout_s)]


def times_by_batch(stages: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], TaskTime]:
    """By (run id, batch id), all tasks of all stages of a batch together."""
    found: dict[tuple[str, int], TaskTime] = {}
    for stage in stages:
        match = _BATCH.search(stage.get("description") or "")
        if match:
            key = (match[1], int(match[2]))
            cpu_s, run_s = found.get(key, TaskTime(0.0, 0.0))
            found[key] = TaskTime(cpu_s + stage["executorCpuTime"] / 1e9, run_s + stage["executorRunTime"] / 1e3)
    return found
