"""Gaps between batches as long as a target of latency allows, and chains: `python -m benchmarks.gaps`.

Two cases on one core. `light`: two windowed queries with a target of 5 s get a tenth of what the core carries; by
`nephele-flush` batches follow one another, as in Spark alone, by `nephele` they are spaced. `chain`: rows pass four
tasks without state, the last of which has a target of 1 s; by `nephele-fixed-buffers` batches of each are 2 s apart, by
`nephele` gaps shrink and tasks are fused. Each policy decides for a while, in turns. Of each are printed: median and
95th percentile of the latency of rows (median over cycles), the share of cycles in which the latter was within the
target, rows/s processed, CPU of the core, and the number of tasks that the chain had in the end.
`build/evaluation/gaps.csv` keeps them. It takes less than five minutes; the part `nephele-live` of the evaluation runs
it, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._live import Table, sending
from benchmarks.many_queries import LIGHT, SCHEMA
from qod_magics.kafka.topics import create_topics
from qod_magics.session.session import Session

RESULTS = Path("build/evaluation/gaps.csv")
FIELDS = (
    *(
        "round",
        "case",
        "policy",
        "target_s",
        "rate",
        "p50_s",
        "p95_s",
        "within",
        "rows_per_s",
        "waiting",
        "cpu",
        "tasks",
    ),
)
CHAIN = ("read", "clean", "enrich", "score")
QUERIES = ("first", "second")


@dataclass(frozen=True, slots=True)
class Case:
    """A load with its baseline and its target."""

    baseline: str
    target_s: float
    rate: float  #: rows/s of the topic
    last: tuple[str, ...]  #: the queries whose latency counts
    settle_s: float  #: until `nephele` has come to its end


CASES: Mapping[str, Case] = {
    "light": Case("nephele-flush", 5.0, 2500.0, QUERIES, 12.0),
    "chain": Case("nephele-fixed-buffers", 1.0, 1000.0, CHAIN[-1:], 50.0),
}
OURS = "nephele"
#: Seconds until a baseline is measured, and in which `nephele` does not judge a path again.
SETTLE_S, SPAN_S = 12.0, 6.0


def declare(session: Session, case: str) -> None:
    """Declare the queries of a case. Those of the chain may be one query, and are apart."""
    if case == "light":
        for name in QUERIES:
            session.stream(f"{name}_rows", topic=case, schema=SCHEMA)
            recipe = LIGHT.format(f"{name}_rows")
            session.stream(
                name, recipe, priority=1, min_accuracy=1.0, max_latency_s=CASES[case].target_s, sink=f"kafka:{name}_of"
            )
        return
    before, *others = CHAIN
    session.stream(before, topic=case, schema=SCHEMA, mode="microbatch")
    for name in others:
        last = {"priority": 1, "min_accuracy": 1.0, "max_latency_s": CASES[case].target_s} if name == CHAIN[-1] else {}
        session.stream(name, f"SELECT k, v * 1.01 AS v, at FROM {before}", from_=before, mode="microbatch", **last)
        before = name


def part(session: Session) -> None:
    """Make each stream of the chain a query of its own again."""
    for first, second in pairwise(CHAIN):
        if not any(name.startswith(f"{first}.") for name in session.runtime.instances):
            session.unfuse(first, second)


def measured(session: Session, case: Case, settle_s: float, seconds: float) -> Mapping[str, Any]:
    """Return the figures of the policy that decides, once settled."""
    time.sleep(settle_s)
    manager = next(iter(session.runtime.task_managers.values()))

    def processed() -> int:
        return sum(each.count.processed for each in session.runtime.rows() if each.task in case.last)

    before, began, used = processed(), time.time(), manager.used_s() or 0.0
    middles, late = list[float](), list[float]()
    cycle = None
    while time.time() < began + seconds:
        last = session.last
        if last is not None and last.number != cycle and last.snapshot is not None:
            cycle = last.number
            for task in last.snapshot.tasks:
                if task.id in case.last and task.latency_p50_s is not None:
                    middles.append(task.latency_p50_s)
                    late.append(max(task.latency_p95_s or 0.0, task.oldest_s or 0.0))
        time.sleep(0.25)
    took = time.time() - began
    found = {
        "p50_s": median(middles),
        "p95_s": median(late),
        "within": sum(each <= case.target_s for each in late) / len(late),
        "rows_per_s": (processed() - before) / took,
        "waiting": sum(each.count.waiting for each in session.runtime.rows()),
        "cpu": 100.0 * ((manager.used_s() or 0.0) - used) / took,
        "tasks": len(session.runtime.instances),
    }
    print(session.why(case.last[0]), file=sys.stderr, flush=True)
    return found


def measure(
    table: Table,
    *,
    cases: Sequence[str] = tuple(CASES),
    rounds: int = 1,
    seconds: float = 20.0,
    warm: float = 20.0,
) -> None:
    """Add a row for each case, policy and round. The options are those of the command."""
    with Session.up(task_managers=1, cores=1, kafka_cpus={max(os.sched_getaffinity(0))}, warm=True) as session:
        session.record(table.path.with_suffix(".jsonl"))
        session.set_period(2.5)
        create_topics(session.kafka, dict.fromkeys(cases, 1))
        for name in cases:
            case = CASES[name]
            session.set_policy(case.baseline)
            declare(session, name)
            with sending(session.kafka, name, case.rate):
                time.sleep(warm)
                for n in range(rounds):
                    for policy in (case.baseline, OURS):
                        session.set_policy(case.baseline)
                        if name == "chain":
                            part(session)
                        if policy == OURS:
                            session.set_policy(policy, span_s=SPAN_S)
                        figures = measured(session, case, case.settle_s if policy == OURS else SETTLE_S, seconds)
                        of = {"round": n + 1, "case": name, "policy": policy, "target_s": case.target_s}
                        table.add({**of, "rate": case.rate, **figures})
            session.stop_all()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=tuple(CASES))
    parser.add_argument("--rounds", type=int, default=1, help="turns of both policies")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--warm", type=float, default=20.0)
    measure(Table(RESULTS, FIELDS), **vars(parser.parse_args()))


if __name__ == "__main__":
    main()
