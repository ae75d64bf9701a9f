"""Rows that plain Spark processes for a second of CPU, by JIT mode and by time since its start:
`python -m benchmarks.jit [--modes full jvm full jvm] [--recipes totals heavy] [--seconds 180]`.

For each mode a task manager of its own, on one pinned core that is saturated from the first second on by one query
without this project's shedders. CPU is that of the whole JVM: tasks, planning, compilers and collector. Per second of
CPU, as a neighbour on the core takes time from both alike.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.evaluation.capacity import first, pid
from benchmarks.evaluation.cluster import Run, running
from benchmarks.evaluation.plain_query import plain_query
from benchmarks.evaluation.recipes import PLAINS, RECIPES, Recipe, scenario
from qod_magics.jvm.jit import JIT_OPTIONS
from qod_magics.kafka.properties import Retention
from qod_magics.kafka.topics import create_topics

BOUND_S = 0.25  #: of the saturating load: rows of a batch
KEPT = Retention(bytes=20 << 30)  #: all that waits


def measured(run: Run, recipe: Recipe, seconds: float, every_s: float) -> list[tuple[float, float]]:
    """Rows/s and rows for a second of CPU, of each part of `every_s` seconds."""
    process = psutil.Process(pid(first(run)))
    load = run.inject(scenario(recipe.topics, recipe.saturating, 2 * seconds))
    found, rows = [], {}
    with plain_query(run.session, recipe, round(BOUND_S * recipe.saturating)) as query:
        at, used, before = time.monotonic(), sum(process.cpu_times()[:2]), 0
        for _ in range(round(seconds / every_s)):
            run.wait(every_s)
            for batch in query.batches():
                rows[batch.batch_id] = sum(
                    sum(feed.end.values()) - sum(feed.start.values()) for feed in batch.feeds if feed.start is not None
                )
            now, cpu, done = time.monotonic(), sum(process.cpu_times()[:2]), sum(rows.values())
            found.append(((done - before) / (now - at), (done - before) / (cpu - used)))
            at, used, before = now, cpu, done
    load.stop()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Rows that plain Spark processes for a second of CPU, by JIT mode.")
    parser.add_argument("--modes", nargs="+", choices=list(JIT_OPTIONS), default=["full", "jvm", "full", "jvm"])
    parser.add_argument("--recipes", nargs="+", choices=list(RECIPES), default=["totals"])
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--every", type=float, default=15.0, help="seconds")
    words = parser.parse_args()
    for name in words.recipes:
        recipe = RECIPES[name]
        for mode in words.modes:
            with (
                tempfile.TemporaryDirectory() as scratch,
                running(Path(scratch) / "jit.jsonl", {}, jit=mode) as run,
            ):
                create_topics(run.session.kafka, dict.fromkeys((*recipe.topics, PLAINS), 1), retention=KEPT)
                parts = measured(run, recipe, words.seconds, words.every)
            print(f"{name}, {mode}: rows/CPU s {' '.join(f'{of_cpu:,.0f}' for _, of_cpu in parts)}")
            print(
                f"{'':{len(name) + len(mode) + 3}} rows/s     {' '.join(f'{rate:,.0f}' for rate, _ in parts)}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
