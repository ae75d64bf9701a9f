"""Goodput against offered load, by priority, in virtual time: three equal queries of different priority on one core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qod_magics.policies import SHEDDING
from qod_magics.simulator import Simulation, simulate

TIMES = (0.5, 1.0, 2.0, 5.0, 10.0)  #: of the core's capacity
QUERIES = {"top": 3, "middle": 2, "least": 1}
MINIMUM = 0.001
#: microseconds per row: to read and to process it at the source, and to process it in a query
READ_US, SOURCE_US, WORK_US = 10.0, 20.0, 300.0
FIXED, OVERHEAD, PLANNED = 0.02, 0.02, 0.9  #: cores
OVERHEAD_OF_TASK = FIXED + OVERHEAD  #: cores, at any load
LENGTH_S, WARM_S = 300.0, 120.0
NOBODY = "none"  #: no policy


def goodput(
    _out: Path, scale: float, times: Sequence[float] = TIMES, policies: Sequence[str] | None = None
) -> dict[str, Any]:
    """For each policy (default: all), and for none: rows/s processed by each query, and by the top one without the
    others. `times`: loads as multiples of the core's capacity; one of them is 1."""
    length_s = max(LENGTH_S * scale, WARM_S + 60.0)
    return {
        "rows_per_s": {f"{each:g}": _rate(each) for each in times},
        "policies": {
            name: {
                f"{each:g}": {
                    **_run(tuple(QUERIES), each, name, length_s),
                    "alone": _run(("top",), each, name, length_s)["top"],
                }
                for each in times
            }
            for name in (*(policies or SHEDDING), NOBODY)
        },
    }


def used(processed: Mapping[str, float], offered: float) -> float:
    """Cores used when each query processes these rows/s of those `offered`. The source processes as many as the query
    that gets most."""
    tasks = 1 + len(processed)
    by_source = offered * READ_US + max(processed.values()) * SOURCE_US
    return tasks * OVERHEAD_OF_TASK + (by_source + sum(processed.values()) * WORK_US) * 1e-6


def most_possible(queries: Sequence[str], times: float) -> tuple[float, float, float]:
    """The most rows/s that the first of these queries can process, the cores that reading then takes, and the rows/s
    of all queries together. The others get the remaining CPU in turn, and at least their minimum."""
    offered = _rate(times)
    processed = dict.fromkeys(queries, MINIMUM * offered)
    for query in queries:
        # one more row/s costs the work, and for the query that gets most also that of the source
        row_us = WORK_US + (SOURCE_US if query == queries[0] else 0.0)
        more = (PLANNED - used(processed, offered)) / (row_us * 1e-6)
        processed[query] = min(processed[query] + max(more, 0.0), offered)
    return processed[queries[0]], offered * READ_US * 1e-6, sum(processed.values())


def _rate(times: float) -> float:
    """Input rate (rows/s) at which all three queries at accuracy 1 need `times` the planned capacity."""
    tasks = 1 + len(QUERIES)
    row_us = READ_US + SOURCE_US + len(QUERIES) * WORK_US
    return times * (PLANNED - tasks * (FIXED + OVERHEAD)) / (row_us * 1e-6)


def _run(queries: Sequence[str], times: float, policy: str, length_s: float) -> dict[str, float]:
    """Rows/s processed by each of these queries once warm."""
    costs = {"fixed": FIXED, "overhead": OVERHEAD}
    tasks: list[dict[str, Any]] = [{"id": "source", "topic": "in", **costs, "read_us": READ_US, "work_us": SOURCE_US}]
    for name in queries:
        restrictions = {"priority": QUERIES[name], "min_accuracy": MINIMUM}
        tasks.append({"id": name, "upstream": ["source"], **restrictions, **costs, "read_us": 0.0, "work_us": WORK_US})
    run = simulate(
        Simulation.from_json(
            {
                "seed": 1,
                "duration_s": length_s,
                "step_s": 0.25,
                "policy": policy if policy != NOBODY else SHEDDING[0],
                "controlled": policy != NOBODY,
                "topics": [{"topic": "in", "rate": _rate(times)}],
                "task_managers": [{"id": "tm1", "cores": 1, "planned_cores": PLANNED}],
                "tasks": tasks,
                "metrics": {"report_s": 2.5, "cpu_noise": 0.03},
            }
        )
    )
    first = next(cycle for cycle in run.cycles if cycle.snapshot is not None and _second(run.cycles, cycle) >= WARM_S)
    last = run.cycles[-1]
    seconds = _second(run.cycles, last) - _second(run.cycles, first)
    return {name: _growth(first, last, f"source>{name}") / seconds for name in queries}


def _second(cycles: Sequence[Any], cycle: Any) -> float:
    return float((cycle.at - cycles[0].at).total_seconds())


def _growth(first: Any, last: Any, edge: str) -> float:
    def processed(cycle: Any) -> int:
        counts: Mapping[str, Any] = cycle.measured.counts
        return int(counts[edge].processed)

    return float(processed(last) - processed(first))
