"""What estimates cost while nothing is dropped: `python benchmarks/estimates.py [--pairs N] [--aggregates ...]`.

As `reading.py`: a local task manager on one core reads a prefilled topic as fast as it can, in micro-batches, through
the shedder and the parser of a task instance at accuracy 1, and two plans run in turns, plain and estimated. Both have
one group for each window of 10 s of event time and each zone; they differ in the aggregates:

- plain: `count(*)`, `sum(fare)`, ..., as Spark has them;
- estimated: `est.count()`, `est.sum("fare")`, ... of `qod_magics.estimate`, of rows whose weights are all 1.

`--aggregates count+sum avg` compares count and sum together, and then averages; `--shed-by DOLocationID` takes the
estimates of rows that were shed by this column, whose variances are those between keys.

Printed for each: rows/s of both and their ratio, and of the CPU time that a row took, in microseconds, that of both and
the ratio: of Spark's tasks, and of the task manager's process, which also plans the batches, compiles and collects
garbage. Ratios are medians over the pairs, with 95 % bootstrap intervals; more is better for rows/s, less for CPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import functions as F

from benchmarks.shedder import COLUMNS, Bench, Run, interval, opened_bench
from qod_magics import estimate as est
from qod_magics.estimate.sampled import recipe_over
from qod_magics.jvm.jit import DEFAULT_JIT, JIT_OPTIONS
from qod_magics.spark.plans.dial import DialReading
from qod_magics.spark.plans.pipeline import Feed, Job, Workshop

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

AT, ZONE, FARE, TOTAL = "tpep_pickup_datetime", "PULocationID", "fare_amount", "total_amount"
KINDS: Mapping[str, tuple[Callable[[], Column], Callable[[], Column]]] = {
    "count": (lambda: F.count("*"), est.count),
    "sum": (lambda: F.sum(FARE), lambda: est.sum(FARE)),
    "avg": (lambda: F.avg(FARE), lambda: est.avg(FARE)),
    "ratio": (lambda: F.sum(FARE) / F.sum(TOTAL), lambda: est.ratio(FARE, TOTAL)),
    "quantile": (lambda: F.percentile(FARE, F.lit(0.5)), lambda: est.quantile(FARE, 0.5)),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """One pass over the topic."""

    run: Run
    process_s: float  #: CPU of the task manager's process

    @property
    def task_us(self) -> float:
        """CPU of the tasks, microseconds for each row; NaN: Spark did not tell."""
        return float("nan") if self.run.cpu_s is None else 1e6 * self.run.cpu_s / self.run.rows

    @property
    def process_us(self) -> float:
        return 1e6 * self.process_s / self.run.rows


def aggregates(kinds: Sequence[str], estimated: bool, key: str | None) -> list[Column]:
    """Plain, or of rows that were shed by this key; None: each by itself. Spark names the variables of an estimate anew
    whenever it is made, and then compiles its plan anew, as it does where a query starts."""
    with recipe_over([None if key is None else (key,)]):
        return [KINDS[kind][estimated]().alias(kind) for kind in kinds]


def grouped(bench: Bench, columns: Sequence[Column], batch: int) -> DataFrame:
    """These aggregates of the topic's rows, by window and zone, as the plan of a task instance."""
    trips = Feed("in", ("in",), "trips", (0,), {}, bench.schema, False)

    @contextmanager
    def build(spark: object, inputs: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
        yield inputs["in"].withWatermark(AT, "10 seconds").groupBy(F.window(AT, "10 seconds"), ZONE).agg(*columns)

    job = Job("in", "in.1", 0, (trips,), build, (), (), None, None, None)
    workshop = Workshop(bench.manager.spark, bench.board, DialReading.ROW, {}, bench.broker.spark_options())
    with workshop.result(job, batch, workshop.plan_facts(job).read) as rows:
        return rows


def cost(bench: Bench, plan: Callable[[], DataFrame]) -> Cost:
    before = bench.manager.used_s()
    run = bench.run(plan, mode="update")
    after = bench.manager.used_s()
    assert before is not None
    assert after is not None
    return Cost(run, after - before)


def compare(bench: Bench, words: Any, kinds: Sequence[str]) -> tuple[list[Cost], list[Cost]]:
    """The runs of both plans, in turns."""
    columns = {estimated: aggregates(kinds, estimated, words.shed_by) for estimated in (False, True)}

    def pass_of(estimated: bool) -> Cost:
        return cost(bench, lambda: grouped(bench, columns[estimated], words.batch))

    for _ in range(words.warm_ups):
        pass_of(False), pass_of(True)
    runs: tuple[list[Cost], list[Cost]] = ([], [])
    for pair in range(words.pairs):
        for estimated in (False, True) if pair % 2 == 0 else (True, False):
            runs[estimated].append(pass_of(estimated))
    return runs


def summary(plain: Sequence[Cost], estimated: Sequence[Cost]) -> str:
    text = ""
    figures: Sequence[tuple[int, Callable[[Cost], float]]] = (
        (0, lambda each: each.run.rate),
        (2, lambda each: each.task_us),
        (2, lambda each: each.process_us),
    )
    for digits, figure in figures:
        ratios = [figure(b) / figure(a) for a, b in zip(plain, estimated, strict=True)]
        low, high = interval(ratios)
        text += "".join(f"{median(map(figure, runs)):>9.{digits}f}" for runs in (plain, estimated))
        text += f"{median(ratios):>7.3f} [{low:.3f}, {high:.3f}]"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description="What estimates cost while nothing is dropped.")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--warm-ups", type=int, default=3, help="runs of each plan that do not count")
    parser.add_argument("--rows", type=int, default=400_000, help="of each run")
    parser.add_argument("--batch", type=int, default=50_000, help="rows of a micro-batch")
    parser.add_argument("--event-rate", type=int, default=4_000, help="rows for a second of event time")
    parser.add_argument("--aggregates", nargs="+", default=["count+sum"], help=f"{', '.join(KINDS)}; joined by +")
    parser.add_argument("--shed-by", choices=COLUMNS, help="the estimates are of rows shed by this column")
    parser.add_argument("--jit", choices=JIT_OPTIONS, default=DEFAULT_JIT, help="as in Session.up")
    words = parser.parse_args()
    sets = {name: name.split("+") for name in words.aggregates}
    if unknown := {kind for kinds in sets.values() for kind in kinds} - KINDS.keys():
        parser.error(f"no aggregate {', '.join(sorted(unknown))}: there are {', '.join(KINDS)}")
    with opened_bench(words.rows, words.jit, AT, words.event_rate) as bench:
        bench.manager.turn({bench.board.source("in"): 1.0})
        print(f"{words.rows} rows a run, {words.batch} a batch, {words.pairs} pairs, JIT {words.jit}")
        heads = (f"{'plain':>9}{'est.':>9}  {what:<20}" for what in ("rows/s", "CPU of tasks, us", "of process, us"))
        print(f"{'':<10}{''.join(heads)}")
        for name, kinds in sets.items():
            print(f"{name:<10}{summary(*compare(bench, words, kinds))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
