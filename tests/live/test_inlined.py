"""Queries that make the rows of their sources themselves, on real Kafka and Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

from qod_magics.application.recipes.building import active
from qod_magics.errors import ApplicationError
from qod_magics.kafka.topics import topic_partitions
from qod_magics.session.session import Session
from qod_magics.spark.plans.inlining import is_inlinable, plan_of
from tests.live.applications import all_read, cell, count, instances, rows, turn, written
from tests.live.conftest import eventually, new_topic, produce
from tests.raising import breaks
from tests.texts import tells

LINE = "--schema 'id BIGINT, zone INT' --starting earliest"


def two_topics(session: Session) -> list[str]:
    """Two sources, each of a topic of two partitions; the topics."""
    topics = [new_topic(session, partitions=2) for _ in range(2)]
    for name, topic in zip(("east", "west"), topics, strict=True):
        cell(session, f"{name} --topic {topic} {LINE}", "source.where('zone > 0')")
    return topics


def send(session: Session, topics: list[str], first: int, rows: int) -> None:
    """Send this number of rows to each topic, even ids to one and odd ids to the other. Sources drop one in ten."""
    for number, topic in enumerate(topics):
        produce(session, topic, ({"id": 2 * i + number, "zone": i % 10} for i in range(first, first + rows)), 2)


def expected(rows: int) -> set[int]:
    return {2 * i + number for i in range(rows) for number in range(2) if i % 10}


def test_two_queries_read_both_topics_themselves_and_a_third_joins(brief: Session) -> None:
    session = brief
    topics = two_topics(session)
    before = set(topic_partitions(session.kafka))
    said = cell(session, "one -p 1 -n 2", "east.union(west).select('id', '_weight')").said
    assert tells(said.splitlines()[-1], "real-time", "(east + west) -> one")
    cell(session, "two -p 2 --sql", "SELECT id, zone, _weight FROM east UNION ALL SELECT id, zone, _weight FROM west")
    assert set(session.runtime.deployment.specs) == {"one", "two"}
    assert [len(instances(session, task)) for task in ("one", "two")] == [2, 1]
    results = {session.runtime.deployment.results[query] for query in ("one", "two")}
    assert set(topic_partitions(session.kafka)) - before == results
    send(session, topics, 0, 300)
    for query in ("one", "two"):
        eventually(lambda q=query: all_read(session, q, 600), what=f"all rows in {query}")  # type: ignore[misc]
        found = rows(session, query)
        assert sorted(row["id"] for row in found) == sorted(expected(300))
        assert {row["_weight"] for row in found} == {1.0}
        books = count(session, query)
        assert (books.processed, books.dropped, books.unreported) == (600, 0, 0)

    runs = {i.id: i.run_id for i in session.runtime.instances.values()}
    cell(session, "three -p 1", "west.select('id')")
    assert {i.id: i.run_id for i in session.runtime.instances.values() if i.job.task != "three"} == runs
    assert session.status().count("east+west+") == 2
    eventually(lambda: all_read(session, "three", 300), what="the topic from its beginning")
    assert {row["id"] for row in rows(session, "three")} == {id for id in expected(300) if id % 2}

    seen = session.last.number if session.last is not None else 0
    eventually(lambda: session.last is not None and session.last.number > seen, what="a cycle")
    first, second, *_ = session.why("east").splitlines()
    assert tells(first, "east", "(east + west) -> one")
    assert tells(second, "east", "(east + west) -> two")

    session.runtime.mover.restart(instances(session, "one")[0])
    send(session, topics, 300, 100)
    eventually(lambda: written(session, "one") >= len(expected(400)), what="rows after a restart")
    eventually(lambda: all_read(session, "one", 800), what="their report")
    assert {row["id"] for row in rows(session, "one")} == expected(400)


def test_each_sheds_what_it_reads_by_a_dial_of_its_own(brief: Session) -> None:
    session = brief
    topics = two_topics(session)
    turn(session, {(None, "less"): 0.25, (None, "more"): 0.75})
    for query in ("less", "more"):
        cell(session, f"{query} -p 1 -a 0.1", "east.union(west).select('id', '_weight')")
    send(session, topics, 0, 1000)
    kept: dict[str, set[int]] = {}
    for query, d in (("less", 0.25), ("more", 0.75)):
        eventually(lambda q=query: all_read(session, q, 2000), what=f"all rows in {query}")  # type: ignore[misc]
        books = count(session, query)
        assert abs(books.processed - 2000 * d) <= 4 * (2000 * d * (1 - d)) ** 0.5
        assert (books.processed + books.dropped, books.unreported) == (2000, 0)
        found = rows(session, query)
        assert {row["_weight"] for row in found} == {1 / d}
        kept[query] = {row["id"] for row in found}
    assert kept["less"] < kept["more"] < expected(1000)  # what is decided by a row's place is the same for both


@pytest.mark.parametrize(
    ("body", "inlinable"),
    [
        ("source.withColumn('half', F.col('zone') / 2).where('half > 1')", True),
        ("source.withWatermark('at', '10 seconds')", True),
        ("source.select('*', F.explode(F.array('id', 'zone')))", True),
        ("source.select(*[(F.col('id') + n).alias(f'c{n}') for n in range(60)])", True),
        ("source.select(*[(F.col('id') + n).alias(f'c{n}') for n in range(60)], F.rand().alias('r'))", False),
        ("source.where('uuid() > id')", False),
        ("source.sample(0.5)", False),
        ("source.withColumn('r', F.expr('transform(array(id), i -> i + zone)'))", False),
        ("source.withColumn('r', F.udf(lambda zone: zone + 1, 'int')('zone'))", False),
        ("source.groupBy('zone').count()", False),
        ("source.dropDuplicates(['id'])", False),
        ("source.join(spark.range(3), 'id')", False),
    ],
)
def test_what_is_inlinable(recommending: Session, body: str, inlinable: bool) -> None:
    workshop = recommending.runtime.workshop()
    schema = "id BIGINT, zone INT, at TIMESTAMP"
    records = workshop.spark.readStream.format("rate").load()
    source = records.select(F.from_json(F.col("value").cast("string"), schema).alias("row")).select("row.*")
    with active({"source": source}):
        found: Any = eval(body, {"source": source, "F": F, "spark": workshop.spark})
    assert is_inlinable(plan_of(found)) is inlinable


@pytest.mark.parametrize(
    ("sql", "members"),
    [
        ("SELECT id, zone % 5 AS zone, _weight FROM source WHERE zone > 1", ("tidy", "total")),
        ("SELECT DISTINCT zone FROM source", ("total",)),
    ],
)
def test_sql_is_inlined_as_python_is(brief: Session, sql: str, members: tuple[str, ...]) -> None:
    cell(brief, f"tidy --topic {new_topic(brief)} --schema 'id BIGINT, zone INT' --sql", sql)
    for query in ("total", "other"):
        cell(brief, f"{query} -p 1 -a 0.5 --sql", "SELECT zone FROM tidy WHERE zone > 1")
    assert brief.runtime.deployment.specs["total"].members == members


@pytest.mark.parametrize(
    ("schema", "body", "name"),
    [
        ("id BIGINT, _u INT", "source", "_u"),
        ("id BIGINT, _Weight DOUBLE", "source", "_weight"),
        ("id BIGINT", "source.withColumn('_D0', F.lit(1))", "_D0"),
    ],
)
def test_columns_with_names_of_ours_are_refused_in_one_line(
    recommending: Session, schema: str, body: str, name: str
) -> None:
    topic = new_topic(recommending)
    with pytest.raises(ApplicationError, check=breaks("reserved column", name=name)) as caught:
        cell(recommending, f"clash --topic {topic} --schema '{schema}' -p 1", body)
    assert "\n" not in str(caught.value)
    assert "clash" not in recommending.application


def test_rows_that_are_dear_to_make_are_made_once(brief: Session, topic: str) -> None:
    session = brief
    cell(session, f"dear --topic {topic} {LINE}", "source.withColumn('r', F.rand())")
    for query in ("one", "two"):
        cell(session, f"{query} -p 1", "dear")
    assert set(session.runtime.deployment.specs) == {"dear", "one", "two"}
    produce(session, topic, ({"id": i, "zone": 1} for i in range(100)))
    for query in ("one", "two"):
        eventually(lambda q=query: all_read(session, f"dear>{q}", 100), what=f"all rows in {query}")  # type: ignore[misc]
    one, two = ({row["id"]: row["r"] for row in rows(session, query)} for query in ("one", "two"))
    assert one == two
