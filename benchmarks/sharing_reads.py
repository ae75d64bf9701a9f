"""One read for two stateless queries over one topic, beside a read for each: `python -m benchmarks.sharing_reads`.

Plain Spark on one pinned core reads a topic that is full already, in turns: as two queries; as one query that makes an
array of both results of a record, and a row of each element that passed; and as one query that keeps each batch in
memory and writes it twice. Printed: CPU of the process for each record, microseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from statistics import median
from typing import Any

import psutil

from benchmarks.dropping import SCHEMA, fill
from benchmarks.many_queries import classic_session
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.topics import create_topics

TOPIC = "shared"
PER_BATCH = 200_000
#: By query: what it selects, and the rows that pass.
RECIPES = (("zone, distance * 1.6 AS km", "zone < 200"), ("zone, CAST(at AS DATE) AS km", "distance > 8"))


def main() -> None:
    """Print the costs of each round, and their medians without the first one, which is cold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharing_reads", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--on", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.on:
        measure(given.rows, given.rounds, json.loads(given.on[0]), int(given.on[1]))
        return
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    with EmbeddedBroker(cpus={last}) as broker:
        create_topics(broker, {TOPIC: 1})
        fill(broker, TOPIC, given.rows)
        words = ["--rows", str(given.rows), "--rounds", str(given.rounds)]
        on = ["--on", json.dumps(dict(broker.spark_options())), str(first)]
        subprocess.run([sys.executable, "-m", "benchmarks.sharing_reads", *words, *on], check=True)


def measure(rows: int, rounds: int, options: dict[str, str], cpu: int) -> None:
    """Measure in this process, on this core."""
    os.sched_setaffinity(0, {cpu})
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    spark = classic_session()

    def read() -> DataFrame:
        source = spark.readStream.format("kafka").options(**options).option("subscribe", TOPIC)
        source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(PER_BATCH))
        return source.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("r")).select("r.*")

    def written(df: DataFrame) -> DataFrame:
        return df.select(F.to_json(F.struct("*")).alias("value"))

    def of(df: DataFrame, i: int) -> DataFrame:
        selected, passing = RECIPES[i]
        return df.where(passing).selectExpr(*selected.split(", "))

    def begin(df: DataFrame, folder: str, name: str, each: Callable[[DataFrame, int], None] | None = None) -> Any:
        writer = df.writeStream.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True)
        return (writer.format("noop") if each is None else writer.foreachBatch(each)).start()

    def two(folder: str) -> list[Any]:
        return [begin(written(of(read(), i)), folder, str(i)) for i in range(2)]

    def exploded(folder: str) -> list[Any]:
        made = [
            f"IF({passing}, struct('{i}' AS topic, to_json(struct({selected})) AS value), NULL)"
            for i, (selected, passing) in enumerate(RECIPES)
        ]
        both = read().select(F.expr(f"explode(filter(array({', '.join(made)}), x -> x IS NOT NULL))").alias("o"))
        return [begin(both.select("o.*"), folder, "both")]

    def kept(folder: str) -> list[Any]:
        def write(df: DataFrame, _: int) -> None:
            df.persist()
            for i in range(2):
                written(of(df, i)).write.format("noop").mode("overwrite").save()
            df.unpersist()

        return [begin(read(), folder, "kept", write)]

    java = next(child for child in psutil.Process().children(recursive=True) if "java" in child.name())
    ways = {"two queries": two, "one, exploded": exploded, "one, each batch in memory": kept}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for at in range(rounds):
        for name, way in ways.items():
            used = sum(java.cpu_times()[:2])
            with tempfile.TemporaryDirectory() as folder:
                for query in way(folder):
                    query.awaitTermination()
            found[name].append(1e6 * (sum(java.cpu_times()[:2]) - used) / rows)
            print(f"round {at + 1}: {name} {found[name][-1]:.2f} us a record", flush=True)
    for name, costs in found.items():
        print(f"{name}: {median(costs[1:] or costs):.2f} us a record")
    spark.stop()


if __name__ == "__main__":
    main()
