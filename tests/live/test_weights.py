"""`_weight` where it is not known: null, and said when the stream is declared."""

from __future__ import annotations

import pytest
from pyspark.sql import Row
from pyspark.sql.connect.session import SparkSession as ConnectSession

from qod_magics.application.weights import one_weight
from qod_magics.core.plan import Edge, Plan
from qod_magics.core.runtime import Dials
from qod_magics.session.session import Session
from tests.live.applications import all_read, cell, count, rows, turn
from tests.live.conftest import eventually, heard, new_topic, produce
from tests.texts import tells

READ = "--schema 'id LONG' --starting earliest"


def test_pairs_of_rows_of_one_topic_have_none(brief: Session) -> None:
    topic = new_topic(brief)
    turn(brief, {(None, "one"): 0.5, (None, "other"): 0.5})
    for side in ("one", "other"):
        cell(brief, f"{side} --topic {topic} {READ}")
    said = cell(
        brief, "pairs -p 1 -a 0.1", "one.join(other, one.id == other.id).select(one.id, one._weight, other._weight)"
    ).said
    assert tells(said, "pairs", "_weight", "sampled")
    produce(brief, topic, ({"id": i} for i in range(400)))
    for side in ("one", "other"):
        eventually(lambda s=side: all_read(brief, s, 400), what=f"all rows in {side}")  # type: ignore[misc]
        sent = count(brief, side).processed
        eventually(lambda s=side, n=sent: all_read(brief, f"{s}>pairs", n), what=f"all of {side}")  # type: ignore[misc]
    found = rows(brief, "pairs")
    assert 100 < len(found) < 300  # both sides keep the same records: 200, not 100
    assert {row["_weight"] for row in found} == {None}


PRODUCT = "one.join(other, one.id == other.id).select(one.id, (one._weight * other._weight).alias('_weight'))"


@pytest.mark.parametrize(
    ("body", "known"),
    [
        ("SELECT one.id, one._weight FROM one JOIN other ON one.id = other.id", False),
        ("SELECT one.id, one._weight, other._weight FROM one JOIN other ON one.id = other.id", True),
        ("SELECT one.id, one._weight * other._weight AS _weight FROM one JOIN other ON one.id = other.id", True),
        ("SELECT one.ID, one._WEIGHT * other._WEIGHT AS _WEIGHT FROM one JOIN other ON one.id = other.id", True),
        ("SELECT one.ID, one._WEIGHT FROM one JOIN other ON one.id = other.id", False),
        ("one.join(other.drop('_weight'), 'id')", False),
        ("one.join(other, one.id == other.id, 'left_semi').select('id', '_weight')", False),
        ("spark.sql('SELECT o.id, o._weight FROM {o} o JOIN {t} t ON o.id = t.id', o=one, t=other)", False),
        ("one.join(other, one.id == other.id).select(one.id, (one._weight * other._weight).alias('_weight'))", True),
        ("one.join(other, one.id == other.id).select(one.id, one._weight, other._weight)", True),
        (f"{PRODUCT}.withColumn('twice', F.udf(lambda id: 2 * id, 'long')('id'))", True),
        (f"{PRODUCT}.withColumn('at', F.current_timestamp()).withWatermark('at', '1 second')", True),
        (f"{PRODUCT}.dropDuplicates(['id'])", True),
        ("one.join(other, one.id == other.id).select(one.id, one._weight).dropDuplicates(['id'])", False),
        ("one.join(spark.createDataFrame([(1,)], 'id LONG'), 'id')", True),
    ],
)
def test_a_join_of_streams_that_keeps_the_weight_of_one_has_none(brief: Session, body: str, known: bool) -> None:
    for side in ("one", "other"):
        cell(brief, f"{side} --topic {new_topic(brief)} {READ}")
    upstream = "one" if "other" not in body else "one other"
    sql = "--sql" if body.startswith("SELECT") else ""
    said = cell(brief, f"pairs -p 1 -a 0.1 --from {upstream} --dry-run {sql}", body).said
    note = "pairs: _weight is null in its rows, as its recipe joins streams and keeps the weight of one of them"
    assert "dry run" in said
    assert (note in said) is not known
    assert ("_weight is null" in said) is not known
    brief.stop_all()


def test_a_stream_above_a_join_has_the_weight_that_is_computed_there(
    brief: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A UDF of a DDL type needs no session in pyspark's hands but the recipe's own."""
    monkeypatch.setattr(ConnectSession, "_default_session", None)
    monkeypatch.setattr(ConnectSession._active_session, "session", None, raising=False)
    for side in ("one", "other"):
        cell(brief, f"{side} --topic {new_topic(brief)} {READ}")
    said = cell(brief, "pairs", PRODUCT).said
    said += cell(
        brief, "far -p 1 -a 0.1", "pairs.select('id', '_weight', F.udf(lambda i: i, 'long')('id').alias('i'))"
    ).said
    assert [spec.members for spec in brief.runtime.deployment.specs.values()][-1][-2:] == ("pairs", "far")
    assert "_weight" not in said
    brief.stop_all()


def test_who_joins_by_an_outer_join_hears_where_the_weight_is_null(brief: Session) -> None:
    for side in ("one", "other"):
        renamed = f"source.withColumnRenamed('id', '{side}_id').withColumn('at', F.current_timestamp())"
        timed = f"{renamed}.withWatermark('at', '1 minute')"
        cell(brief, f"{side} --topic {new_topic(brief)} {READ}", timed)
    within = (
        "(one.one_id == other.other_id) & (one.at >= other.at) & (one.at <= other.at + F.expr('interval 1 minute'))"
    )
    kept = "one.one_id, one._weight, other._weight"
    for how, said in (("left", True), ("full", True), ("inner", False)):
        body = f"one.join(other, {within}, '{how}').select({kept})"
        text = cell(brief, "pairs -p 1 -a 0.1 --dry-run", body).said
        assert (tells(text, "_weight", "outer join")) is said
    unpaid = f"one.join(other, {within}, 'left').select('one_id', 'other_id')"
    text = cell(brief, "unpaid -p 1 -a 0.1 --dry-run", unpaid).said
    assert tells(text, "one_id exact", "other_id", "not estimable", "--min-accuracy 1", "--shed-by id")
    assert "outer join" in text
    brief.stop_all()


@pytest.mark.parametrize("fused", [True, False])
def test_rows_of_a_recipe_that_leaves_it_out_have_none_and_are_thinned_all_the_same(
    brief: Session, fused: bool
) -> None:
    topic, fuse = new_topic(brief), "" if fused else "--no-fuse"
    first = "reader" if fused else "bare"
    said = cell(brief, f"bare --topic {topic} {READ} {fuse}", "source.repartition(1).select('id')").said
    assert tells(said.splitlines()[-1], "bare", "_weight")
    said = cell(brief, f"reader -p 1 -a 0.1 {fuse}", "bare.select('id', '_weight')").said
    assert tells(said.splitlines()[-1], "reader", "_weight", "bare")
    keep: dict[Edge, float] = {(None, first): 0.5, ("bare", "reader"): 1.0}
    heard(lambda: brief.runtime.apply(Plan({first: 0.5}, keep), Dials(keep, {"reader": 0.25})))
    produce(brief, topic, ({"id": i} for i in range(2000)))
    eventually(lambda: all_read(brief, first, 2000), what="all rows read")
    if not fused:
        sent = count(brief, first).processed
        eventually(lambda: all_read(brief, "bare>reader", sent), what="all rows arrived")
    found = rows(brief, "reader")
    assert {row["_weight"] for row in found} == {None}
    expected, chance = (1000, 0.5) if fused else (500, 0.25)
    assert abs(len(found) - expected) <= 4 * (2000 * chance * (1 - chance)) ** 0.5


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ("", "source.dropDuplicates()"),
        ("", "spark.sql('SELECT DISTINCT * FROM {s}', s=source)"),
        ("--sql", "SELECT DISTINCT * FROM source"),
    ],
)
def test_rows_that_differ_in_weight_alone_are_duplicates(brief: Session, options: str, body: str) -> None:
    topic = new_topic(brief)
    turn(brief, {(None, "once"): 1.0})
    cell(brief, f"once -p 1 -a 0.1 --topic {topic} {READ} {options}", body)
    produce(brief, topic, ({"id": i % 50} for i in range(500)))
    eventually(lambda: all_read(brief, "once", 500), what="the first rows")
    turn(brief, {(None, "once"): 0.5})
    produce(brief, topic, ({"id": i % 50} for i in range(500)))
    eventually(lambda: all_read(brief, "once", 1000), what="all rows")
    found = {tuple(row.items()) for row in rows(brief, "once")}
    assert found == {(("id", i),) for i in range(50)}


@pytest.mark.smoke
def test_rows_of_a_query_have_a_weight_if_its_recipe_names_it(brief: Session) -> None:
    topic = new_topic(brief)
    said = cell(brief, f"passed -p 1 -a 0.1 --topic {topic} {READ}", "source").said
    assert tells(said, "passed", "_weight")
    said = cell(brief, f"named -p 1 -a 0.1 --topic {topic} {READ}", "source.select('id', F.col('_weight'))").said
    assert "_weight" not in said
    assert brief.results("passed").columns == ["id"]
    assert brief.results("named").columns == ["id", "_weight"]


def test_the_empty_side_of_an_outer_join_may_have_been_dropped(cluster: Session) -> None:
    spark = cluster.runtime.task_managers["tm1"].spark
    left = spark.createDataFrame([Row(id=1, _weight=2.0), Row(id=2, _weight=2.0)])
    right = spark.createDataFrame([Row(other=1, _weight=4.0)])
    joined = left.join(right, left.id == right.other, "left")
    assert {row["id"]: row["_weight"] for row in one_weight(joined, known=True).collect()} == {1: 8.0, 2: None}
    assert {row["_weight"] for row in one_weight(joined, known=False).collect()} == {None}
