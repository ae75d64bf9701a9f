"""Cameo, Dirigo, Nephele Streaming and Getafix beside their sources, in virtual time; and what that time costs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.cameo import overhead
from benchmarks.cameo.table import EXPERIMENTS as CAMEO
from benchmarks.dirigo.table import EXPERIMENTS as DIRIGO
from benchmarks.evaluation.systems import WORKERS
from benchmarks.findings import Experiment, cpu_s
from benchmarks.getafix.rows import EXPERIMENTS as GETAFIX
from benchmarks.nephele.table import EXPERIMENTS as NEPHELE

TABLES: Mapping[str, Mapping[str, Experiment]] = {
    "Cameo": CAMEO,
    "Dirigo": DIRIGO,
    "Nephele Streaming": NEPHELE,
    "Getafix": GETAFIX,
}
#: The longest begin first, so that the two processes end together.
FIRST = (("Nephele Streaming", "video"), ("Getafix", "memory"))


def messages(_out: Path, scale: float) -> dict[str, Any]:
    """Rows by system; messages and CPU seconds by virtual seconds of Cameo's jobs; CPU seconds by system. Below full
    scale, all runs are short ones, whose figures mean nothing. Two processes share the work: all times are of CPU."""
    quick = scale < 1
    every = [(system, name) for system, table in TABLES.items() for name in table]
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        speed = pool.submit(_speed, quick)
        running = {
            key: pool.submit(experiment, *key, quick) for key in [*FIRST, *(key for key in every if key not in FIRST)]
        }
        done = {key: each.result() for key, each in running.items()}
        return {
            "systems": {
                system: [row for name in table for row in done[system, name]["rows"]]
                for system, table in TABLES.items()
            },
            "speed": speed.result(),
            "cpu_s": {system: sum(done[system, name]["cpu_s"] for name in table) for system, table in TABLES.items()},
        }


def experiment(system: str, name: str, quick: bool) -> dict[str, Any]:
    """The rows of an experiment, and what it took."""
    begun = cpu_s()
    rows = [row.to_json() for row in TABLES[system][name](quick)]
    return {"rows": rows, "cpu_s": cpu_s() - begun}


def _speed(quick: bool) -> list[dict[str, float]]:
    return [_taken(seconds, *found) for seconds, found in overhead.speeds(quick).items()]


def _taken(seconds: float, messages: int, cpu_s: float) -> dict[str, float]:
    return {"seconds": seconds, "messages": messages, "cpu_s": cpu_s}
