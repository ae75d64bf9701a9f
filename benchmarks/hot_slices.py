"""Copies of hot slices of results on several task managers, `python -m benchmarks.hot_slices`.

A query writes rows to Parquet files. These are given times so that each batch of rows sent is a slice. Then a client
asks for the newest slices, as many as Zipf's law with exponent 1.2 says: for groups, for the largest groups, for a
series of minutes (40:40:20). Each policy decides for a while, in turns: `getafix`, `getafix-everywhere` (a copy of each
slice on each task manager), and the default, which keeps no copies. Of each are printed copies and MB in memory, those
of the task manager that has most, and the times of queries. Each kind of query is compared with a plain read of the
files. `build/evaluation/hot_slices.csv` keeps the figures. It takes less than ten minutes.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._live import Table
from qod_magics.kafka.topics import create_topics
from qod_magics.policies import DEFAULT_POLICY
from qod_magics.results.slices import committed
from qod_magics.session.session import Session

RESULTS = Path("build/evaluation/hot_slices.csv")
FIELDS = (
    "round",
    "policy",
    "task_managers",
    "slices",
    "copies",
    "mb",
    "most_mb",
    "queries",
    "median_s",
    "p99_s",
    "compared",
)
POLICIES = ("getafix", "getafix-everywhere", DEFAULT_POLICY)
SCHEMA = "minute INT, zone INT, fare DOUBLE, note STRING"
#: The time of the first slice: a whole minute, seconds since the epoch.
BEGAN_S = 1_767_225_600
EXPONENT = 1.2
KINDS = (
    ("SELECT zone, count(*) AS n, sum(fare), avg(fare) FROM totals WHERE {} GROUP BY zone", 40),
    ("SELECT zone, max(fare) AS most FROM totals WHERE {} GROUP BY zone ORDER BY most DESC, zone LIMIT 5", 40),
    ("SELECT at, count(*), min(fare), max(fare) FROM totals WHERE {} GROUP BY at", 20),
)


def write(session: Session, where: Path, slices: int, rows: int) -> None:
    """Have the query write a slice after the other, and give the files their times."""
    create_topics(session.kafka, {"fares": 1})
    session.stream("fares", topic="fares", schema=SCHEMA)
    session.stream(
        "totals",
        f"SELECT timestamp_seconds({BEGAN_S} + 60 * minute) AS at, zone, fare, note FROM fares",
        priority=1,
        min_accuracy=1.0,
        sink=f"parquet:{where}",
    )
    chosen, seen = random.Random(1), set[str]()
    for minute in range(slices):
        session.send(
            "fares",
            [
                {"minute": minute, "zone": chosen.randrange(200), "fare": i / 4, "note": f"{chosen.getrandbits(160):x}"}
                for i in range(rows)
            ],
        )
        while sum(each.count.processed for each in session.runtime.rows() if each.topic == "fares") < rows * (
            minute + 1
        ):
            time.sleep(0.2)
        at = BEGAN_S + 60 * minute
        for file in committed(str(where)):
            if file.path not in seen:
                os.utime(file.path, (at, at))
                seen.add(file.path)


def same(found: Sequence[Any], plain: Sequence[Any]) -> bool:
    """Return whether two results are equal, sums of floating-point numbers to 12 digits."""

    def close(a: Any, b: Any) -> bool:
        return math.isclose(a, b, rel_tol=1e-12) if isinstance(a, float) and isinstance(b, float) else bool(a == b)

    pairs = zip(sorted(found, key=repr), sorted(plain, key=repr), strict=False)
    return len(found) == len(plain) and all(all(map(close, a, b)) for a, b in pairs)


def measured(
    session: Session, where: Path, policy: str, slices: int, settle_s: float, seconds: float
) -> Mapping[str, Any]:
    """Return the figures of a policy. Raises SystemExit: a result is wrong."""
    session.set_policy(policy)
    chosen, times, compared = random.Random(2), list[float](), set[str]()
    weights = [1 / n**EXPONENT for n in range(1, slices + 1)]
    files = session.spark.read.parquet(str(where))
    session.query(KINDS[0][0].format("at IS NOT NULL")).collect()  # each slice is asked for
    began = time.monotonic()
    while time.monotonic() < began + settle_s + seconds:
        (newest,) = chosen.choices(range(1, slices + 1), weights)
        ((kind, _),) = chosen.choices(KINDS, [share for _, share in KINDS])
        sql = kind.format(f"at >= timestamp_seconds({BEGAN_S + 60 * (slices - newest)})")
        asked = time.monotonic()
        found = session.query(sql).collect()
        if asked > began + settle_s:
            times.append(time.monotonic() - asked)
        if kind not in compared:
            compared.add(kind)
            if not same(found, session.spark.sql(sql.replace("totals", "{totals}"), totals=files).collect()):
                sys.exit(f"{policy}: the result of {sql} differs from that of a plain read")
    kept = session.slices.figures()
    print(session.status(), file=sys.stderr)
    times.sort()
    return {
        "copies": sum(copies for copies, _ in kept.values()),
        "mb": sum(size for _, size in kept.values()) / 1e6,
        "most_mb": max((size for _, size in kept.values()), default=0) / 1e6,
        "queries": len(times),
        "median_s": median(times),
        "p99_s": times[math.ceil(0.99 * len(times)) - 1],
        "compared": len(compared),
    }


def measure(
    table: Table,
    *,
    task_managers: int = 2,
    slices: int = 12,
    rows: int = 20_000,
    policies: Sequence[str] = POLICIES,
    rounds: int = 2,
    settle: float = 12.0,
    seconds: float = 25.0,
) -> None:
    """Add a row for each policy and round. The options are those of the command."""
    with (
        tempfile.TemporaryDirectory() as directory,
        Session.up(task_managers=task_managers, cores=1, period_s=5.0, warm=True) as session,
    ):
        where = Path(directory) / "totals"
        write(session, where, slices, rows)
        for n, policy in [(n, each) for n in range(rounds) for each in policies]:
            found = measured(session, where, policy, slices, settle, seconds)
            of = {"round": n + 1, "policy": policy, "task_managers": task_managers, "slices": slices}
            table.add({**of, **found})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task-managers", type=int, default=2)
    parser.add_argument("--slices", type=int, default=12)
    parser.add_argument("--rows", type=int, default=20_000, help="in each slice")
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--rounds", type=int, default=2, help="turns of all policies")
    parser.add_argument("--settle", type=float, default=12.0)
    parser.add_argument("--seconds", type=float, default=25.0)
    given = parser.parse_args()
    measure(Table(RESULTS, FIELDS), **vars(given))


if __name__ == "__main__":
    main()
