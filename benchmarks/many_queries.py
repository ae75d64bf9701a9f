"""Many light windowed queries on one core, ours by default beside plain Spark: `python -m benchmarks.many_queries`.

Each query counts and averages one topic's rows by key in windows of ten seconds, into a Kafka topic. Plain Spark runs
them in a classic session of its own, in back-to-back batches, on the same core, after ours. Printed for each rate: the
share of rows dropped since the start, the age of a batch's median row when the batch ends, the interval of batches,
CPU, and the backlog; `results/scripts/many_queries.csv` keeps them. With `--failing`, a query whose every row fails
runs beside ours.
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
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import create_topics
from qod_magics.machine.jars import connector_jars
from qod_magics.session.session import Session
from qod_magics.spark.queries.progress import Batch, batch_of

RESULTS = Path(__file__).parent / "results" / "scripts" / "many_queries.csv"
TOPIC, SCHEMA = "light", "k INT, v DOUBLE, at TIMESTAMP"
SQL = "SELECT window(at, '10 seconds') AS w, k, count(*) AS n, avg(v) AS mean FROM {} GROUP BY 1, 2"
FIELDS = ("engine", "queries", "rate", "dropped", "age_s", "interval_s", "cpu", "waiting_s")
KEYS = 20


def send(bootstrap: str, rate: float) -> None:
    """Send rows until the parent ends; client settings come from the environment."""
    from confluent_kafka import Producer

    settings = json.loads(os.environ["QOD_BENCHMARK_CLIENT"])
    producer = Producer({**settings, "bootstrap.servers": bootstrap, "linger.ms": 20})
    began, sent = time.time(), 0
    while os.getppid() != 1:
        now = time.time()
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        while sent < (now - began) * rate:
            producer.produce(TOPIC, json.dumps({"k": sent % KEYS, "v": sent * 0.37 % 1.0, "at": at}))
            sent += 1
            if sent % 1000 == 0:
                producer.poll(0)
        producer.poll(0)
        time.sleep(0.02)


def plain(queries: int, seconds: float, warm_s: float, cpus: set[int]) -> None:
    """Run the queries in a classic Spark session in this process, and print their figures as JSON."""
    os.sched_setaffinity(0, cpus)
    from pyspark.sql import SparkSession

    options = json.loads(os.environ["QOD_BENCHMARK_SPARK"])
    spark = (
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
    with tempfile.TemporaryDirectory() as folder:
        running: list[Any] = []
        for i in range(queries):
            rows = spark.readStream.format("kafka").options(**options).option("subscribe", TOPIC).load()
            rows = rows.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS r").select("r.*")
            rows.createOrReplaceTempView(f"t{i}")
            writer = spark.sql(SQL.format(f"t{i}")).selectExpr("to_json(struct(*)) AS value").writeStream
            writer = writer.format("kafka").options(**options).option("topic", f"plain{i}").outputMode("update")
            running.append(writer.option("checkpointLocation", f"{folder}/{i}").start())
        time.sleep(warm_s)
        me = psutil.Process()
        java = next(child for child in me.children(recursive=True) if "java" in child.name())
        began, used = time.time(), sum(java.cpu_times()[:2])
        time.sleep(seconds)
        cpu = 100.0 * (sum(java.cpu_times()[:2]) - used) / (time.time() - began)
        reports = [[json.loads(each.json) for each in query.recentProgress] for query in running]
        batches = [[b for b in map(batch_of, of_one) if b is not None and b.start >= began] for of_one in reports]
        read = {q: max(b.feeds[0].end[0] for b in mine) if mine else 0 for q, mine in enumerate(batches)}
        print(json.dumps({"cpu": cpu, "read": list(read.values()), **times(batches)}), flush=True)
        for query in running:
            query.stop()
    spark.stop()


def times(batches: Sequence[Sequence[Batch]]) -> Mapping[str, float]:
    """Return the median age of rows when their batch ends, and the median interval of batches, seconds: rows of a batch
    came between the beginnings of the one before and of this."""
    ages, intervals = [], []
    for mine in batches:
        for before, batch in pairwise(mine):
            ages.append(batch.end - batch.start + (batch.start - before.start) / 2)
            intervals.append(batch.start - before.start)
    return {"age_s": median(ages), "interval_s": median(intervals)}


def ours(session: Session, queries: int, seconds: float, warm_s: float, failing: bool) -> Mapping[str, float]:
    """Run the queries by default options, and return their figures."""
    for i in range(queries):
        session.stream(f"rows{i}", topic=TOPIC, schema=SCHEMA)
        recipe = SQL.format(f"rows{i}")
        session.stream(f"q{i}", recipe, priority=1 + i % 2, min_accuracy=0.3, sink=f"kafka:ours{i}")
    time.sleep(warm_s)
    if failing:
        session.stream("rows_bad", topic=TOPIC, schema=SCHEMA)
        session.stream("bad", "SELECT k, raise_error('no') AS x FROM rows_bad", priority=1, min_accuracy=0.3)
    manager = next(iter(session.runtime.task_managers.values()))
    assert manager.server is not None
    began, used = time.time(), manager.used_s() or 0.0
    time.sleep(seconds)
    cpu = 100.0 * ((manager.used_s() or 0.0) - used) / (time.time() - began)
    mine = [i for i in session.runtime.instances.values() if i.job.task.startswith("q")]
    batches = [[b for b in each.batches if b.start >= began] for each in mine]
    last = session.last
    assert last is not None
    assert last.measured is not None
    counts = {name: count for name, count in last.measured.counts.items() if name.startswith("q")}
    rates = last.measured.input_rate
    dropped = sum(c.dropped for c in counts.values()) / max(sum(c.arrived for c in counts.values()), 1)
    waiting = max(last.measured.lag[name] / max(rates.get(name, 1.0), 1.0) for name in counts)
    return {"dropped": dropped, "cpu": cpu, "waiting_s": waiting, **times(batches)}


@contextmanager
def sending(session: Session, rate: float) -> Iterator[None]:
    """Send rows at this rate meanwhile."""
    settings = {**os.environ, "QOD_BENCHMARK_CLIENT": json.dumps(session.kafka.client_config())}
    words = [sys.executable, "-m", "benchmarks.many_queries", "--send", session.kafka.bootstrap, str(rate)]
    process = subprocess.Popen(words, env=settings)
    try:
        os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
        yield
    finally:
        process.kill()
        process.wait()


def measured(queries: int, rate: float, seconds: float, warm_s: float, failing: bool) -> Iterator[dict[str, Any]]:
    """Yield the figures of ours, then of plain Spark, at one rate."""
    last = max(os.sched_getaffinity(0))
    with Session.up(task_managers=1, cores=1, kafka_cpus={last}, warm=True) as session:
        manager = next(iter(session.runtime.task_managers.values()))
        assert manager.server is not None
        cpus = set(manager.server.options.cpus or ())
        topics = [f"{engine}{i}" for engine in ("ours", "plain") for i in range(queries)]
        create_topics(session.kafka, dict.fromkeys([TOPIC, *topics], 1))
        with sending(session, rate):
            found = ours(session, queries, seconds, warm_s, failing)
            yield {"engine": "ours", "queries": queries, "rate": rate, **found}
            session.stop_all()
            session.remove_task_manager(manager.id)
            settings = {**os.environ, "QOD_BENCHMARK_SPARK": json.dumps(dict(session.kafka.spark_options()))}
            settings = {k: v for k, v in settings.items() if k not in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")}
            words = ["--plain", str(queries), str(seconds), str(warm_s), *map(str, cpus)]
            run = subprocess.run(
                [sys.executable, "-m", "benchmarks.many_queries", *words],
                env=settings,
                stdout=subprocess.PIPE,
                check=True,
            )
            told = json.loads(run.stdout.splitlines()[-1])
            ends = end_offsets(session.kafka, [TOPIC], timeout_s=10.0)[TOPIC][0]
            waiting = (ends - min(told.pop("read"))) / rate  # with the seconds that ending it took
            yield {
                "engine": "plain Spark",
                "queries": queries,
                "rate": rate,
                "dropped": 0.0,
                "waiting_s": waiting,
                **told,
            }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--send", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--plain", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--queries", type=int, default=6)
    parser.add_argument("--rates", type=float, nargs="+", default=[100.0, 2000.0, 8000.0])
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--warm", type=float, default=60.0)
    parser.add_argument("--failing", action="store_true")
    given = parser.parse_args()
    if given.send:
        send(given.send[0], float(given.send[1]))
        return
    if given.plain:
        queries, seconds, warm_s, *cpus = given.plain
        plain(int(queries), float(seconds), float(warm_s), set(map(int, cpus)))
        return
    rows = []
    for rate in given.rates:
        for row in measured(given.queries, rate, given.seconds, given.warm, given.failing):
            rows.append(
                {field: row[field] if isinstance(row[field], str) else round(row[field], 3) for field in FIELDS}
            )
            print(*(f"{field} {value}" for field, value in rows[-1].items()), sep=", ", flush=True)
    if not given.failing:
        with RESULTS.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
