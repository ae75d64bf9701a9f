"""The first minute of a first stream: `python -m benchmarks.first_minute [--rate 200] [--runs 3]`.

Each run brings up a session of its own with the defaults, declares the two dear queries of lab 1 under a calm load, and
prints for the minute from the first declaration on: when both queries run, rows read, rows dropped, and the least
accuracy of each query in any cycle.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qod_magics.controller import Cycle
from qod_magics.data import trip_schema
from qod_magics.session.session import Session

COLUMNS = ["PULocationID", "trip_distance", "total_amount"]
QUERIES = {"fares": ("total_amount", 2, 0.3), "speeds": ("trip_distance", 1, 0.1)}  #: column, priority, minimum
MINUTE_S = 60.0


def scored(column: str) -> Column:
    """Lab 1's model: 8,000 sines a row."""
    return F.expr(f"aggregate(sequence(1, 8000), 0D, (sum, i) -> sum + sin(i * {column}))").alias("score")


def rides(source: DataFrame) -> DataFrame:
    return source.where("trip_distance > 0 AND total_amount > 0")


def once(rate: float) -> str:
    """One run, in a line."""
    last_core = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) - 1
    least = dict.fromkeys(QUERIES, 1.0)
    with Session.up(task_managers=1, cores=1, kafka_cpus={last_core}) as session:

        def see(cycle: Cycle) -> None:
            for name, accuracy in (cycle.measured.accuracy if cycle.measured is not None else {}).items():
                if name in least and accuracy is not None:
                    least[name] = min(least[name], accuracy)

        session.controller.subscribe(see)
        topic = {
            "topic": "trips",
            "partitions": 1,
            "data": {"generator": "taxi-trips", "columns": COLUMNS},
            "rate": rate,
        }
        session.inject({"seed": 1, "duration_s": 2 * MINUTE_S, "topics": [topic]}, cpus={last_core})
        begun = time.monotonic()
        session.stream("rides", rides, topic="trips", schema=trip_schema(COLUMNS), fuse=False)
        for name, (column, priority, minimum) in QUERIES.items():
            session.stream(
                name,
                lambda rides, column=column: rides.select("PULocationID", column, scored(column), "_weight"),
                from_="rides",
                priority=priority,
                min_accuracy=minimum,
            )
        took = time.monotonic() - begun
        time.sleep(max(MINUTE_S - took, 0.0))
        measured = session.last.measured if session.last is not None else None
        counts = measured.counts if measured is not None else {}
        read = sum(count.processed for count in counts.values())
        dropped = sum(count.dropped for count in counts.values())
    kept = ", ".join(f"{name} {accuracy:.3f}" for name, accuracy in least.items())
    return f"both run after {took:.1f} s; {read:,} rows processed, {dropped:,} dropped; least accuracy: {kept}"


def main() -> int:
    parser = argparse.ArgumentParser(description="The first minute of a first stream.")
    parser.add_argument("--rate", type=float, default=200.0, help="rows/s")
    parser.add_argument("--runs", type=int, default=3)
    words = parser.parse_args()
    for _ in range(words.runs):
        print(once(words.rate), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
