"""What batches spend on their state: `python -m benchmarks.state [--recipes dedup join] [--rates 14000 41000]`.

Each recipe of the comparison with plain Spark runs by default options on one pinned core, under each of the rates in
turn. Of the batches that begin in the second half of each phase, the medians are printed: rows read, rows of state,
seconds, CPU of the tasks, and of it the search of the state for expired rows, which reads all of it in every batch: in
seconds, as a share, and for each row of state.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.evaluation.against_plain import KEPT
from benchmarks.evaluation.capacity import first
from benchmarks.evaluation.cluster import Run, running
from benchmarks.evaluation.recipes import OURS, QUERY, RECIPES, Recipe, scenario, start
from qod_magics.kafka.topics import create_topics
from qod_magics.policies import DEFAULT_POLICY
from qod_magics.spark.servers.stages import TaskTime

POLL_S = 3.0  #: Spark forgets reports and stages of earlier batches
HEADINGS = ("batches", "rows", "state rows", "batch, s", "CPU, s", "eviction, s", "share", "us a row")


def report(query: Any) -> list[dict[str, Any]]:
    """The reports of a query that are still kept and have state."""
    return [found for each in query.recentProgress if (found := json.loads(each.json)).get("stateOperators")]


def phase(run: Run, seconds: float) -> tuple[list[dict[str, Any]], dict[tuple[str, int], TaskTime]]:
    """The reports of the batches that begin in the second half of so much time, and the time of all tasks."""
    instance = run.session.runtime.instances[f"{QUERY}.1"]
    reports: dict[int, dict[str, Any]] = {}
    times: dict[tuple[str, int], TaskTime] = {}
    begun = time.monotonic()
    known = {each["batchId"] for each in report(instance.query)}
    while (passed := time.monotonic() - begun) < seconds:
        run.wait(POLL_S)
        for each in report(instance.query):
            if each["batchId"] not in known and passed > seconds / 2:
                reports[each["batchId"]] = each
            known.add(each["batchId"])
        times |= first(run).task_times(POLL_S) or {}
    return list(reports.values()), times


def line(name: str, rate: float, reports: list[dict[str, Any]], times: dict[tuple[str, int], TaskTime]) -> str:
    """The medians of a phase."""
    rows = []
    for each in reports:
        taken = times.get((each["runId"], each["batchId"]))
        if taken is None:
            continue
        operators = each["stateOperators"]
        state = sum(one["numRowsTotal"] for one in operators)
        run_s = sum(one["allRemovalsTimeMs"] for one in operators) / 1e3
        eviction = taken.cpu_s * min(run_s / max(taken.run_s, 1e-3), 1.0)
        read = sum(source["numInputRows"] for source in each["sources"])
        took = each["batchDuration"] / 1e3
        rows.append((read, state, took, taken.cpu_s, eviction, eviction / taken.cpu_s, 1e6 * eviction / max(state, 1)))
    if not rows:
        return f"{name:>12}{rate:>10,.0f}: no batch ended"
    read, state, took, cpu, eviction, share, each_us = (median(column) for column in zip(*rows, strict=True))
    return (
        f"{name:>12}{rate:>10,.0f}{len(rows):>12}{read:>12,.0f}{state:>12,.0f}{took:>12.2f}{cpu:>12.2f}"
        f"{eviction:>12.2f}{share:>12.2f}{each_us:>12.2f}"
    )


def measure(name: str, recipe: Recipe, rates: list[float], seconds: float) -> None:
    """Run a recipe under these rates, and print a line for each."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(Path(scratch) / "state.jsonl", {}, policy_name=DEFAULT_POLICY) as run,
    ):
        create_topics(run.session.kafka, dict.fromkeys((*recipe.topics, OURS), 1), retention=KEPT)
        start(run.session, recipe)
        for rate in rates:
            load = run.inject(scenario(recipe.topics, rate, 2 * seconds))
            print(line(name, rate, *phase(run, seconds)), flush=True)
            load.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="What batches spend on their state.")
    stateful = [name for name, recipe in RECIPES.items() if not recipe.stateless]
    parser.add_argument("--recipes", nargs="+", choices=stateful, default=["dedup", "join"])
    parser.add_argument("--rates", type=float, nargs="+", default=[3_000.0, 9_000.0], help="rows/s of all topics")
    parser.add_argument("--seconds", type=float, default=45.0, help="of each rate")
    words = parser.parse_args()
    print(f"{'recipe':>12}{'rows/s':>10}" + "".join(f"{heading:>12}" for heading in HEADINGS))
    for name in words.recipes:
        measure(name, RECIPES[name], words.rates, words.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
