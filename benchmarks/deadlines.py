"""Batches in the order of their deadlines: queries with a target beside heavy ones on a core, `python -m
benchmarks.deadlines`.

Light windowed queries have a target of latency, heavy ones (each row is hashed) have none. Rows of the heavy ones come
at a share of the rate at which all of them drain a backlog beside the light ones. Each policy decides for a while, in
turns: `orleans`, which is Spark as it is, `fifo` and `cameo`. Of each are printed: median and 95th percentile of the
latency of the light queries' rows (medians over cycles, and the most), the share of cycles in which the latter was
within the target, the rows/s that the heavy ones read, what was left waiting, and CPU. `build/evaluation/deadlines.csv`
keeps them. It takes less than six minutes. The part `cameo-live` of the evaluation runs it, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._live import Table, sending
from benchmarks.many_queries import HEAVY, LIGHT, SCHEMA
from qod_magics.kafka.topics import create_topics
from qod_magics.session.session import Session

RESULTS = Path("build/evaluation/deadlines.csv")
URGENT, BULK = "urgent", "bulk"
FIELDS = (
    "round",
    "policy",
    "urgent",
    "heavy",
    "target_s",
    "rate",
    "p50_s",
    "p95_s",
    "most_p95_s",
    "within",
    "rows_per_s",
    "waiting",
    "cpu",
)
POLICIES = ("orleans", "fifo", "cameo")
#: Rows of the backlog by which the capacity is measured, rows/s of the light queries, seconds at most until it is read.
BACKLOG, URGENT_RATE, DRAIN_S = 150_000, 100.0, 60.0
#: Seconds at most until a policy's backlog is read.
DRAINED_S = 15.0


@dataclass
class Run:
    """Queries of one session on one core."""

    session: Session
    urgent: int
    heavy: int
    target_s: float

    def start(self) -> None:
        """Start all queries; none of them sheds."""
        for topic, text, count, more in (
            (URGENT, LIGHT, self.urgent, {"max_latency_s": self.target_s}),
            (BULK, HEAVY, self.heavy, {}),
        ):
            for i in range(count):
                self.session.stream(f"{topic}_rows{i}", topic=topic, schema=SCHEMA)
                self.session.stream(
                    f"{topic}{i}",
                    text.format(f"{topic}_rows{i}"),
                    priority=1,
                    min_accuracy=1.0,
                    sink=f"kafka:{topic}{i}",
                    **more,
                )

    def of(self, topic: str) -> Sequence[Any]:
        """Return the row counts of the queries of a topic."""
        return [each.count for each in self.session.runtime.rows() if each.topic == topic]

    def capacity(self) -> float:
        """Return the rows/s at which each heavy query reads a backlog beside all others."""
        before = [count.processed for count in self.of(BULK)]
        began = time.time()
        with sending(self.session.kafka, BULK, 1e9, BACKLOG) as sender:
            sender.wait()
            while time.time() < began + DRAIN_S:
                read = [count.processed - old for count, old in zip(self.of(BULK), before, strict=True)]
                if min(read) >= BACKLOG:
                    break
                time.sleep(0.25)
        return sum(read) / len(read) / (time.time() - began)

    def drain(self) -> None:
        """Wait until the heavy queries have read all, so that no policy gets the backlog of another one."""
        began = time.time()
        time.sleep(1.0)  # until the last rows are in the accounts
        while sum(count.waiting for count in self.of(BULK)) and time.time() < began + DRAINED_S:
            time.sleep(0.25)

    def measured(self, policy: str, settle_s: float, seconds: float) -> Mapping[str, Any]:
        """Return the figures of a policy."""
        self.session.set_policy(policy)
        time.sleep(settle_s)
        manager = next(iter(self.session.runtime.task_managers.values()))
        before, began, used = self.of(BULK), time.time(), manager.used_s() or 0.0
        found: list[float] = []
        middles: list[float] = []
        cycle = None
        while time.time() < began + seconds:
            last = self.session.last
            if last is not None and last.number != cycle and last.snapshot is not None:
                cycle = last.number
                mine = [task for task in last.snapshot.tasks if task.id.startswith(URGENT)]
                found += [max(task.latency_p95_s or 0.0, task.oldest_s or 0.0) for task in mine]
                middles += [task.latency_p50_s for task in mine if task.latency_p50_s is not None]
            time.sleep(0.5)
        took, after = time.time() - began, self.of(BULK)
        rows = [count.processed - old.processed for count, old in zip(after, before, strict=True)]
        for task in (f"{URGENT}0", f"{BULK}0"):
            print(self.session.why(task), file=sys.stderr)
        return {
            "p50_s": median(middles) if middles else None,
            "p95_s": median(found),
            "most_p95_s": max(found),
            "within": sum(each <= self.target_s for each in found) / len(found),
            "rows_per_s": sum(rows) / took,
            "waiting": sum(count.waiting for count in after),
            "cpu": 100.0 * ((manager.used_s() or 0.0) - used) / took,
        }


def measure(
    table: Table,
    *,
    urgent: int = 2,
    heavy: int = 3,
    target: float = 2.0,
    load: float = 0.9,
    policies: Sequence[str] = POLICIES,
    rounds: int = 2,
    seconds: float = 16.0,
    warm: float = 30.0,
    settle: float = 6.0,
) -> None:
    """Add a row for each policy and round. The options are those of the command."""
    with Session.up(task_managers=1, cores=1, kafka_cpus={max(os.sched_getaffinity(0))}, warm=True) as session:
        run = Run(session, urgent, heavy, target)
        session.record(table.path.with_suffix(".jsonl"))
        session.set_policy("orleans")
        session.set_period(2.5)
        create_topics(session.kafka, {URGENT: 1, BULK: 1})
        with sending(session.kafka, URGENT, URGENT_RATE):
            run.start()
            with sending(session.kafka, BULK, 500.0):
                time.sleep(warm)
            rate = load * run.capacity()
            print(f"{rate:.0f} rows/s for each heavy query", file=sys.stderr, flush=True)
            for n, policy in [(n, each) for n in range(rounds) for each in policies]:
                with sending(session.kafka, BULK, rate):
                    found = run.measured(policy, settle, seconds)
                session.set_policy("orleans")
                run.drain()
                of = {"round": n + 1, "policy": policy, "urgent": urgent, "heavy": heavy, "target_s": target}
                table.add({**of, "rate": rate, **found})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urgent", type=int, default=2, help="light queries with a target")
    parser.add_argument("--heavy", type=int, default=3, help="heavy queries without one")
    parser.add_argument("--target", type=float, default=2.0, help="seconds")
    parser.add_argument(
        "--load", type=float, default=0.9, help="share of the rate at which heavy queries read a backlog"
    )
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--rounds", type=int, default=2, help="turns of all policies")
    parser.add_argument("--seconds", type=float, default=16.0)
    parser.add_argument("--warm", type=float, default=30.0)
    parser.add_argument("--settle", type=float, default=6.0)
    given = parser.parse_args()
    measure(Table(RESULTS, FIELDS), **vars(given))


if __name__ == "__main__":
    main()
