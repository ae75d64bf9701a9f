"""Cells as people write them, on real Kafka and Spark: variables in SQL, schemas, records of a Kafka sink, and whole
results (ORDER BY and LIMIT over groups)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql.types import IntegerType, StructField, StructType

from qod_magics.errors import ApplicationError
from qod_magics.session.results import QueryResults
from qod_magics.session.session import Session
from tests.live.applications import all_read, cell, rows, rows_in, written
from tests.live.conftest import eventually, produce
from tests.live.watching import Events, books
from tests.texts import tells

LINE = "--topic {} --schema 'zone INT, fare DOUBLE, at TIMESTAMP' --starting earliest -p 1"
TOP = "SELECT zone, count(*) AS n FROM source GROUP BY zone ORDER BY n DESC, zone LIMIT 2"


def fares(zones: list[int]) -> list[dict[str, Any]]:
    return [{"zone": zone, "fare": 10.0 * zone, "at": f"2024-01-01T10:00:0{zone}Z"} for zone in zones]


def shown(session: Session, name: str) -> list[dict[str, Any]]:
    return [dict(row) for row in QueryResults(session, name).read().rows.values()]


@pytest.mark.smoke
def test_sql_takes_the_notebooks_variables_by_their_types(brief: Session, topic: str) -> None:
    session = brief
    body = """
        -- no --sql above, a comment behind the query
        SELECT zone, :zones AS zones, :names['a'] AS named, :nothing AS nothing
        FROM source
        WHERE fare >= :threshold AND zone IN (:zones) AND at < :noon AND array_contains(:zones, zone); -- all
    """
    given = {"threshold": 20, "zones": [1, 2, 3], "noon": datetime(2024, 1, 1, 10, 0, 3, tzinfo=UTC)}
    cell(session, f"chosen {LINE.format(topic)}", body, **given, names={"a": "b"}, nothing=None)
    produce(session, topic, fares([1, 2, 3, 4]))
    eventually(lambda: all_read(session, "chosen", 4) and written(session, "chosen"), what="the rows")
    assert rows(session, "chosen") == [{"zone": 2, "zones": [1, 2, 3], "named": "b", "nothing": None}]


def test_values_may_be_arrays_of_rows_and_names_within_types_are_anything(brief: Session, topic: str) -> None:
    session = brief
    nested = StructType().add("zone", StructType([StructField("first-name", IntegerType())]))
    cell(session, f'listed --topic {topic} --schema "array<struct<zone STRUCT<`first-name`: INT>>>" '
         "--starting earliest -p 1", "source.select('zone.*')")  # fmt: skip
    session.stream("named", None, topic=topic, schema=nested, starting="earliest", priority=1)
    values = [[{"zone": {"first-name": 1}}, {"zone": {"first-name": 2}}], [], [{"zone": {"first-name": 3}}]]
    produce(session, topic, values)  # type: ignore[arg-type]
    producer = Producer(session.kafka.client_config())
    for value in (b"[{", None, b"null"):
        producer.produce(topic, value)
    producer.flush()
    eventually(lambda: all_read(session, "listed", 6) and written(session, "listed") >= 3, what="the rows")
    assert sorted(row["first-name"] for row in rows(session, "listed")) == [1, 2, 3]
    account = session.runtime.deployment.accounts["listed"]
    eventually(lambda: (account.malformed, account.tombstones) == (2, 1), what="malformed values, and a tombstone")


def test_columns_of_a_record_are_the_records_in_a_kafka_sink(brief: Session, topic: str) -> None:
    session, out = brief, f"{topic}-out"
    body = """SELECT string(zone) AS key, to_json(struct(fare)) AS value, 0 AS partition,
        array(struct('h' AS key, binary('x') AS value)) AS headers FROM source"""
    said = cell(session, f"sent {LINE.format(topic)} --sink kafka:{out}", body).said
    assert "key, value, partition, headers" in said
    other = cell(session, f"other {LINE.format(topic)} --sink kafka:{out}-2", "source.select('zone', 'fare')").said
    assert "JSON" in other
    produce(session, topic, fares([1, 2]))
    eventually(lambda: rows_in(session, out) >= 2, what="records")
    consumer = Consumer({**session.kafka.client_config(), "group.id": "reader"})
    try:
        consumer.assign([TopicPartition(out, 0, 0)])
        records = consumer.consume(2, 30.0)
    finally:
        consumer.close()
    found = sorted((record.key(), record.value(), record.headers()) for record in records)
    assert found == [(b"1", b'{"fare":10.0}', [("h", b"x")]), (b"2", b'{"fare":20.0}', [("h", b"x")])]
    assert sorted(row["key"] for row in shown(session, "sent")) == ["1", "2"]


@pytest.mark.smoke
def test_what_is_sorted_over_groups_is_rewritten_as_a_whole(brief: Session, topic: str) -> None:
    session, out = brief, f"{topic}-out"
    said = cell(session, f"top {LINE.format(topic)}", TOP).said
    assert tells(said, "ORDER BY", "LIMIT")
    cell(session, f"sent {LINE.format(topic)} --sink kafka:{out}", TOP)
    printed = cell(session, f"told {LINE.format(topic)} --sink console", "source.groupBy('zone').count().sort('zone')")
    assert "server.log" in printed.said
    dear = "SELECT zone, avg(fare) AS mean FROM source GROUP BY zone HAVING mean > 15 ORDER BY zone"
    cell(session, f"dear {LINE.format(topic)}", dear)
    produce(session, topic, fares([1, 1, 1, 2, 2, 3]))
    first = [{"zone": 1, "n": 3}, {"zone": 2, "n": 2}]
    eventually(lambda: rows(session, "top") == first and shown(session, "sent") == first, what="the first two")
    produce(session, topic, fares([3, 3, 3]))
    then = [{"zone": 3, "n": 4}, {"zone": 1, "n": 3}]
    eventually(lambda: rows(session, "top") == then == shown(session, "top"), what="the newest batch alone")
    eventually(lambda: shown(session, "sent") == then, what="that of the Kafka sink")
    assert [row["zone"] for row in rows(session, "dear")] == [2, 3]
    produce(session, topic, [{"zone": zone, "fare": -1000.0} for zone in (2, 3)])
    eventually(lambda: rows(session, "dear") == [] == shown(session, "dear"), what="a result without rows")


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("--sink parquet:/tmp/none", TOP),
        ("--mode realtime", TOP),
        ("", "SELECT * FROM source ORDER BY fare"),
        ("", f"SELECT n, count(*) AS c FROM ({TOP}) GROUP BY n"),
        (
            "",
            "SELECT n, count(*) AS c FROM (SELECT count(*) AS n FROM source GROUP BY zone) GROUP BY n ORDER BY c",
        ),
    ],
)
def test_what_does_not_fit_complete_mode_is_refused(brief: Session, topic: str, line: str, body: str) -> None:
    with pytest.raises(ApplicationError, match=r"complete|once") as caught:
        cell(brief, f"top {LINE.format(topic)} {line}", body)
    assert "\n" not in str(caught.value)
    assert not brief.application.names


def test_rows_on_the_way_are_told_where_their_columns_change(brief: Session, topic: str) -> None:
    """They are not read with the new columns, where what they lack would be null."""
    session, line = brief, LINE.format(topic).replace("-p 1", "--no-fuse")
    with Events(session) as events:
        cell(session, f"src {line}", "source.select('zone')")
        cell(session, "copy --from src -p 1 --no-fuse --mode microbatch --trigger 999999", "src")
        copy = session.runtime.instances["copy.1"]
        eventually(lambda: copy.query is not None and copy.query.lastProgress is not None, what=session.status)
        # it looks again in days: Spark begins batches at multiples of their interval
        produce(session, topic, fares([1, 2]))
        eventually(
            lambda: "src>copy" in (found := books(session)) and found["src>copy"].waiting == 2, what=session.status
        )
        cell(session, f"src {line}", "source.select('zone', 'fare')")
        assert events.first("rows-left", task="copy")["rows"] == 2
        produce(session, topic, fares([4]))
        cell(session, "copy --from src -p 1 --no-fuse --mode microbatch --trigger 1", "src")
        eventually(lambda: written(session, "copy") == 1, what=session.status)
        assert rows(session, "copy") == [{"zone": 4, "fare": 40.0}]
        eventually(lambda: books(session)["src>copy"].processed == 1, what=session.status)
        found = books(session)["src>copy"]
        assert (found.arrived, found.unreported, found.waiting) == (3, 2, 0)
