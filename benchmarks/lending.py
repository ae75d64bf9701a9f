"""A hot key on two task managers: its rows lent or not, `python -m benchmarks.lending`.

One of 41 keys has 60 % of the rows. A query counts and hashes them by key in windows, as two instances, each on a core
of its own. Rows come at a rate above what the instance of the hot key counts alone, and below what both count. By
`orleans` each key's rows stay on one instance; `dirigo` lends. They decide in turns, each from an empty backlog. Of
each are printed: the rate, the largest backlog of an instance, in rows and in periods of the controller at the rate at
which rows come; of the second half of the time, its growth (rows/s) and the 95th percentile of latency (median and most
over cycles); and the share lent. At the end the counts of all keys are compared with the rows that were sent.
`build/evaluation/lending.csv` keeps the figures. It takes less than six minutes. The part `dirigo-live` of the
evaluation runs it, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._live import Sender, Table, sending
from qod_magics.core.plan import Lend
from qod_magics.core.snapshot import Instance
from qod_magics.kafka.topics import create_topics
from qod_magics.session.session import Session

RESULTS = Path("build/evaluation/lending.csv")
TOPIC, SCHEMA, QUERY = "visits", "k INT, v DOUBLE, at TIMESTAMP", "busy"
#: The hashes of a row cost most of a millisecond: so broker, sender and source need little of the second core.
HASHES = " + ".join(f"length(sha2(repeat(concat(CAST(v AS STRING), {n}), 20000), 512))" for n in range(8))
SQL = (
    "SELECT window(at, '10 seconds') AS w, k, count(*) AS n, max(v) AS most, "
    f"sum({HASHES}) AS work FROM visits GROUP BY 1, 2"
)
#: The hot key, of ten rows those that have it, and the number of the others.
HOT, OF_TEN, OTHERS = 0, 6, 40
POLICIES = ("orleans", "dirigo")
#: Rows of a backlog by which the capacity is measured, seconds at most until it or another backlog is read, how many of
#: these backlogs there are at most, and the factor by which one is read faster while another one follows.
BACKLOG, DRAIN_S, MOST_BACKLOGS, FASTER = 8_000, 45.0, 4, 1.05
#: Rows/s meanwhile, until all code is warm.
WARM_RATE = 400.0
FIELDS = (*("round", "policy", "rate", "waiting", "periods", "growth", "p95_s", "most_p95_s", "lent", "exact"),)


def key_of(number: int) -> int:
    """Return the key of a row by its number."""
    return HOT if number % 10 < OF_TEN else 1 + number // 10 * (10 - OF_TEN) % OTHERS + number % 10 - OF_TEN


@dataclass
class Run:
    """A query of one session on two task managers."""

    session: Session
    sent: Counter[int] = field(default_factory=Counter)  #: rows by key

    @contextmanager
    def sending(self, rate: float, rows: float = inf) -> Iterator[Sender]:
        """Send rows at this rate meanwhile, and count them."""
        with sending(self.session.kafka, TOPIC, rate, rows, "benchmarks.lending:key_of") as sender:
            yield sender
        self.sent.update(map(key_of, range(sender.sent)))

    def instances(self) -> Sequence[Instance]:
        """Return the query's instances in the last cycle."""
        last = self.session.last
        seen = None if last is None else last.snapshot
        return [] if seen is None else [each for each in seen.instances if each.task == QUERY]

    @property
    def waiting(self) -> int:
        """Return the rows that the query has not read, or the source."""
        return sum(each.count.waiting for each in self.session.runtime.rows())

    @property
    def counted(self) -> int:
        """Return the rows that the query has counted."""
        return sum(each.count.processed for each in self.session.runtime.rows() if each.task == QUERY)

    def drain(self) -> float:
        """Wait until all rows are counted; return the seconds that it took."""
        began = time.time()
        time.sleep(3.0)  # until they are in the accounts
        while self.waiting and time.time() < began + DRAIN_S:
            time.sleep(0.25)
        return time.time() - began

    def capacity(self) -> float:
        """Return the rows/s of all keys at which the busiest instance, that of the hot key, has no time left: by the
        batches of several backlogs, until they are counted no faster, as all code is compiled."""
        found = [self._read()]
        while len(found) < MOST_BACKLOGS:
            found.append(self._read())
            if found[-1] < FASTER * found[-2]:
                break
        print("backlogs at", *(f"{each:.0f}" for each in found), "rows/s", file=sys.stderr, flush=True)
        return max(found)

    def _read(self) -> float:
        """Return the rows of a backlog over the time of the batches in which the busiest instance counted its part."""
        before, began = self.counted, time.time()
        with self.sending(1e9, BACKLOG) as sender:
            sender.wait()
            while self.counted < before + BACKLOG and time.time() < began + DRAIN_S:
                time.sleep(0.1)
        read = self.counted - before
        mine = [each for each in self.session.runtime.instances.values() if each.job.task == QUERY]
        took = [sum(b.end - b.start for b in each.batches if b.start > began and b.rows) for each in mine]
        return read / max(took)

    def measured(self, policy: str, rate: float, seconds: float) -> Mapping[str, Any]:
        """Return the figures of a policy, from an empty backlog."""
        self.session.set_policy(policy)
        late: list[tuple[float, float]] = []
        backlog: list[tuple[float, int]] = []
        shares: list[float] = []
        cycle = None
        with self.sending(rate):
            began = time.time()
            while time.time() < began + seconds:
                last = self.session.last
                if last is not None and last.number != cycle and last.snapshot is not None and last.plan is not None:
                    cycle = last.number
                    task = next(each for each in last.snapshot.tasks if each.id == QUERY)
                    late.append((time.time() - began, max(task.latency_p95_s or 0.0, task.oldest_s or 0.0)))
                    backlog.append((time.time() - began, max(each.waiting or 0 for each in self.instances())))
                    shares.append(sum(each.share for each in last.plan.actions if isinstance(each, Lend)))
                time.sleep(0.25)
        print(self.session.why(QUERY), file=sys.stderr, flush=True)
        half = [each for each in backlog if each[0] > seconds / 2]
        settled = [each for at, each in late if at > seconds / 2]  # before, rows of the policy before are in it
        (t0, first), (t1, last_one) = half[0], half[-1]
        most = max(rows for _, rows in backlog)
        return {
            "waiting": most,
            "periods": most / (rate * self.session.controller.period_s),
            "growth": (last_one - first) / (t1 - t0),
            "p95_s": median(settled),
            "most_p95_s": max(settled),
            "lent": median(shares),
        }

    def is_exact(self) -> bool:
        """Return whether the query's counts by key are those of the rows sent."""
        found = {
            row["k"]: row["n"]
            for row in self.session.results(QUERY).groupBy("k").agg({"n": "sum"}).toDF("k", "n").collect()
        }
        if found != dict(self.sent):
            wrong = {key: (found.get(key), n) for key, n in self.sent.items() if found.get(key) != n}
            print(f"counted, sent by key: {wrong}", file=sys.stderr, flush=True)
        return found == dict(self.sent)


def measure(
    table: Table,
    *,
    load: float = 1.3,
    policies: Sequence[str] = POLICIES,
    rounds: int = 2,
    seconds: float = 30.0,
    warm: float = 15.0,
) -> None:
    """Add a row for each policy and round. The options are those of the command."""
    with Session.up(task_managers=2, cores=1, kafka_cpus={max(os.sched_getaffinity(0))}, warm=True) as session:
        run = Run(session)
        session.record(table.path.with_suffix(".jsonl"))
        session.set_policy("orleans")
        session.set_period(2.5)
        create_topics(session.kafka, {TOPIC: 1})
        session.stream(TOPIC, topic=TOPIC, schema=SCHEMA, starting="earliest", fuse=False)
        session.stream(QUERY, SQL, key="k", lend=True, parallelism=2, priority=1, min_accuracy=1.0, mode="microbatch")
        with run.sending(WARM_RATE):
            time.sleep(warm)
        run.drain()
        rate = load * run.capacity()
        print(f"{rate:.0f} rows/s", file=sys.stderr, flush=True)
        for n, policy in [(n, each) for n in range(rounds) for each in policies]:
            found = run.measured(policy, rate, seconds)
            session.set_policy("dirigo")  # which drains sooner
            run.drain()
            row = {"round": n + 1, "policy": policy, "rate": rate, **found, "exact": run.is_exact()}
            table.add(row)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=float, default=1.3, help="rate, as a share of what the hot key's instance reads")
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--rounds", type=int, default=2, help="turns of all policies")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--warm", type=float, default=15.0)
    given = parser.parse_args()
    measure(Table(RESULTS, FIELDS), **vars(given))


if __name__ == "__main__":
    main()
