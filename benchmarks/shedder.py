"""What load shedders cost while they drop nothing: `python benchmarks/shedder.py [--pairs N] [--rows N] [--jit MODE]`.

A local task manager on one core reads a prefilled topic (the broker is on the other cores, where there are any), does
the work of a task instance and hands its rows to a no-op sink, as fast as it can. Each plan runs with and without its
shedders at d = 1, in turns (A B, B A, A B ...), so that drift of the machine affects both alike; both count their rows
by `observe`. Printed:

- rows/s without and with (medians over the runs), their ratio, and the median of the pairs' ratios with its 95 %
  bootstrap interval; 0.97 is 3 % slower;
- the same ratio for the CPU time of Spark's tasks, which other processes on the core disturb less; 1.03 is 3 % more.

Plans: `source`, an instance that reads a topic and parses its JSON; `accept`, one that reads a stream; `send`, one that
writes a stream, from a topic read without a shedder; `task`, from a topic to a stream with both its shedders.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import functions as F

from qod_magics.data.load import load
from qod_magics.data.schema import trip_schema
from qod_magics.data.spec import data_from_json
from qod_magics.jvm.jit import DEFAULT_JIT, JIT_OPTIONS
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.topics import create_topics
from qod_magics.spark.plans import dial, shedder
from qod_magics.spark.plans.dial import DialBoard, DialReading
from qod_magics.spark.plans.parsing import JSON_FORMAT
from qod_magics.spark.plans.pipeline import GATHERING_READER, Feed, Job, Workshop
from qod_magics.spark.plans.shedder import WEIGHT, Outlet
from qod_magics.spark.servers import stages
from qod_magics.spark.servers.server import ServerOptions
from qod_magics.spark.servers.task_manager import TaskManager, start_local

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame

COLUMNS = ["tpep_pickup_datetime", "PULocationID", "DOLocationID", "trip_distance", "fare_amount", "total_amount"]
Plan = Callable[[], "DataFrame"]


@dataclass(frozen=True, slots=True)
class Run:
    """One pass over the topic."""

    rows: int
    seconds: float  #: of the batch, without its planning
    cpu_s: float | None  #: of its tasks

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


@dataclass(frozen=True, slots=True)
class Bench:
    """A task manager on one core, and the plans that run on it."""

    manager: TaskManager
    broker: EmbeddedBroker
    board: DialBoard
    schema: str

    def dial(self, key: str) -> str:
        return dial.read_sql(key, DialReading.ROW)

    def records(self, topic: str) -> DataFrame:
        """The bare read of a task instance."""
        reader = self.manager.spark.readStream.format("kafka").options(
            **{**GATHERING_READER, **self.broker.spark_options()}
        )
        reader = reader.option("assign", json.dumps({topic: [0]})).option("startingOffsets", "earliest")
        return reader.option("failOnDataLoss", "false").option("includeHeaders", "true").load()

    def parsed(self, records: DataFrame, *weight: str, stream: bool = False) -> DataFrame:
        row = F.from_json(F.col("value").cast("string"), self.schema, JSON_FORMAT if stream else None)
        return records.select(row.alias("_row"), *weight).select("_row.*", *weight)

    def counted(self, records: DataFrame) -> DataFrame:
        """With the counts of a shedder, but no shedder."""
        return records.observe("shed", *shedder.shed_counts("offset IS NOT NULL"))

    def value(self) -> Column:
        return F.to_json(F.struct(*COLUMNS), JSON_FORMAT)

    def unsent(self, rows: DataFrame) -> DataFrame:
        """To one stream, without a shedder before it."""
        counted = rows.observe("out", *shedder.shed_counts("fare_amount IS NOT NULL"))
        return counted.select(self.value().alias("value"), F.lit("stream").alias("topic"), F.lit(0).alias("partition"))

    def sent(self, rows: DataFrame) -> DataFrame:
        outlet = Outlet("in>out", "stream", 1, None, self.dial(self.board.send("in>out")), "1.0D")
        drawn = shedder.draw(rows, [outlet]).observe("out", *shedder.sent_counts([outlet]))
        return shedder.send(drawn, [outlet], self.value())

    def plans(self) -> dict[str, tuple[Plan, Plan]]:
        """By name: without shedders and with them."""
        trips = Feed("in", ("in",), "trips", (0,), {}, self.schema, False)
        stream = Feed("in>out", ("in",), "stream", (0,), {}, self.schema, True)

        def source() -> DataFrame:
            return self.parsed(self.counted(self.records("trips")))

        def accept() -> DataFrame:
            return self.parsed(self.counted(self.records("stream")), stream=True)

        def weighed() -> DataFrame:
            return source().withColumn(WEIGHT, F.lit(1.0))

        return {
            "source": (source, lambda: self.built(trips)),
            "accept": (accept, lambda: self.built(stream)),
            "send": (lambda: self.unsent(source()), lambda: self.sent(weighed())),
            "task": (lambda: self.unsent(source()), lambda: self.sent(self.built(trips))),
        }

    def built(self, feed: Feed) -> DataFrame:
        """The plan of a task instance that passes this feed through."""

        @contextmanager
        def through(spark: object, inputs: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
            yield inputs["in"]

        job = Job("in", "in.1", 0, (feed,), through, (), (), None, None, None)
        workshop = Workshop(self.manager.spark, self.board, DialReading.ROW, {}, self.broker.spark_options())
        with workshop.result(job) as rows:
            return rows

    def run(self, plan: Plan, sink: str = "noop", mode: str = "append") -> Run:
        """Start the plan's query on the whole topic and wait for its end."""
        with tempfile.TemporaryDirectory() as checkpoint:
            query = (
                plan()
                .writeStream.format(sink)
                .options(**self.broker.spark_options())
                .option("includeHeaders", "true")
                .option("checkpointLocation", checkpoint)
                .outputMode(mode)
                .trigger(availableNow=True)
                .start()
            )
            if not query.awaitTermination(300):
                raise TimeoutError("a run took five minutes: take fewer --rows")
            reports = [json.loads(report.json) for report in query.recentProgress]
            cpu = self.cpu(str(query.runId))
        rows = sum(source["numInputRows"] for report in reports for source in report["sources"])
        return Run(rows, sum(report["durationMs"].get("addBatch", 0) for report in reports) / 1e3, cpu)

    def cpu(self, run_id: str) -> float | None:
        assert self.manager.ui is not None
        assert self.manager.application is not None
        by_batch = stages.times_by_batch(stages.completed_stages(self.manager.ui, self.manager.application, 60.0))
        return sum(taken.cpu_s for (run, _), taken in by_batch.items() if run == run_id) or None


@contextmanager
def opened_bench(rows: int, jit: str, event_time: str | None = None, event_rate: int = 1_000) -> Iterator[Bench]:
    """A broker with this number of trips in the topic "trips", as `fill` has them, and a task manager on one core."""
    ours, others = cores()
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker(cpus=others))
        board = DialBoard("bench")
        manager = start_local("tm", ServerOptions(cpus=frozenset(ours), jit=jit), board, 0.0)
        stack.callback(manager.close)
        create_topics(broker, {"trips": 1})
        fill(broker, "trips", rows, event_time, event_rate)
        yield Bench(manager, broker, board, trip_schema(COLUMNS))


def fill(broker: EmbeddedBroker, topic: str, rows: int, event_time: str | None = None, event_rate: int = 1_000) -> None:
    """Trips as the injector sends them, `event_rate` of them for a second of `event_time`; None: at the times that they
    were made with."""
    spec = {"generator": "taxi-trips", "columns": COLUMNS, "event_time": event_time}
    data = load(data_from_json(spec, "data"), None, 1)
    producer = Producer({**broker.client_config(), "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for first in range(0, rows, 10_000):
        at_ms = 1_700_000_000_000 + first * 1_000 // event_rate
        for value in data.values(first, min(10_000, rows - first), at_ms):
            producer.produce(topic, value)
        producer.poll(0)
    if producer.flush(60):
        raise TimeoutError("the broker did not acknowledge all rows within 60 s")


def interval(ratios: Sequence[float], repeats: int = 4000) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    rng = random.Random(1)
    medians = sorted(median(rng.choices(ratios, k=len(ratios))) for _ in range(repeats))
    return medians[int(0.025 * repeats)], medians[int(0.975 * repeats)]


def compare(bench: Bench, without: Plan, with_: Plan, pairs: int, warm_ups: int) -> tuple[list[Run], list[Run]]:
    """The runs of both plans, in turns."""
    for _ in range(warm_ups):
        bench.run(without), bench.run(with_)
    a, b = [], []
    for pair in range(pairs):
        for first in (True, False) if pair % 2 == 0 else (False, True):
            (a if first else b).append(bench.run(without if first else with_))
    return a, b


def summary(a: Sequence[Run], b: Sequence[Run]) -> str:
    rates = [y.rate / x.rate for x, y in zip(a, b, strict=True)]
    low, high = interval(rates)
    base, ours = median(run.rate for run in a), median(run.rate for run in b)
    text = f"{base:>10.0f}{ours:>10.0f}{ours / base:>8.3f}{median(rates):>8.3f} [{low:.3f}, {high:.3f}]"
    costs = [y.cpu_s / x.cpu_s for x, y in zip(a, b, strict=True) if x.cpu_s and y.cpu_s]
    if costs:
        low, high = interval(costs)
        text += f"{median(costs):>8.3f} [{low:.3f}, {high:.3f}]"
    return text


def cores() -> tuple[set[int], set[int]]:
    """One core for the task manager and the others for the broker."""
    have = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return {have[-1]}, set(have[:-1]) or {have[0]}


def main() -> int:
    parser = argparse.ArgumentParser(description="What the load shedders cost while they drop nothing.")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--warm-ups", type=int, default=3, help="runs of each plan that do not count")
    parser.add_argument("--rows", type=int, default=300_000, help="of each run")
    parser.add_argument("--jit", choices=JIT_OPTIONS, default=DEFAULT_JIT, help="as in Session.up")
    parser.add_argument("--plans", nargs="+", choices=("source", "accept", "send", "task"), default=None)
    words = parser.parse_args()
    with opened_bench(words.rows, words.jit) as bench:
        board = bench.board
        create_topics(bench.broker, {"stream": 1})
        bench.manager.turn({board.source("in"): 1.0, board.accept("in"): 1.0, board.send("in>out"): 1.0})
        bench.run(lambda: bench.sent(bench.plans()["source"][1]()), "kafka")
        print(f"{words.rows} rows a run, {words.pairs} pairs, JIT {words.jit}")
        print(f"{'':<8}{'rows/s':>10}{'with':>10}{'ratio':>8}{'median of ratios':>24}{'CPU':>10}")
        for name, (without, with_) in bench.plans().items():
            if words.plans and name not in words.plans:
                continue
            a, b = compare(bench, without, with_, words.pairs, words.warm_ups)
            print(f"{name:<8}{summary(a, b)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
