"""How often intervals of 95 % cover the truth: `python benchmarks/coverage.py [--groups N] [--only users]`.

Groups of gamma-distributed fares, or of normal values of both signs, are sampled with one probability for all rows, or
with one of two for each, and estimated on Spark. Printed for each: rows kept in a group on average, the share of groups
whose interval covers the true count, sum, average, median and 0.9-quantile, and the median width of these intervals /
the truth. Groups of which nothing was kept are left out. An end that is null covers; `open` is the share of groups in
which one of a quantile's is.

Then groups of users with a geometric number of rows each, 3 on average, are sampled by user, with one probability for
all rows, or with one of two for each. Printed for each: users kept in a group on average, the share of groups whose
interval covers the true number of users, and the median width of these intervals / the truth.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qod_magics import estimate as est
from qod_magics.estimate.groups import recipe_over

SIZES = (20, 60, 200, 1000)
MOST = 300_000  #: rows at once, which Spark takes from this process
ACCURACIES = ([0.05], [0.2], [0.5], [0.05, 0.3], [0.3, 1.0])
NAMES = ("count", "sum", "avg", "q50", "q90")
QUANTILES = ("q50", "q90")


def main() -> int:
    parser = argparse.ArgumentParser(description="How often intervals of 95 % cover the truth.")
    parser.add_argument("--groups", type=int, default=2000)
    parser.add_argument("--only", choices=("values", "users"), help="one of the two tables")
    words = parser.parse_args()
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = SparkSession.builder.master("local[2]").config(map=quiet).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if words.only != "users":
        values(spark, words.groups)
    if words.only != "values":
        users(spark, words.groups)
    return 0


def values(spark: SparkSession, most: int) -> None:
    dice = np.random.default_rng(7)
    heads = (f"{name:>8}{'width':>6}" + ("  open" if name in QUANTILES else "") for name in NAMES)
    print(f"{'values':<7}{'rows':>5}  {'accuracy':<12}{'kept':>6}" + "".join(heads))
    for kind in ("fares", "both"):
        for size in SIZES:
            for accuracies in ACCURACIES:
                groups = min(most, MOST // size)
                number = size * groups
                x = dice.gamma(2.0, 8.0, number) + 2.5 if kind == "fares" else dice.normal(1.0, 10.0, number)
                every = pd.DataFrame({"group": np.repeat(np.arange(groups), size), "x": x})
                p = dice.choice(accuracies, number)
                sample = every.assign(_weight=1 / p)[dice.random(number) < p]
                quantiles = (est.quantile("x", 0.5).alias("q50"), est.quantile("x", 0.9).alias("q90"))
                aggregates = (est.count(), est.sum("x"), est.avg("x"), *quantiles, F.count("*").alias("kept"))
                found = spark.createDataFrame(sample).groupBy("group").agg(*aggregates).toPandas().set_index("group")
                whole = every.groupby("group").x
                truths = [whole.count(), whole.sum(), whole.mean(), whole.quantile(0.5), whole.quantile(0.9)]
                line = f"{kind:<7}{size:>5}  {' or '.join(map(str, accuracies)):<12}{found.kept.mean():>6.1f}"
                for name, true in zip(NAMES, truths, strict=True):
                    truth = true.loc[found.index]
                    low = found[name].map(lambda each: -np.inf if each["low"] is None else each["low"])
                    high = found[name].map(lambda each: np.inf if each["high"] is None else each["high"])
                    covered, width = ((low <= truth) & (truth <= high)).mean(), ((high - low) / truth.abs()).median()
                    line += f"{covered:>8.1%}{width:>6.2f}"
                    if name in QUANTILES:
                        line += f"{((low == -np.inf) | (high == np.inf)).mean():>6.0%}"
                print(line, flush=True)


def users(spark: SparkSession, most: int) -> None:
    dice = np.random.default_rng(7)
    print(f"{'':<7}{'users':>5}  {'accuracy':<12}{'kept':>6}{'users':>8}{'width':>6}")
    for size in SIZES:
        for accuracies in ACCURACIES:
            groups = min(most, MOST // 3 // size)
            user = np.repeat(np.arange(size * groups), dice.geometric(1 / 3, size * groups))
            p = dice.choice(accuracies, len(user))
            every = pd.DataFrame({"group": user // size, "user": user, "_weight": 1 / p})
            sample = spark.createDataFrame(every[dice.random(size * groups)[user] < p])
            with recipe_over([("user",)]):
                aggregates = est.count_distinct("user").alias("users"), F.count_distinct("user").alias("kept")
            found = sample.groupBy("group").agg(*aggregates).toPandas()
            low, high = (found.users.map(lambda each, end=end: each[end]) for end in ("low", "high"))
            covered, width = ((low <= size) & (size <= high)).mean(), (high - low).median() / size
            line = f"{'':<7}{size:>5}  {' or '.join(map(str, accuracies)):<12}{found.kept.mean():>6.1f}"
            print(f"{line}{covered:>8.1%}{width:>6.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
