"""The applications of the evaluation: Taxi Drives and K nearest neighbours, as in the notebooks, by the Python API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qod_magics.application.streams.stream import Mode
from qod_magics.data import POINT_SCHEMA, reference_points, trip_schema, zone_centroids
from qod_magics.session.session import Session

COLUMNS = [
    "tpep_pickup_datetime",
    "tpep_dropoff_datetime",
    "PULocationID",
    "DOLocationID",
    "trip_distance",
    "total_amount",
    "tip_amount",
    "pickup_longitude",
    "pickup_latitude",
    "dropoff_longitude",
    "dropoff_latitude",
]
TOPICS = ("trips1", "trips2")
POINTS = {"generator": "points", "rows": 20_000, "seed": 7, "clusters": 16}


def trips(
    rates: Sequence[Sequence[float]] | float, duration_s: float, seed: int = 1, partitions: int = 1
) -> dict[str, Any]:
    """A scenario that sends trips to both topics, each at these rates (rows/s, or [second, rows/s] points)."""
    data = {"generator": "taxi-trips", "columns": COLUMNS}
    return {
        "seed": seed,
        "duration_s": duration_s,
        "topics": [{"topic": topic, "partitions": partitions, "data": data, "rate": rates} for topic in TOPICS],
    }


def points(
    rates: Sequence[Sequence[float]] | float, duration_s: float, phases: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """A scenario that sends points at these rates (both partitions together); `phases`: start seconds by name."""
    return {
        "duration_s": duration_s,
        "topics": [{"topic": "points", "partitions": 2, "data": POINTS, "rate": rates}],
        "phases": [{"name": name, "from_s": at} for name, at in (phases or {}).items()],
    }


#: A query over cleaned trips of all topics together, with `_weight`.
Query = Callable[[DataFrame], DataFrame]


def start_taxi_drives(
    session: Session,
    restrictions: Mapping[str, tuple[int, float]],
    queries: Mapping[str, Query] | None = None,
    fuse: bool = False,
) -> None:
    """Two sources that clean trips, TDSnk1 on two instances and the heavier TDSnk2, with (priority, minimum accuracy)
    of each; `queries`: the work of these two, default `taxi_queries`. The sources are tasks of their own, as in the
    paper, unless they may `fuse` into the queries, for which both topics need two partitions. All in real-time mode,
    where CPU is nearly proportional to rows, as the paper assumes."""
    columns = trip_schema(COLUMNS)
    for name, topic in zip(("TDSrc1", "TDSrc2"), TOPICS, strict=True):
        session.stream(name, clean, topic=topic, schema=columns, fuse=fuse, mode="realtime")
    for name, query in (queries or taxi_queries()).items():
        priority, minimum = restrictions[name]
        instances = 2 if name == "TDSnk1" else 1
        session.stream(
            name, _of_both(query), priority=priority, min_accuracy=minimum, parallelism=instances, mode="realtime"
        )


def _of_both(query: Query) -> Callable[[DataFrame, DataFrame], DataFrame]:
    return lambda TDSrc1, TDSrc2: query(TDSrc1.union(TDSrc2))


def taxi_queries() -> dict[str, Query]:
    """TDSnk1, totals by zone, and TDSnk2, round trips by stand: TDSnk1 finds the stand nearest to a trip's start,
    TDSnk2 those nearest to both ends."""
    from_stand, to_stand = nearest_stand("pickup"), nearest_stand("dropoff")

    def by_zone(trips: DataFrame) -> DataFrame:
        return (
            trips.withColumn("stand", F.expr(from_stand))
            .withWatermark("tpep_dropoff_datetime", "10 seconds")
            .groupBy(F.window("tpep_dropoff_datetime", "10 seconds"), "PULocationID")
            .agg(
                F.sum("_weight").alias("trips"),
                *(_total(what) for what in ("total_amount", "tip_amount", "trip_distance", "minutes", "stand.km")),
            )
        )

    def by_stand(trips: DataFrame) -> DataFrame:
        return (
            trips.withColumns({"start": F.expr(from_stand), "end": F.expr(to_stand)})
            .withWatermark("tpep_dropoff_datetime", "10 seconds")
            .groupBy(F.window("tpep_dropoff_datetime", "10 seconds"), F.col("start.id").alias("stand"))
            .agg(
                F.sum("_weight").alias("trips"),
                _total("total_amount"),
                F.expr("sum(_weight * if(end.id = start.id, 1, 0))").alias("round_trips"),
                F.percentile_approx("minutes", 0.9).alias("minutes_p90"),
            )
        )

    return {"TDSnk1": by_zone, "TDSnk2": by_stand}


def light_taxi_queries() -> dict[str, Query]:
    """Almost free queries in their place, so that the costs around them show: long trips, by where they
    began and by where they ended."""

    def from_where(trips: DataFrame) -> DataFrame:
        return trips.where("trip_distance > 8").select("PULocationID", "minutes", "total_amount", "_weight")

    def to_where(trips: DataFrame) -> DataFrame:
        return trips.where("trip_distance > 8").select("DOLocationID", "minutes", "tip_amount", "_weight")

    return {"TDSnk1": from_where, "TDSnk2": to_where}


#: The work of the timed queries per row: the ends of the trip for which they find the nearest stand.
TIMED = {"TDSnk1": ("pickup",), "TDSnk2": ("pickup", "dropoff")}


def start_timed_taxi_drives(
    session: Session, restrictions: Mapping[str, tuple[int, float]], mode: Mode = "auto"
) -> None:
    """The same, but the queries report, per ten seconds, the ages of rows when they are counted: `end_to_end`, since
    the broker received the trip, and `inside`, since its source read it. Percentiles 50, 95 and 99, ms; `rows` is their
    number."""

    def ages(query: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
        def counted(TDSrc1: DataFrame, TDSrc2: DataFrame) -> DataFrame:
            return trip_ages(TDSrc1.union(TDSrc2), query)

        return counted

    for name, topic in zip(("TDSrc1", "TDSrc2"), TOPICS, strict=True):
        session.stream(name, timed_trips, topic=topic, mode=mode)
    for name in TIMED:
        priority, minimum = restrictions[name]
        session.stream(
            name,
            ages(name),
            from_=["TDSrc1", "TDSrc2"],
            priority=priority,
            min_accuracy=minimum,
            sink="memory",
            mode=mode,
        )


def timed_trips(source: DataFrame) -> DataFrame:
    """The cleaned trips in Kafka's records (with `_weight`), with the times when the broker received and Spark read
    each."""
    return clean(
        source.select(
            F.from_json(F.col("value").cast("string"), trip_schema(COLUMNS)).alias("trip"),
            F.unix_millis("timestamp").alias("sent_ms"),
            F.expr(_NOW).alias("read_ms"),
            "_weight",
        ).select("trip.*", "sent_ms", "read_ms", "_weight")
    )


def trip_ages(trips: DataFrame, query: str) -> DataFrame:
    """A timed query's report on `timed_trips`: their ages after its work, by windows of ten seconds."""
    age = "percentile_approx(now_ms - {}, array(0.5D, 0.95D, 0.99D), 1000)"
    return (
        trips.withColumns({f"{end}_stand": F.expr(nearest_stand(end)) for end in TIMED[query]})
        .withColumn("now_ms", F.expr(_NOW))
        .withColumn("at", F.timestamp_millis("now_ms"))
        .withWatermark("at", "10 seconds")
        .groupBy(F.window("at", "10 seconds"))
        .agg(
            F.count("*").alias("rows"),
            F.expr(age.format("sent_ms")).alias("end_to_end"),
            F.expr(age.format("read_ms")).alias("inside"),
            *(F.expr(f"sum(_weight * {end}_stand.km)").alias(end) for end in TIMED[query]),
        )
    )


_NOW = "CAST(reflect('java.lang.System', 'currentTimeMillis') AS LONG)"


def start_knn(session: Session, name: str, priority: int, min_accuracy: float) -> None:
    """One task, source and query at once, on two instances: the label of a point by its five nearest of 500."""
    reference = reference_points(500, POINTS["seed"], POINTS["clusters"]).to_pandas()  # type: ignore[arg-type]
    array = reference.to_json(orient="records")
    row = "ARRAY<STRUCT<x: DOUBLE, y: DOUBLE, z: DOUBLE, label: INT>>"
    distance = "struct(pow(r.x - x, 2) + pow(r.y - y, 2) + pow(r.z - z, 2) AS squared, r.label AS label)"
    nearest = f"slice(array_sort(transform(from_json('{array}', '{row}'), r -> {distance})), 1, 5).label"
    vote = """array_max(transform(array_distinct(nearest), label -> struct(
        size(filter(nearest, one -> one = label)) AS votes, -array_position(nearest, label) AS place, label))).label"""

    def classified(source: DataFrame) -> DataFrame:
        return source.withColumn("nearest", F.expr(nearest)).select("id", "ts", F.expr(vote).alias("label"))

    session.stream(
        name,
        classified,
        topic="points",
        schema=POINT_SCHEMA,
        parallelism=2,
        priority=priority,
        min_accuracy=min_accuracy,
    )


def stands() -> list[Any]:
    """Where taxis wait: the centre of each zone, `LocationID`, `longitude` and `latitude`; the busiest first."""
    return list(zone_centroids().to_pandas().sort_values("share", ascending=False).itertuples())


def clean(source: DataFrame) -> DataFrame:
    """The plausible trips, with their duration in `minutes`."""
    minutes = (F.unix_millis("tpep_dropoff_datetime") - F.unix_millis("tpep_pickup_datetime")) / 60000
    return source.withColumn("minutes", minutes).where("minutes > 0 AND trip_distance > 0 AND total_amount > 0")


def _total(what: str) -> Column:
    return F.expr(f"sum(_weight * {what})").alias(what.replace(".", "_"))


def nearest_stand(end: str) -> str:
    """SQL of the stand nearest to an end of a trip, by great-circle distance in km."""
    places = ", ".join(
        f"named_struct('id', {int(s.LocationID)}, 'x', {s.longitude:.4f}D, 'y', {s.latitude:.4f}D)" for s in stands()
    )
    km = (
        f"12742 * asin(sqrt(pow(sin(radians(s.y - {end}_latitude) / 2), 2) + cos(radians({end}_latitude)) * "
        f"cos(radians(s.y)) * pow(sin(radians(s.x - {end}_longitude) / 2), 2)))"
    )
    return f"array_min(transform(array({places}), s -> named_struct('km', {km}, 'id', s.id)))"
