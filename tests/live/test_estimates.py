"""Estimates on real Spark: how often their intervals cover, and what a stream that is shed says of itself."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qod_magics import estimate as est
from qod_magics.application.sql.estimates import estimated
from qod_magics.errors import ApplicationError, UsageProblem
from qod_magics.estimate.groups import recipe_over
from qod_magics.session.exact import watermark
from qod_magics.session.session import Session
from tests.live.applications import all_read, cell, count, rows, turn
from tests.live.conftest import eventually, new_topic, produce
from tests.raising import breaks
from tests.texts import tells

GROUPS, ROWS = 1000, 100


@pytest.fixture(scope="module")
def spark(cluster: Session) -> SparkSession:
    return next(iter(cluster.runtime.task_managers.values())).spark


def fares(seed: int) -> pd.DataFrame:
    """Groups of as many fares, of gamma distribution."""
    drawn = np.random.default_rng(seed).gamma(2.0, 8.0, GROUPS * ROWS)
    return pd.DataFrame({"group": np.repeat(np.arange(GROUPS), ROWS), "fare": np.round(drawn + 2.5, 2)})


def kept(every: pd.DataFrame, accuracies: list[float], seed: int) -> pd.DataFrame:
    """Each row with one of these probabilities, and its weight."""
    dice = np.random.default_rng(seed)
    p = dice.choice(accuracies, len(every))
    return every.assign(_weight=1 / p)[dice.random(len(every)) < p]


def estimates(frame: DataFrame) -> pd.DataFrame:
    found = frame.groupBy("group").agg(est.count(), est.sum("fare"), est.avg("fare")).collect()
    parts = ("value", "low", "high")
    return pd.DataFrame(
        [[row["group"], *(row[name][part] for name in ("count", "sum", "avg") for part in parts)] for row in found],
        columns=["group", *(f"{name}_{part}" for name in ("count", "sum", "avg") for part in parts)],
    ).set_index("group")


@pytest.mark.parametrize("accuracies", [[0.2], [0.5], [0.3, 1.0]], ids=str)
def test_intervals_of_95_percent_cover_the_truth_as_often(spark: SparkSession, accuracies: list[float]) -> None:
    every = fares(seed=1)
    found = estimates(spark.createDataFrame(kept(every, accuracies, seed=2)))
    truth = every.groupby("group").fare.agg(["count", "sum", "mean"]).loc[found.index]
    for name, true in (("count", truth["count"]), ("sum", truth["sum"]), ("avg", truth["mean"])):
        covers = (found[f"{name}_low"] <= true) & (true <= found[f"{name}_high"])
        assert covers.mean() == pytest.approx(0.95, abs=0.025), name  # of 1,000: a standard error is 0.007
        assert found[f"{name}_value"].mean() == pytest.approx(true.mean(), rel=0.02)


def test_a_ratio_of_sums_is_one_of_dependent_parts(spark: SparkSession) -> None:
    """Tips of 15 % of the fare, and none in every third trip. A ratio to the same column is known exactly."""
    every = fares(seed=4)
    every["tip"] = np.where(every.index % 3 == 0, 0.0, 0.15 * every.fare)
    sample = spark.createDataFrame(kept(every, [0.4], seed=5))
    ratio = est.ratio("tip", "fare")
    found = sample.groupBy("group").agg(ratio, est.ratio("fare", F.lit(2) * F.col("fare")).alias("half")).collect()
    sums = every.groupby("group")[["tip", "fare"]].sum()
    true = sums.tip / sums.fare
    covers = [row["ratio"]["low"] <= true[row["group"]] <= row["ratio"]["high"] for row in found]
    assert np.mean(covers) == pytest.approx(0.95, abs=0.025)
    for row in found:
        assert [*row["half"]] == pytest.approx([0.5] * 3, abs=1e-6)
    nothing = sample.where("tip = 0").agg(est.ratio("fare", "tip").alias("none")).collect()[0]["none"]
    assert [*nothing] == [None] * 3


def test_quantiles_lie_in_their_intervals_as_often(spark: SparkSession) -> None:
    every = fares(seed=6)
    sample = spark.createDataFrame(kept(every, [0.4], seed=7))
    shares = {"median": 0.5, "high": 0.9}
    found = sample.groupBy("group").agg(*(est.quantile("fare", q).alias(name) for name, q in shares.items())).collect()
    for name, q in shares.items():
        true = every.groupby("group").fare.quantile(q)
        ends = np.array([(row[name]["low"], true[row["group"]], row[name]["high"]) for row in found], float)
        known = ~np.isnan(ends).any(axis=1)
        assert known.mean() > 0.9, name  # of 40 rows and more, the sample bounds a quantile of 0.9 nearly always
        assert (np.diff(ends[known]) >= 0).all(axis=1).mean() == pytest.approx(0.95, abs=0.025), name
        values = [row[name]["value"] for row in found]
        assert np.mean(values) == pytest.approx(true.mean(), rel=0.02)


def test_where_nothing_was_dropped_they_are_sparks_own_figures(spark: SparkSession) -> None:
    frame = spark.createDataFrame(fares(seed=3).head(2000)).withColumn("_weight", F.lit(1.0))
    found = estimates(frame)
    plain = frame.groupBy("group").agg(
        F.count("*").alias("count"), F.sum("fare").alias("sum"), F.avg("fare").alias("avg")
    )
    for row in plain.collect():
        for name in ("count", "sum", "avg"):
            assert {found.loc[row["group"], f"{name}_{part}"] for part in ("value", "low", "high")} == {row[name]}
    both = (est.quantile("fare", 0.9).alias("estimate"), F.percentile("fare", F.lit(0.9)).alias("plain"))
    for row in frame.groupBy("group").agg(*both).collect():
        assert {*row["estimate"]} == {row["plain"]}
    distinct = F.count_distinct(F.floor("fare")).alias("plain")
    for key in (None, ("group",), ("fare",)):  # counted, or not: as long as all rows are there
        with recipe_over([key]):
            estimate = est.count_distinct(F.floor("fare")).alias("estimate")
        for row in frame.groupBy("group").agg(estimate, distinct).collect():
            assert {*row["estimate"]} == {row["plain"]}


def test_what_is_not_known_is_null(spark: SparkSession) -> None:
    values: list[tuple[str, float | None, float | None]] = [
        ("one of several", 5.0, 4.0),
        ("weight unknown", 5.0, 4.0),
        ("weight unknown", 6.0, None),
        ("no value", None, 4.0),
        ("negative", -5.0, 2.0),
        ("negative", -6.0, 2.0),
        ("both signs", -5.0, 2.0),
        ("both signs", 6.0, 2.0),
    ]
    frame = spark.createDataFrame(values, "group STRING, fare DOUBLE, _weight DOUBLE")
    found = estimates(frame).astype(object).where(lambda f: f.notna(), None)

    def parts(group: str, name: str) -> list[Any]:
        return [found.loc[group, f"{name}_{part}"] for part in ("value", "low", "high")]

    assert parts("one of several", "avg") == [5.0, None, None]
    value, low, high = parts("one of several", "count")
    assert (value, low) == (4.0, 1.0)
    assert high > 10.0
    for name in ("count", "sum", "avg"):
        assert parts("weight unknown", name) == [None, None, None]
    assert parts("no value", "sum") == [0.0, 0.0, 0.0]
    assert parts("no value", "avg") == [None, None, None]
    value, low, high = parts("negative", "sum")
    assert low < value == -22.0
    assert high == -11.0  # what was kept is there
    value, low, high = parts("both signs", "sum")
    assert low < value == 2.0 < high
    quantiles = frame.groupBy("group").agg(est.quantile("fare", 0.5).alias("median")).collect()
    medians = {row["group"]: [*row["median"]] for row in quantiles}
    assert medians["one of several"] == [5.0, None, None]
    assert medians["weight unknown"] == medians["no value"] == [None] * 3
    assert medians["negative"][0] == -5.5
    assert frame.agg(est.count("fare").alias("count")).first()["count"]["value"] is None  # type: ignore[index]


def test_sql_and_columns_give_the_same_figures(spark: SparkSession) -> None:
    """Of groups of all sizes, signs and weights, with values and weights that are null."""
    dice = np.random.default_rng(8)
    rows = 2000
    sample = pd.DataFrame({"group": (dice.exponential(20, rows)).astype(int)})
    sample["x"] = dice.normal(dice.choice([-20.0, 0.0, 20.0], 400)[sample["group"]], 8.0)
    sample["y"] = np.abs(dice.normal(3.0, 2.0, rows))
    sample["_weight"] = np.where(sample["group"] % 3 == 0, 1.0, dice.choice([1.0, 2.5, 40.0], rows))
    holes = {"x": 0.1, "y": 0.05, "_weight": 0.005}
    held = sample.astype(object)
    for name, share in holes.items():
        held.loc[dice.random(rows) < share, name] = None
    listed = [tuple(None if pd.isna(each) else each for each in row) for row in held.itertuples(index=False)]
    frame = spark.createDataFrame(listed, "group INT, x DOUBLE, y DOUBLE, _weight DOUBLE").cache()
    columns = {
        "est_count(*)": est.count(),
        "est_count(x, level => 0.9)": est.count("x", level=0.9),
        "est_sum(x)": est.sum("x"),
        "est_avg(x - y)": est.avg(F.col("x") - F.col("y")),
        "est_ratio(x, y)": est.ratio("x", "y"),
        "est_quantile(x, 0.9, level => 0.8)": est.quantile("x", 0.9, level=0.8),
        "est_count_distinct(x, y)": est.count_distinct("x", "y"),
    }
    named = [column.alias(name) for name, column in columns.items()]
    expected = {row["group"]: row.asDict() for row in frame.groupBy("group").agg(*named).collect()}
    frame.createOrReplaceTempView("sample_of_both")
    found = spark.sql(estimated(f"SELECT group, {', '.join(columns)} FROM sample_of_both GROUP BY group"))
    assert found.columns == ["group", *columns]
    assert {row["group"]: row.asDict() for row in found.collect()} == expected
    assert len(expected) > 50
    spark.catalog.dropTempView("sample_of_both")
    frame.unpersist()


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT est_count(*) FROM (SELECT zone FROM rides)", "add _weight to the columns of the subquery in its FROM"),
        ("SELECT est_count(*) FROM rides a JOIN rides b ON a.zone = b.zone", "a._weight * b._weight AS _weight"),
        ("SELECT est_count(nothing) FROM rides", "`nothing` cannot be resolved"),
        ("SELECT upper(est_sum(zone)) FROM rides", "Cannot resolve"),
    ],
)
def test_what_spark_refuses_of_them_is_said_in_one_line(brief: Session, topic: str, sql: str, says: str) -> None:
    cell(brief, f"rides --topic {topic} --schema 'zone LONG'")
    with pytest.raises(ApplicationError) as caught:
        cell(brief, "q --sql -p 1 --dry-run --from rides", sql)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


PAIRS = "an estimate over a join of streams takes the weight of one side for that of a pair"
COPIES = "an estimate over rows without duplicates takes the weight of a copy for that of all"
COMPUTED = "an estimate takes a column for the key by which rows are shed that only has its name"
PRODUCT = "c.join(o, 'user').select((c._weight * o._weight).alias('_weight')).agg(est.count())"


@pytest.mark.parametrize(
    ("shed_by", "body", "says"),
    [
        (
            "",
            "SELECT c.page, est_count(*) FROM c JOIN (SELECT user FROM o) o ON c.user = o.user GROUP BY c.page",
            PAIRS,
        ),
        ("", "SELECT est_count(*) FROM c LEFT SEMI JOIN o ON c.user = o.user", PAIRS),
        ("", "c.join(o.drop('_weight'), 'user').agg(est.count())", PAIRS),
        ("", PRODUCT, None),
        ("", "c.join(spark.createDataFrame([(1,)], 'user LONG'), 'user').agg(est.count())", None),
        ("--shed-by user", "c.join(o.drop('_weight'), 'user').agg(est.count())", None),
        ("", "c.dropDuplicates(['page']).agg(est.count())", COPIES),
        ("--shed-by user", "c.dropDuplicates(['page']).agg(est.count())", COPIES),
        ("--shed-by user", "c.dropDuplicates(['user', 'page']).agg(est.count())", None),
        ("--shed-by user", "SELECT est_count_distinct(user) FROM (SELECT page AS user, _weight FROM c)", COMPUTED),
        ("--shed-by user", "c.withColumn('user', F.substring('user', 1, 3)).agg(est.count())", COMPUTED),
    ],
)
def test_estimates_of_what_rows_do_not_tell_are_refused_where_rows_may_be_dropped(
    brief: Session, shed_by: str, body: str, says: str | None
) -> None:
    for name in ("c", "o"):
        cell(brief, f"{name} --topic {new_topic(brief)} --schema 'user LONG, page LONG' {shed_by}")
    sql, text = ("--sql", body) if "SELECT" in body else ("", f"from qod_magics import estimate as est\n{body}")
    upstream = "c o" if "o" in re.findall(r"\w+", body) else "c"
    declared = f"q -p 1 --from {upstream} --mode microbatch --dry-run {sql}"
    assert "dry run" in cell(brief, declared, text).said, "with the minimum accuracy 1"
    if says is None:
        assert "estimated" in cell(brief, f"{declared} -a 0.1", text).said
    else:
        with pytest.raises(ApplicationError) as caught:
            cell(brief, f"{declared} -a 0.1", text)
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)
    brief.stop_all()


def test_items_of_one_record_are_said_not_to_be_independent(brief: Session) -> None:
    cell(brief, f"c --topic {new_topic(brief)} --schema 'user LONG, tags ARRAY<STRING>'")
    body = "c.select(F.explode('tags').alias('tag'), '_weight').agg(est.count())"
    said = cell(brief, "q -p 1 -a 0.1 --dry-run", f"from qod_magics import estimate as est\n{body}").said
    assert tells(said, "count estimated", "intervals")
    brief.stop_all()


COUNTED = "SELECT page, count(*) AS n, sum(user) AS total FROM clicks GROUP BY page"
RUNNING = """
def running(key, frames, state):
    for frame in frames:
        yield frame[["user"]].assign(n=len(frame))


clicks.groupBy("user").applyInPandasWithState(running, "user LONG, n LONG", "n LONG", "append", "NoTimeout")
"""
PROCESSED = """
from pyspark.sql.streaming import StatefulProcessor


class Running(StatefulProcessor):
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timers):
        for frame in rows:
            yield frame[["user"]].assign(n=len(frame))


clicks.groupBy("user").transformWithStateInPandas(Running(), "user LONG, n LONG", "append", "none")
"""


@pytest.mark.parametrize(
    ("body", "by_row", "by_user"),
    [
        (
            f"SELECT page, stack(2, 'n', n, 'sum', total) AS (metric, v) FROM ({COUNTED})",
            "v of the rows",
            "v of the rows",
        ),
        (f"SELECT * FROM ({COUNTED}) UNPIVOT (v FOR metric IN (n, total))", "page, metric exact; v of the rows", ""),
        ("SELECT * FROM (SELECT page, user AS v FROM clicks) UNPIVOT (x FOR metric IN (v))", "", ""),
        (
            RUNNING,
            "user, n not estimable (--min-accuracy 1 keeps it exact, or --shed-by user)",
            "user, n exact; rows of",
        ),
        (f"{RUNNING.rstrip()}.select('n')", "n not estimable (--min-accuracy 1 keeps", "n exact; rows of keys"),
        (
            PROCESSED,
            "user, n not estimable (--min-accuracy 1 keeps it exact, or --shed-by user)",
            "user, n exact; rows of",
        ),
        (
            "clicks.mapInPandas(lambda frames: frames, 'user LONG, page LONG, _weight DOUBLE')",
            "user, page not estimable (--min-accuracy 1 keeps it exact, or functions of single rows)",
            "user, page not estimable",
        ),
    ],
)
def test_a_column_is_no_better_than_what_it_is_made_of(brief: Session, body: str, by_row: str, by_user: str) -> None:
    sql = "--sql" if body.startswith("SELECT") else ""
    for key, expected in (("", by_row), ("--shed-by user", by_user)):
        cell(brief, f"clicks --topic {new_topic(brief)} --schema 'user LONG, page LONG' {key}")
        said = cell(brief, f"q --from clicks -p 1 -a 0.1 --dry-run {sql}", body).said
        assert (expected or "dry run") in said
        brief.stop_all()


@pytest.mark.smoke
@pytest.mark.versions
def test_a_stream_that_is_shed_says_how_far_off_it_may_be(brief: Session) -> None:
    topic, sent = new_topic(brief), 3000
    turn(brief, {(None, "fares"): 0.3})
    body = """
from qod_magics import estimate as est
fares.groupBy("zone").agg(est.count(), est.sum("fare"), est.avg("fare", level=0.99), est.quantile("fare", 0.5))
"""
    schema = "--schema 'zone LONG, fare DOUBLE' --starting earliest"
    cell(brief, f"fares --topic {topic} {schema} --no-fuse")
    said = cell(brief, "per_zone --from fares -p 1 -a 0.1 --mode microbatch", body).said
    assert tells(said, "per_zone", "zone exact", "count, sum, avg, quantile estimated", "groups")
    plain = "SELECT zone, count(*) AS n, max(fare) AS top FROM fares GROUP BY zone"
    said = cell(brief, "plain --from fares -p 1 -a 0.1 --sql --dry-run", plain).said
    assert tells(said, "zone exact", "n")
    assert tells(said, "top", "not estimable", "--min-accuracy 1")
    sql = "SELECT zone, count(*), est_sum(fare) FROM fares GROUP BY zone"
    said = cell(brief, "by_sql --from fares -p 1 -a 0.1 --mode microbatch --sql --estimates", sql).said
    assert tells(said, "by_sql", "count(*)")
    produce(brief, topic, ({"zone": i % 2, "fare": 10.0 + i % 7} for i in range(sent)))
    eventually(lambda: all_read(brief, "fares", sent), what="all rows are read")
    through = brief.runtime.observe().measured.counts["fares"].processed
    eventually(lambda: all_read(brief, "fares>per_zone", through), what="all of the stream")
    eventually(lambda: all_read(brief, "fares>by_sql", through), what="all of the stream")
    last: dict[int, dict[str, Any]] = {row["zone"]: row for row in rows(brief, "per_zone")}
    by_sql = {row["zone"]: row for row in rows(brief, "by_sql")}
    assert 600 < through < 1200
    assert last.keys() == {0, 1}
    for zone, row in last.items():
        assert by_sql[zone].keys() == {"zone", "count(1)", "est_sum(fare)"}
        assert by_sql[zone]["count(1)"] == pytest.approx(row["count"])  # batches, and so sums, in another order
        assert by_sql[zone]["est_sum(fare)"] == pytest.approx(row["sum"])
        for name, true in (("count", sent / 2), ("sum", 13.0 * sent / 2), ("avg", 13.0)):
            value, low, high = (row[name][part] for part in ("value", "low", "high"))
            assert low < value < high
            half = (high - low) / 2
            assert abs(value - true) < 2.5 * half, (name, row)  # five standard errors
            assert half < 0.2 * true
        assert 12.0 <= row["quantile"]["low"] <= 13.0 == row["quantile"]["value"] <= row["quantile"]["high"] <= 14.0


PER_ZONE = """
from qod_magics import estimate as est
from pyspark.sql import functions as F

timed = fares.withWatermark("at", "1 minute")
timed.groupBy(F.window("at", "10 seconds"), "zone").agg(est.count().alias("rides"), est.sum("fare").alias("fares"))
"""


@pytest.mark.parametrize("fuse", ["", "--no-fuse"], ids=["one-task", "two-tasks"])
def test_the_interval_of_an_estimate_travels_through_a_further_aggregation(brief: Session, fuse: str) -> None:
    """Totals of a window over the estimates of its zones are about the estimates over its rows."""
    topic, sent = new_topic(brief), 3000
    desired = {"fares": 0.3, "per_zone": 0.3, "totals": 0.24, "by_sql": 0.3}
    turn(brief, {(None, "fares"): 0.3, ("per_zone", "totals"): 0.8, ("per_zone", "by_sql"): 1.0}, desired, **desired)
    cell(brief, f"fares --topic {topic} --schema 'zone LONG, fare DOUBLE, at TIMESTAMP' --starting earliest --no-fuse")
    cell(brief, f"per_zone --from fares {fuse}", PER_ZONE)
    sums = "per_zone.groupBy('window').agg(est.sum('rides').alias('rides'), est.sum('fares').alias('fares'))"
    said = cell(
        brief, "totals --from per_zone -p 1 -a 0.1", f"from qod_magics import estimate as est\n{sums}", est=est
    ).said
    assert "fares estimated" in said
    for body in ("est.count()", "est.avg('rides')"):
        with pytest.raises(ApplicationError, match="sums") as refused:
            cell(brief, "no -p 1 -a 0.1 --from per_zone --dry-run", f"per_zone.groupBy('zone').agg({body})", est=est)
        assert "\n" not in str(refused.value)
    if fuse:
        sql = "SELECT window, est_sum(rides) AS rides, est_sum(fares) AS fares FROM per_zone GROUP BY window"
        cell(brief, "by_sql --from per_zone -p 1 -a 0.1 --sql", sql)
    produce(brief, topic, ({"zone": i % 20, "fare": 10.0 + i % 7, "at": "2026-05-04T10:00:03Z"} for i in range(sent)))
    eventually(lambda: all_read(brief, "fares", sent), what="all rows are read")
    produce(brief, topic, [{"zone": 99, "fare": 1.0, "at": "2026-05-04T11:00:00Z"} for _ in range(30)])  # one is kept
    names = ("totals", "by_sql") if fuse else ("totals",)
    for name in names:
        first: list[dict[str, Any]] = []
        eventually(
            lambda n=name, f=first: f.extend(r for r in rows(brief, n) if r["window"]["start"].hour == 10) or f,  # type: ignore[misc]
            what=f"the first window of {name}",
        )
        row = first[-1]
        for column, true in (("rides", sent), ("fares", 13.0 * sent)):
            value, low, high = (row[column][part] for part in ("value", "low", "high"))
            half = (high - low) / 2
            assert low < value < high
            assert abs(value - true) < 2.5 * half, (name, column, row)  # five standard errors
            edge = 0.2 if fuse and name == "totals" else 0.0  # 20 zones, of which a fifth is dropped
            assert 0.02 * true < half < (0.08 + 2 * edge) * true
    for name in names if fuse else ():  # the rows below are sampled already: their groups are not dropped for it again
        assert count(brief, f"per_zone>{name}").dropped == 0


def test_exact_figures_stand_beside_estimates_and_take_their_place(recommending: Session) -> None:
    """Four windows of five zones with 200 rows each, of which 0.3 are kept. In the end, half of the rows are deleted by
    hand, in a topic that would keep them for a week."""
    topic = new_topic(recommending, 2)
    begin = int(time.time()) // 10 * 10 - 50

    def by_zone(rides: DataFrame) -> DataFrame:
        groups = rides.withWatermark("at", "1 second").groupBy(F.window("at", "10 seconds"), "zone")
        return groups.agg(est.count().alias("rides"))

    def ride(zone: int, second: float) -> dict[str, Any]:
        return {"zone": zone, "at": datetime.fromtimestamp(begin + second, UTC).isoformat()}

    recommending.stream("rides", topic=topic, schema="zone LONG, at TIMESTAMP", starting="earliest")
    recommending.stream("zones", by_zone, from_="rides", min_accuracy=0.1)
    turn(recommending, {(None, "zones"): 0.3}, {"zones": 0.3})
    sent = produce(recommending, topic, (ride(i % 5, i // 100) for i in range(4000)), partitions=2)
    eventually(lambda: all_read(recommending, "zones", sent))
    span = [datetime.fromtimestamp(begin + second, UTC) for second in (0, 40)]
    with pytest.raises(UsageProblem, check=breaks("closed", option="--merge")):
        recommending.exact("zones", *span, merge=True)
    found = recommending.exact("zones", *span, cpu=0.5)
    assert (len(found.groups), found.intervals, found.missing, found.rows_read) == (20, 20, 0, sent)
    assert set(found.frame.rides) == {200.0}
    assert (found.frame.rides_estimate != 200).any()
    assert found.share is not None
    assert found.share >= 0.7
    assert found.cpu_s is not None
    assert found.cpu_s > 0.0
    turn(recommending, {(None, "zones"): 1.0}, {"zones": 1.0})
    produce(recommending, topic, [ride(0, 60)])
    eventually(lambda: all_read(recommending, "zones", sent + 1))
    produce(recommending, topic, [ride(0, 61)])  # the watermark of a batch follows from the rows before it
    eventually(lambda: (watermark(recommending, "zones") or span[0]) >= span[1])
    assert recommending.exact("zones", *span, merge=True).merged == 20
    again = recommending.exact("zones", *span)
    assert set(again.frame.rides_low) == set(again.frame.rides_high) == {200.0}
    assert again.share == 1.0
    admin = AdminClient(recommending.kafka.client_config())
    week = ConfigEntry("retention.ms", str(7 * 86_400_000), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[week])
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result()
    for deleted in admin.delete_records([TopicPartition(topic, 1, OFFSET_END)]).values():
        assert deleted.result().low_watermark == 2000
    left = recommending.exact("zones", *span)
    assert len(left.groups) == 0
    assert any(tells(note, topic, "deleted", "partition 1") for note in left.notes)
    assert any(tells(note, "20 groups") for note in left.notes)
