"""Exact figures later, beside live processing at full accuracy: `python -m benchmarks.exact_later`.

The application is that of Taxi Drives: two topics of trips are cleaned, and a query finds the stands nearest to both
ends of each trip, and estimates trips, revenue and round trips by stand in windows of ten seconds, here of the time at
which a trip was sent. It runs on one core at accuracy 0.3, then as long at full accuracy, then without rows. `exact`
computes the first span again, twice: with a whole core, and with at most a quarter of it. Printed are, of each,
seconds, rows, and CPU of the task manager beyond what it takes without rows; and of the reruns the share of intervals
that held the exact figure, in all and by figure. `results/scripts/exact_later.csv` keeps them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._live import Table
from benchmarks.evaluation.applications import COLUMNS, TOPICS, clean, nearest_stand, trips
from qod_magics import estimate as est
from qod_magics.data import trip_schema
from qod_magics.kafka.topics import create_topics
from qod_magics.session.session import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESULTS = Path(__file__).parent / "results" / "scripts" / "exact_later.csv"
QUERY, WINDOW_S = "TDSnk2", 10
FIELDS = (
    "what",
    "accuracy",
    "seconds",
    "rows",
    "cpu_s",
    "cpu_us_per_row",
    "task_cpu_s",
    "groups",
    "missing",
    "intervals",
    "held",
    "share_held",
    "by_figure",
)
#: How much earlier and later than the span rows are read, seconds; how long rows that wait may take.
MARGIN_S, DRAIN_S = 2.0, 60.0


def by_stand(TDSrc1: DataFrame, TDSrc2: DataFrame) -> DataFrame:
    """Return estimates of trips, revenue and round trips by the stand at which a trip began."""
    from pyspark.sql import functions as F

    rows = TDSrc1.union(TDSrc2).withColumns(
        {"start": F.expr(nearest_stand("pickup")), "end": F.expr(nearest_stand("dropoff"))}
    )
    groups = rows.withWatermark("_timestamp", "2 seconds").groupBy(
        F.window("_timestamp", f"{WINDOW_S} seconds"), F.col("start.id").alias("stand")
    )
    return groups.agg(
        est.count().alias("trips"),
        est.sum("total_amount").alias("revenue"),
        est.sum(F.expr("CAST(end.id = start.id AS INT)")).alias("round_trips"),
    )


class Run:
    """The query on one task manager, and its CPU."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.manager = next(iter(session.runtime.task_managers.values()))
        self.idle = 0.0  #: cores that are used without a row

    def start(self) -> None:
        """Declare the streams, and start the query."""
        for name, topic in zip(("TDSrc1", "TDSrc2"), TOPICS, strict=True):
            self.session.stream(name, clean, topic=topic, schema=trip_schema(COLUMNS), with_="timestamp")
        self.session.stream(QUERY, by_stand, priority=1, min_accuracy=0.1)

    def keep(self, share: float) -> None:
        """Have the query keep this share of its rows."""
        names = [name for name in self.session.shedders if ">" not in name]  # of what reads a topic of trips
        for name in names:
            self.session.override(name, share)
        print(f"{', '.join(names)} keep {share:g}, of {self.session.shedders}", file=sys.stderr)

    def used_s(self) -> float:
        """Return the task manager's CPU so far."""
        return self.manager.used_s() or 0.0

    def rows(self) -> int:
        """Return how many rows were read so far, dropped ones among them."""
        return sum(each.count.processed + each.count.dropped for each in self.session.rows())

    def drained(self) -> None:
        """Wait until no row waits."""
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline and sum(each.count.waiting for each in self.session.rows()):
            time.sleep(0.5)

    def live(self, seconds: float) -> tuple[datetime, Mapping[str, Any]]:
        """Return the begin of the first whole window, and the figures of the time from now on."""
        began, used, rows = time.time(), self.used_s(), self.rows()
        time.sleep(seconds)
        took, cpu_s = time.time() - began, self.used_s() - used
        first = datetime.fromtimestamp((began // WINDOW_S + 1) * WINDOW_S, UTC)
        return first, {"seconds": took, "rows": self.rows() - rows, "cpu_s": cpu_s - self.idle * took}

    def again(self, first: datetime, windows: int, cpu: float) -> Mapping[str, Any]:
        """Return the figures of a rerun."""
        began, used = time.time(), self.used_s()
        end = first + timedelta(seconds=windows * WINDOW_S)
        found = self.session.exact(QUERY, first, end, margin_s=MARGIN_S, cpu=cpu)
        took, cpu_s = time.time() - began, self.used_s() - used
        for note in found.notes:
            print(f"  {note}", file=sys.stderr)
        figures = [column for column in found.frame.columns if column.endswith("_held")]
        by_figure = [f"{each.removesuffix('_held')} {found.frame[each].dropna().mean():.3f}" for each in figures]
        return {
            "seconds": took,
            "rows": found.rows_read,
            "cpu_s": cpu_s - self.idle * took,
            "task_cpu_s": found.cpu_s,
            "groups": len(found.groups),
            "missing": found.missing,
            "intervals": found.intervals,
            "held": found.held,
            "share_held": found.share,
            "by_figure": "; ".join(by_figure),
        }


def measured(run: Run, rate: float, windows: int, warm_s: float, table: Table) -> None:
    """Measure, and add a row for each step."""
    core = {max(os.sched_getaffinity(0))}
    time.sleep(5.0)
    used = run.used_s()
    time.sleep(10.0)
    run.idle = (run.used_s() - used) / 10.0
    print(f"{run.idle:.3f} cores without a row", file=sys.stderr)
    load = run.session.inject(trips(rate / len(TOPICS), 600.0, partitions=2), cpus=core)
    run.keep(1.0)
    time.sleep(warm_s)
    run.keep(0.3)
    time.sleep(WINDOW_S)
    first, shed = run.live((windows + 1) * WINDOW_S)
    run.keep(1.0)
    time.sleep(WINDOW_S)
    _, full = run.live((windows + 1) * WINDOW_S)
    load.stop()
    run.drained()
    time.sleep(5.0)  # the last windows are written

    def add(what: str, accuracy: float, figures: Mapping[str, Any]) -> None:
        per_row = 1e6 * figures["cpu_s"] / max(figures["rows"], 1)
        table.add({"what": what, "accuracy": accuracy, **figures, "cpu_us_per_row": per_row})

    add("live", 0.3, shed)
    add("live", 1.0, full)
    for cpu in (1.0, 0.25):
        add(f"exact --cpu {cpu:g}", 1.0, run.again(first, windows, cpu))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=500.0, help="rows/s of both topics together")
    parser.add_argument("--windows", type=int, default=5, help="windows of ten seconds that are computed again")
    parser.add_argument("--warm", type=float, default=30.0, help="seconds")
    given = parser.parse_args()
    table = Table(RESULTS, FIELDS)
    with Session.up(task_managers=1, cores=1, kafka_cpus={max(os.sched_getaffinity(0))}) as session:
        create_topics(session.kafka, dict.fromkeys(TOPICS, 2))
        run = Run(session)
        run.start()
        measured(run, given.rate, given.windows, given.warm, table)


if __name__ == "__main__":
    main()
