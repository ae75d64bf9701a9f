"""Where a task manager's CPU goes, by kind of thread: `python -m benchmarks.threads [--queries 2] [--rates 60000]`.

Equal queries (a recipe of the comparison with plain Spark) of different priority run by default options on one pinned
core, under each of the rates in turn. Printed every few seconds: CPU of the threads by kind in % of one core, the
utilization of the machine's cores (the task manager has the first, broker and injector the last), and each query's
accuracy.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.evaluation.against_plain import KEPT
from benchmarks.evaluation.applications import COLUMNS
from benchmarks.evaluation.capacity import first, pid
from benchmarks.evaluation.cluster import Run, running
from benchmarks.evaluation.recipes import LEAST, RECIPES, scenario
from qod_magics.data import trip_schema
from qod_magics.kafka.topics import create_topics
from qod_magics.policies import DEFAULT_POLICY

#: By the begin of a thread's name, as the kernel keeps it (15 characters); others are "other".
KINDS = {
    "Executor task ": "tasks",
    "stream executio": "stream",  # planning, commits
    "C2 CompilerThre": "C2",
    "C1 CompilerThre": "C1",
    "VM Thread": "collector",
    "kafka-producer-": "producer",
    "dag-scheduler-e": "scheduler",
    "dispatcher-": "scheduler",
    "task-result-get": "scheduler",
    "spark-listener-": "listeners",
    "grpc-": "Connect",
    "SparkUI-": "UI",
    "rocksdb": "RocksDB",
    "state-store-mai": "state",
}


def used_s(process: int) -> Counter[str]:
    """CPU seconds so far of a process by kind of thread."""
    found: Counter[str] = Counter()
    for thread in psutil.Process(process).threads():
        with suppress(OSError):
            name = Path(f"/proc/{process}/task/{thread.id}/comm").read_text().strip()
            kind = next((kind for begin, kind in KINDS.items() if name.startswith(begin)), f"other ({name})")
            found[kind] += thread.user_time + thread.system_time
    return found


def phase(run: Run, seconds: float, every_s: float) -> None:
    """Print a line every few seconds."""
    process = pid(first(run))
    before = used_s(process)
    for _ in range(round(seconds / every_s)):
        run.wait(every_s)
        now = used_s(process)
        cores = "/".join(f"{core:.0f}" for core in psutil.cpu_percent(percpu=True))
        share = {kind: 100.0 * (now[kind] - before[kind]) / every_s for kind in now}
        parts = [f"{kind} {cpu:.1f}" for kind, cpu in sorted(share.items(), key=lambda one: -one[1]) if cpu >= 0.5]
        last = run.session.last
        accuracy = last.measured.accuracy if last is not None and last.measured is not None else {}
        kept = ", ".join(f"{name} {a:.2f}" for name, a in accuracy.items() if a is not None)
        print(f"  all {sum(share.values()):.0f}: {', '.join(parts)} | cores {cores} | {kept}", flush=True)
        before = now


def main() -> int:
    parser = argparse.ArgumentParser(description="Where a task manager's CPU goes, by kind of thread.")
    parser.add_argument("--recipe", choices=[n for n, r in RECIPES.items() if len(r.topics) == 1], default="totals")
    parser.add_argument("--queries", type=int, default=2)
    parser.add_argument("--rates", type=float, nargs="+", default=[40_000.0, 120_000.0], help="rows/s")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each rate")
    parser.add_argument("--every", type=float, default=5.0, help="seconds")
    parser.add_argument("--record", type=Path, help="keep the recording of the controller there")
    words = parser.parse_args()
    recipe = RECIPES[words.recipe]
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(words.record or Path(scratch) / "threads.jsonl", {}, policy_name=DEFAULT_POLICY) as run,
    ):
        create_topics(run.session.kafka, dict.fromkeys(recipe.topics, 1), retention=KEPT)
        for i in range(words.queries):
            run.session.stream(
                f"query{i + 1}",
                recipe.query,
                topic=recipe.topics[0],
                schema=trip_schema(COLUMNS),
                priority=words.queries - i,
                min_accuracy=LEAST,
            )
        for rate in words.rates:
            print(f"{words.recipe}, {words.queries} queries, {rate:,.0f} rows/s", flush=True)
            load = run.inject(scenario(recipe.topics, rate, 2 * words.seconds))
            phase(run, words.seconds, words.every)
            load.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
