"""How often the intervals of estimates cover the truth, live: in a windowed query whose source is shed, its dial turned
by hand meanwhile, and of pairs of rows of two topics.

The rows are numbered, and sent from a file: the truth is computed from that, and from a row's number and the weights of
its neighbours the probability with which it was kept.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.evaluation.against_plain import KEPT
from benchmarks.evaluation.cluster import Run, running, until
from benchmarks.evaluation.intervals import KINDS, QUANTILES, compared, probabilities, summarized
from benchmarks.evaluation.pairs import pairs
from qod_magics import estimate as est
from qod_magics.data.generators import FIRST_PICKUP, generate_trips
from qod_magics.errors import KafkaError
from qod_magics.kafka.topics import create_topics
from qod_magics.policies import DEFAULT_POLICY
from qod_magics.session.results import read_results

TOPIC, FIGURES, RESULTS = "numbered-trips", "figures", "out-figures"
RATE = 3000  #: rows/s, of the data's time, too
WINDOW_S, WINDOWS = 4, 60
PLACES = 48
#: The accuracies to which the dial is turned, in random order, and how long each is held, seconds.
ACCURACIES, HELD_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0), (3.0, 9.0)
SEED = 11
PERIOD_S = 1.0  #: of the controller, which turns dials once a period
PATIENCE_S = 120.0
AT = "tpep_dropoff_datetime"
SCHEMA = f"id LONG, {AT} TIMESTAMP, PULocationID INT, total_amount DOUBLE, tip_amount DOUBLE, trip_distance DOUBLE"


def coverage_live(out: Path, scale: float) -> dict[str, Any]:
    """The figures of a windowed query, and those of pairs."""
    with running(out / "coverage-live-run.jsonl", {}, policy_name=DEFAULT_POLICY) as run:
        run.session.set_period(PERIOD_S)
        rows = numbered_trips(max(int(WINDOWS * scale), 6))
        found = _windows(run, rows, out)
        return {"windows": found, "pairs": pairs(run, out, scale)}


def numbered_trips(windows: int) -> pd.DataFrame:
    """Trips of the injector's generator for this number of windows, numbered in the order of their times."""
    columns = ["PULocationID", "total_amount", "tip_amount", "trip_distance"]
    rows = windows * WINDOW_S * RATE
    trips: pd.DataFrame = generate_trips(rows, SEED, columns).to_pandas().sample(frac=1.0, random_state=SEED)
    trips = trips.reset_index(drop=True).rename_axis("id").reset_index()
    since = (1000 * trips["id"] // RATE).to_numpy().astype("timedelta64[ms]")
    at = FIRST_PICKUP.astype("datetime64[ms]") + since
    trips[AT] = np.char.add(np.datetime_as_string(at, unit="ms"), "Z")
    trips["window"], trips["place"] = trips["id"] // (WINDOW_S * RATE), trips["PULocationID"] % PLACES
    return trips


def estimated(trips: DataFrame) -> DataFrame:
    """The query: estimates by window and place, and the number and weight of each row kept."""
    quantiles = (est.quantile("trip_distance", q).alias(name) for name, q in QUANTILES.items())
    return (
        trips.withWatermark(AT, "10 seconds")
        .groupBy(F.window(AT, f"{WINDOW_S} seconds"), F.expr(f"PULocationID % {PLACES}").alias("place"))
        .agg(
            est.count(),
            est.sum("total_amount"),
            est.avg("total_amount"),
            est.ratio("tip_amount", "total_amount"),
            *quantiles,
            F.collect_list(F.struct("id", "_weight")).alias("rows"),
        )
    )


def _windows(run: Run, rows: pd.DataFrame, out: Path) -> dict[str, Any]:
    session = run.session
    create_topics(session.kafka, {TOPIC: 1, RESULTS: 1}, retention=KEPT)
    session.stream(
        FIGURES,
        estimated,
        topic=TOPIC,
        schema=SCHEMA,
        starting="earliest",
        priority=1,
        min_accuracy=min(ACCURACIES),
        sink=f"kafka:{RESULTS}",
    )
    turns = _sent(run, rows, out / "numbered-trips.jsonl")
    until(lambda: _read(run, len(rows)), "all rows in the query's books", PATIENCE_S)
    estimates, kept = _last(run)
    session.stop_all()
    rows = rows.assign(p=probabilities(kept["id"], kept["_weight"], len(rows)))
    lines = compared(rows, estimates)
    return {
        "rows": len(rows),
        "kept": len(kept),
        "windows": int(rows["window"].nunique()),
        "turns": turns,
        "groups": int(rows.groupby(["window", "place"]).ngroups),
        "without_a_row": int(rows.groupby(["window", "place"]).ngroups - len(estimates)),
        "kinds": summarized(lines),
    }


def _sent(run: Run, rows: pd.DataFrame, path: Path) -> int:
    """Send the rows at `RATE`, and turn the dial meanwhile; returns how often."""
    columns = [column.split()[0] for column in SCHEMA.split(", ")]
    rows[columns].to_json(path, orient="records", lines=True)
    feed = {"topic": TOPIC, "data": {"jsonl": str(path.absolute()), "rows": len(rows)}, "rate": RATE}
    injector = run.inject({"duration_s": len(rows) / RATE, "topics": [feed]})
    dice, left, turns = random.Random(SEED), list[float](), 0
    while injector.alive():
        left = left or dice.sample(ACCURACIES, len(ACCURACIES))
        run.session.override(FIGURES, left.pop())
        turns += 1
        ends = time.monotonic() + dice.uniform(*HELD_S)
        while injector.alive() and time.monotonic() < ends:
            time.sleep(0.1)
    counts = injector.wait(PATIENCE_S)
    if counts is None or counts[TOPIC]["acknowledged"] != len(rows):
        raise KafkaError(f"Of {len(rows)} rows the broker has not acknowledged all: {counts}")
    return turns


def _read(run: Run, rows: int) -> bool:
    last = run.session.last
    count = None if last is None or last.measured is None else last.measured.counts.get(FIGURES)
    return count is not None and count.arrived == rows and count.waiting == 0


def _last(run: Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The last report of each group: its estimates, as `compared` takes them; and the rows kept, `id` and `_weight`."""
    of_estimates = ", ".join(f"{kind} STRUCT<value: DOUBLE, low: DOUBLE, high: DOUBLE>" for kind in KINDS)
    schema = (
        f"window STRUCT<start: TIMESTAMP>, place INT, {of_estimates}, rows ARRAY<STRUCT<id: LONG, _weight: DOUBLE>>"
    )
    reports = read_results(run.session.runtime.workshop(), RESULTS, schema).withColumn("kept", F.size("rows"))
    last = reports.groupBy("window", "place").agg(F.max_by(F.struct("*"), "kept").alias("last")).select("last.*")
    begun = FIRST_PICKUP.astype("datetime64[s]").astype(int)
    ends = [F.col(f"{kind}.{end}").alias(f"{kind}_{end}") for kind in KINDS for end in ("low", "high")]
    number = F.expr(f"CAST((unix_seconds(window.start) - {begun}) / {WINDOW_S} AS INT)").alias("window")
    found = last.select(
        number, "place", "kept", *ends, F.col("rows.id").alias("ids"), F.col("rows._weight").alias("weights")
    ).toPandas()
    kept = pd.DataFrame({"id": np.concatenate(found["ids"]), "_weight": np.concatenate(found["weights"])})
    return found.drop(columns=["ids", "weights"]).set_index(["window", "place"]).sort_index(), kept
