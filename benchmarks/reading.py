"""What reading a topic costs: `python benchmarks/reading.py [--pairs N] [--rows N] [--jit MODE]`.

As `shedder.py`: a local task manager on one core reads a prefilled topic as fast as it can, and two plans run in turns.
Here both plans are windowed counts and sums; they differ in one point:

- `dropped`, `kept`: the options of Kafka's consumer, Spark's defaults and then ours (`fetch_options`), while a shedder
  drops 95 % of the rows, and while it keeps all;
- `checked`: `from_json` alone, and then with malformed values counted and dropped, of which there are none.

Printed as there: rows/s of both, their ratio, and ratios of the pairs with 95 % bootstrap intervals; more is better for
rows/s, less for CPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import functions as F

from benchmarks.shedder import Bench, compare, opened_bench, summary
from qod_magics.jvm.jit import DEFAULT_JIT, JIT_OPTIONS
from qod_magics.spark.plans import shedder
from qod_magics.spark.plans.fetching import fetch_options
from qod_magics.spark.plans.parsing import parsed, parsed_input
from qod_magics.spark.plans.shedder import WEIGHT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHED = 0.05  #: share of the rows kept in `dropped`
PLANS = ("dropped", "kept", "checked")
Parse = Callable[["DataFrame", str], "DataFrame"]


def counted(bench: Bench, fetching: Mapping[str, str], keep: float, parse: Parse) -> DataFrame:
    """Windowed counts and sums of the topic's rows behind a shedder that keeps this share of them."""
    options = {**fetching, **bench.broker.spark_options(), "failOnDataLoss": "false"}
    reader = bench.manager.spark.readStream.format("kafka").options(**options)
    records = reader.option("assign", json.dumps({"trips": [0]})).option("startingOffsets", "earliest").load()
    rows = parse(shedder.shed_source(records, f"CAST({keep} AS DOUBLE)", "shed.trips"), bench.schema)
    window = F.window("tpep_pickup_datetime", "10 seconds")
    rows = rows.withWatermark("tpep_pickup_datetime", "10 seconds")
    return rows.groupBy(window, "PULocationID").agg(F.sum(WEIGHT), F.sum("total_amount"))


def unchecked(records: DataFrame, schema: str) -> DataFrame:
    return parsed(records, schema, None, WEIGHT)


def checked(records: DataFrame, schema: str) -> DataFrame:
    return parsed_input(records, schema, "drop", "malformed.0.trips")


def main() -> int:
    parser = argparse.ArgumentParser(description="What reading a topic costs.")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--warm-ups", type=int, default=3, help="runs of each plan that do not count")
    parser.add_argument("--rows", type=int, default=400_000, help="of each run")
    parser.add_argument("--jit", choices=JIT_OPTIONS, default=DEFAULT_JIT, help="as in Session.up")
    parser.add_argument("--plans", nargs="+", choices=PLANS, default=PLANS)
    words = parser.parse_args()
    fetching = fetch_options(1)
    plans = {
        "dropped": [lambda o=options: counted(bench, o, SHED, unchecked) for options in ({}, fetching)],
        "kept": [lambda o=options: counted(bench, o, 1.0, unchecked) for options in ({}, fetching)],
        "checked": [lambda p=parse: counted(bench, fetching, 1.0, p) for parse in (unchecked, checked)],
    }
    with opened_bench(words.rows, words.jit) as bench:
        print(f"{words.rows} rows a run, {words.pairs} pairs, JIT {words.jit}")
        print(f"{'':<8}{'rows/s':>10}{'with':>10}{'ratio':>8}{'median of ratios':>24}{'CPU':>10}")
        for name in words.plans:
            print(f"{name:<8}{summary(*compare(bench, *plans[name], words.pairs, words.warm_ups))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
