"""Many windowed queries on one core, ours by default beside plain Spark: `python -m benchmarks.many_queries`.

A light query counts and averages one topic's rows by key in windows of ten seconds, into a Kafka topic; a heavy one
hashes each row, too. Plain Spark runs them in a classic session of its own, in back-to-back batches, on the same core,
after ours. At each rate of rows, lowest first, are printed: the share of rows dropped, the age of a batch's median row
when the batch ends, the interval of batches, CPU, and the backlog. `results/scripts/many_queries.csv` keeps them.

By default six light queries run at three rates. `--mixed` makes every other query heavy, and `--loads` gives rates as
shares of the rate that plain Spark carries. With `--failing`, a query whose every row fails runs beside ours; nothing
is kept of that.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks._live import sending
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import create_topics
from qod_magics.machine.jars import connector_jars
from qod_magics.session.session import Session
from qod_magics.spark.queries.progress import Batch, batch_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = Path(__file__).parent / "results" / "scripts" / "many_queries.csv"
TOPIC, SCHEMA = "light", "k INT, v DOUBLE, at TIMESTAMP"
LIGHT = "SELECT window(at, '10 seconds') AS w, k, count(*) AS n, avg(v) AS mean FROM {} GROUP BY 1, 2"
HEAVY = (
    "SELECT window(at, '10 seconds') AS w, k, count(*) AS n, max(sha2(repeat(CAST(v AS STRING), 100), 512)) AS most "
    "FROM {} GROUP BY 1, 2"
)
FIELDS = ("queries", "kind", "load", "rate", "engine", "dropped", "age_s", "interval_s", "cpu", "waiting_s")
#: Rows that wait before plain Spark's capacity is measured, rows of a batch then, and seconds for which it is measured
#: after the first ones.
PRELOADED, PER_BATCH, CAPACITY_S, CAPACITY_WARM_S = 3_000_000, 100_000, 40.0, 25.0


def sql(i: int, mixed: bool) -> str:
    """Return the SQL of query `i`, with {} for its table. If mixed, every other query is heavy, the first one too."""
    return HEAVY if mixed and i % 2 == 0 else LIGHT


def classic_session() -> SparkSession:
    """Return a classic Spark session in this process, which listens on loopback only."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[16]")
        .config("spark.jars", ",".join(map(str, connector_jars())))
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


@dataclass
class Plain:
    """The queries in a classic Spark session in this process."""

    queries: int
    mixed: bool
    folder: str
    running: list[Any] = field(default_factory=list)

    def start(self, starting: str, per_batch: int | None) -> None:
        """Start them."""
        options = json.loads(os.environ["QOD_BENCHMARK_SPARK"])
        if per_batch is not None:
            options["maxOffsetsPerTrigger"] = str(per_batch)
        spark = classic_session()
        for i in range(self.queries):
            reader = spark.readStream.format("kafka").options(**options).option("startingOffsets", starting)
            rows = reader.option("subscribe", TOPIC).load()
            rows = rows.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS r").select("r.*")
            rows.createOrReplaceTempView(f"t{i}")
            writer = spark.sql(sql(i, self.mixed).format(f"t{i}")).selectExpr("to_json(struct(*)) AS value").writeStream
            writer = writer.format("kafka").options(**options).option("topic", f"plain{i}").outputMode("update")
            self.running.append(writer.option("checkpointLocation", f"{self.folder}/{i}").start())

    def measured(self, seconds: float) -> Mapping[str, Any]:
        """Return figures of the next seconds."""
        java = next(child for child in psutil.Process().children(recursive=True) if "java" in child.name())
        began, used = time.time(), sum(java.cpu_times()[:2])
        time.sleep(seconds)
        cpu = 100.0 * (sum(java.cpu_times()[:2]) - used) / (time.time() - began)
        reports = [[json.loads(each.json) for each in query.recentProgress] for query in self.running]
        batches = [[b for b in map(batch_of, of_one) if b is not None and b.start >= began] for of_one in reports]
        read = [max((b.feeds[0].end[0] for b in mine), default=0) for mine in batches]
        return {"cpu": cpu, "read": read, "rates": [_rate(mine) for mine in batches], **times(batches)}


def _rate(batches: Sequence[Batch]) -> float:
    """Rows/s from the end of the first of these batches to the end of the last one; 0 without."""
    if len(batches) < 2:
        return 0.0
    first, last = batches[0], batches[-1]
    return (last.feeds[0].end[0] - first.feeds[0].end[0]) / (last.end - first.end)


def plain(queries: int, mixed: bool, cpus: set[int], starting: str, per_batch: int | None) -> None:
    """Run the queries. Measure for as many seconds as each line of stdin says, and print the figures as JSON."""
    os.sched_setaffinity(0, cpus)
    with tempfile.TemporaryDirectory() as folder:
        engine = Plain(queries, mixed, folder)
        engine.start(starting, per_batch)
        for line in sys.stdin:
            print(json.dumps(engine.measured(float(line))), flush=True)
        for query in engine.running:
            query.stop()


def times(batches: Sequence[Sequence[Batch]]) -> Mapping[str, float]:
    """Return the median age of rows when their batch ends, and the median interval of batches, seconds: rows of a batch
    came between the beginnings of the one before and of this."""
    ages, intervals = [], []
    for mine in batches:
        for before, batch in pairwise(mine):
            ages.append(batch.end - batch.start + (batch.start - before.start) / 2)
            intervals.append(batch.start - before.start)
    return {"age_s": median(ages or [0.0]), "interval_s": median(intervals or [0.0])}


@dataclass
class Comparison:
    """One run: ours, then plain Spark, on the same core."""

    queries: int
    mixed: bool
    seconds: float
    warm_s: float
    settle_s: float

    @contextmanager
    def plain(self, session: Session, cpus: set[int], starting: str, per_batch: int = 0) -> Iterator[Any]:
        """Run plain Spark meanwhile: yields a function from seconds to their figures."""
        settings = {**os.environ, "QOD_BENCHMARK_SPARK": json.dumps(dict(session.kafka.spark_options()))}
        settings = {k: v for k, v in settings.items() if k not in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")}
        words = ["--plain", str(self.queries), str(int(self.mixed)), starting, str(per_batch), *map(str, cpus)]
        run = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.many_queries", *words],
            env=settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert run.stdin is not None
        assert run.stdout is not None
        with run:
            source, found = run.stdin, run.stdout

            def measured(seconds: float) -> Mapping[str, Any]:
                source.write(f"{seconds}\n")
                source.flush()
                told: Mapping[str, Any] = json.loads(found.readline())
                return told

            yield measured
            source.close()

    def capacity(self, session: Session, cpus: set[int]) -> float:
        """Return the rows/s at which plain Spark just keeps up. Where all read a backlog, each query has an equal share
        of the core, so a row of all n of them takes the sum of 1 / (n rate)."""
        with sending(session.kafka, TOPIC, 1e9, PRELOADED) as sender:
            sender.wait()
        with self.plain(session, cpus, "earliest", PER_BATCH) as measured:
            measured(CAPACITY_WARM_S)
            rates = measured(CAPACITY_S)["rates"]
        print("rows/s of each query:", *map(round, rates), file=sys.stderr, flush=True)
        return self.queries / sum(1.0 / max(rate, 1.0) for rate in rates)

    def ours(self, session: Session, rates: Sequence[float], failing: bool) -> Iterator[Mapping[str, Any]]:
        """Run the queries by default options, and yield their figures at each rate."""
        manager = next(iter(session.runtime.task_managers.values()))
        for n, rate in enumerate(rates):
            with sending(session.kafka, TOPIC, rate):
                if n == 0:
                    for i in range(self.queries):
                        session.stream(f"rows{i}", topic=TOPIC, schema=SCHEMA)
                        recipe = sql(i, self.mixed).format(f"rows{i}")
                        session.stream(f"q{i}", recipe, priority=1 + i % 2, min_accuracy=0.3, sink=f"kafka:ours{i}")
                    time.sleep(self.warm_s)
                    if failing:
                        session.stream("rows_bad", topic=TOPIC, schema=SCHEMA)
                        bad = "SELECT k, raise_error('no') AS x FROM rows_bad"
                        session.stream("bad", bad, priority=1, min_accuracy=0.3)
                time.sleep(self.settle_s)
                before = self._counts(session)
                began, used = time.time(), manager.used_s() or 0.0
                time.sleep(self.seconds)
                cpu = 100.0 * ((manager.used_s() or 0.0) - used) / (time.time() - began)
                mine = [i for i in session.runtime.instances.values() if i.job.task.startswith("q")]
                batches = [[b for b in each.batches if b.start >= began] for each in mine]
                dropped, arrived = (a - b for a, b in zip(self._counts(session), before, strict=True))
                last = session.last
                assert last is not None
                assert last.measured is not None
                waiting = max(last.measured.lag[f"q{i}"] for i in range(self.queries)) / rate
                yield {"dropped": dropped / max(arrived, 1), "cpu": cpu, "waiting_s": waiting, **times(batches)}

    def _counts(self, session: Session) -> tuple[int, int]:
        """Rows dropped, and rows that arrived, of all queries."""
        last = session.last
        assert last is not None
        assert last.measured is not None
        counts = [last.measured.counts[f"q{i}"] for i in range(self.queries)]
        return sum(c.dropped for c in counts), sum(c.arrived for c in counts)

    def figures(self, rates: Sequence[float], loads: Sequence[float], failing: bool) -> Iterator[dict[str, Any]]:
        """Yield the figures of ours, then of plain Spark, at these rates, or at these loads."""
        last = max(os.sched_getaffinity(0))
        with Session.up(task_managers=1, cores=1, kafka_cpus={last}, warm=True) as session:
            manager = next(iter(session.runtime.task_managers.values()))
            assert manager.server is not None
            cpus = set(manager.server.options.cpus or ())
            topics = [f"{engine}{i}" for engine in ("ours", "plain") for i in range(self.queries)]
            create_topics(session.kafka, dict.fromkeys([TOPIC, *topics], 1))
            if loads:
                capacity = self.capacity(session, cpus)
                rates = [load * capacity for load in loads]
            of = {"queries": self.queries, "kind": "mixed" if self.mixed else "light"}
            at = [
                {**of, "load": load, "rate": rate} for load, rate in zip(loads or [""] * len(rates), rates, strict=True)
            ]
            for row, found in zip(at, self.ours(session, rates, failing), strict=True):
                yield {**row, "engine": "ours", **found}
            session.stop_all()
            session.remove_task_manager(manager.id)
            with self.plain(session, cpus, "latest") as measured:
                for n, (row, rate) in enumerate(zip(at, rates, strict=True)):
                    with sending(session.kafka, TOPIC, rate):
                        time.sleep(self.settle_s + (self.warm_s if n == 0 else 0.0))
                        told = dict(measured(self.seconds))
                        ends = end_offsets(session.kafka, [TOPIC], timeout_s=10.0)[TOPIC][0]
                    del told["rates"]
                    waiting = (ends - min(told.pop("read"))) / rate
                    yield {**row, "engine": "plain Spark", "dropped": 0.0, "waiting_s": waiting, **told}


def keep(rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows to the results, in place of those of the same queries."""
    replaced = {(str(row["queries"]), row["kind"]) for row in rows}
    with RESULTS.open(newline="") as file:
        known = [row for row in csv.DictReader(file) if (row["queries"], row.get("kind")) not in replaced]
    every = sorted([*known, *rows], key=lambda row: (row["kind"], int(row["queries"])))
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(every)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--queries", type=int, default=6)
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--rates", type=float, nargs="+", default=[100.0, 2000.0, 8000.0], help="rows/s")
    parser.add_argument("--loads", type=float, nargs="+", default=[], help="shares of plain Spark's capacity")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--warm", type=float, default=50.0)
    parser.add_argument("--settle", type=float, default=12.0)
    parser.add_argument("--failing", action="store_true")
    given = parser.parse_args()
    if given.plain:
        queries, mixed, starting, per_batch, *cpus = given.plain
        plain(int(queries), mixed == "1", set(map(int, cpus)), starting, int(per_batch) or None)
        return
    run = Comparison(given.queries, given.mixed, given.seconds, given.warm, given.settle)
    rows = []
    for found in run.figures(given.rates, given.loads, given.failing):
        row = {name: round(value, 3) if isinstance(value, float) else value for name, value in found.items()}
        rows.append({name: row[name] for name in FIELDS})
        print(*(f"{name} {value}" for name, value in rows[-1].items()), sep=", ", flush=True)
    if not given.failing:
        keep(rows)


if __name__ == "__main__":
    main()
