"""The queries that compare ours with plain Spark: the same functions of parsed trips for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.evaluation.applications import COLUMNS, nearest_stand
from qod_magics.data import trip_schema
from qod_magics.session.session import Session

QUERY = "compared"
OURS, PLAINS = "out-ours", "out-plain"  #: topics of the results
LEAST = 0.05  #: minimum accuracy of a query
SEED = 5  #: of the trips: two topics have the same ones, in the same order
RINGS = {1: 50_000, 2: 200_000}  #: trips of a topic until they repeat, by number of topics: joins look back
AT = "tpep_dropoff_datetime"  #: the instant of sending, to the millisecond
SENT = "sent_ms"  #: the same, passed on by recipes without state


@dataclass(frozen=True, slots=True)
class Recipe:
    """A query, its inputs and its output."""

    query: Callable[..., DataFrame]  #: of the parsed trips of each topic
    saturating: float  #: rows/s of all topics together that saturate plain Spark on one core
    topics: Sequence[str] = ("trips",)
    stateless: bool = False  #: each output row is an input row, and has `SENT`
    output_mode: str = "append"  #: of plain Spark


def light(trips: DataFrame) -> DataFrame:
    """Long trips."""
    return trips.where("trip_distance > 8").select("PULocationID", "total_amount", "tip_amount", _sent())


def heavy(trips: DataFrame) -> DataFrame:
    """For each trip, the nearest of 263 taxi stands to its beginning."""
    found = trips.withColumn("stand", F.expr(nearest_stand("pickup")))
    return found.select("PULocationID", "stand.id", "stand.km", "total_amount", _sent())


def totals(trips: DataFrame) -> DataFrame:
    """Number of trips and sums of money, per ten seconds and zone."""
    return (
        _watermarked(trips)
        .groupBy(F.window(AT, "10 seconds"), "PULocationID")
        .agg(F.count("*").alias("n"), F.sum("total_amount").alias("revenue"), F.sum("tip_amount").alias("tips"))
    )


def percentiles(trips: DataFrame) -> DataFrame:
    """The same with a percentile, per ten seconds and 60 names."""
    return (
        _watermarked(trips)
        .withColumn("place", F.expr("upper(concat('zone-', PULocationID % 60))"))
        .groupBy(F.window(AT, "10 seconds"), "place")
        .agg(
            F.count("*").alias("n"),
            F.sum("total_amount").alias("revenue"),
            F.percentile_approx("trip_distance", 0.9).alias("p90"),
        )
    )


def stands(trips: DataFrame) -> DataFrame:
    """Number of trips and sum of money, per ten seconds and nearest taxi stand."""
    found = _watermarked(trips).withColumn("stand", F.expr(nearest_stand("pickup")))
    return found.groupBy(F.window(AT, "10 seconds"), "stand.id").agg(
        F.count("*").alias("n"), F.sum("total_amount").alias("revenue")
    )


def dedup(trips: DataFrame) -> DataFrame:
    """Each trip once."""
    key = ["tpep_pickup_datetime", "PULocationID", "DOLocationID", "total_amount"]
    return _watermarked(trips).dropDuplicatesWithinWatermark(key).select("PULocationID", "total_amount")


def join(trips_one: DataFrame, trips_two: DataFrame) -> DataFrame:
    """Equal trips of both topics, sent within five seconds of each other: about one match per row."""
    one, two = _watermarked(trips_one).alias("one"), _watermarked(trips_two).alias("two")
    same = [
        f"one.{column} = two.{column}" for column in ("PULocationID", "DOLocationID", "trip_distance", "total_amount")
    ]
    near = f"two.{AT} BETWEEN one.{AT} - INTERVAL 5 SECONDS AND one.{AT} + INTERVAL 5 SECONDS"
    return one.join(two, F.expr(" AND ".join([*same, near]))).select("one.PULocationID", "two.total_amount")


RECIPES: Mapping[str, Recipe] = {
    "light": Recipe(light, 180_000.0, stateless=True),
    "heavy": Recipe(heavy, 80_000.0, stateless=True),
    "totals": Recipe(totals, 160_000.0, output_mode="update"),
    "percentiles": Recipe(percentiles, 160_000.0, output_mode="update"),
    "dedup": Recipe(dedup, 100_000.0),
    "join": Recipe(join, 80_000.0, topics=("trips_one", "trips_two")),
}

#: Rows dear enough for a broker on the other core to send many times what two such queries carry.
STANDS = Recipe(stands, 40_000.0, output_mode="update")


def start(session: Session, recipe: Recipe) -> None:
    """Declare the query under the controller, without options; a join reads two source streams."""
    schema = trip_schema(COLUMNS)
    wanted: dict[str, Any] = {"priority": 1, "min_accuracy": LEAST, "sink": f"kafka:{OURS}"}
    if len(recipe.topics) == 1:
        session.stream(QUERY, recipe.query, topic=recipe.topics[0], schema=schema, **wanted)
        return
    for topic in recipe.topics:
        session.stream(topic, topic=topic, schema=schema)
    session.stream(QUERY, recipe.query, from_=list(recipe.topics), **wanted)


def scenario(topics: Sequence[str], rates: Sequence[tuple[float, float]] | float, duration_s: float) -> dict[str, Any]:
    """The injector's scenario; `rates`: rows/s of all topics together, or (second, rows/s) points."""
    each: Any = rates / len(topics) if isinstance(rates, float) else [[t, r / len(topics)] for t, r in rates]
    data = {"generator": "taxi-trips", "columns": COLUMNS, "seed": SEED, "rows": RINGS[len(topics)]}
    return {
        "duration_s": duration_s,
        "topics": [{"topic": topic, "partitions": 1, "data": data, "rate": each} for topic in topics],
    }


def _watermarked(trips: DataFrame) -> DataFrame:
    return trips.withWatermark(AT, "10 seconds")


def _sent() -> Any:
    return F.unix_millis(AT).alias(SENT)
