"""Formats, columns of the record, topics of rejects and rules, on real Kafka and Spark."""

from __future__ import annotations

from contextlib import closing

import pytest

from qod_magics.core.runtime import Count
from qod_magics.errors import ApplicationError
from qod_magics.kafka.reading import Tail
from qod_magics.session.session import Session
from tests.live.applications import cell, rows, written
from tests.live.conftest import eventually
from tests.live.framed_avro import send
from tests.live.watching import books, settled

CSV = [b"1,2.5,a", b"2,x,b", b'3,4.5,"c,d"\r', b"4,5", None, b""]


def test_csv_has_columns_of_its_records(brief: Session, topic: str) -> None:
    """And rows of CSV that are malformed are counted; Avro is refused without its package."""
    avro = '{"type": "record", "name": "T", "fields": [{"name": "a", "type": "int"}]}'
    with pytest.raises(ApplicationError) as caught:
        cell(brief, f"none --topic {topic} --format avro --schema '{avro}' -p 1", "source")
    assert (caught.value.option, caught.value.rule) == ("--format", "loaded")
    line = f"q --topic {topic} --format csv --schema 'a INT, d DOUBLE, s STRING' --starting earliest -p 1"
    cell(brief, f"{line} --with key,offset,partition,headers,timestamp", "source")
    send(brief, topic, CSV)
    settled(brief, "q", len(CSV))
    account = brief.runtime.deployment.accounts["q"]
    eventually(lambda: (account.malformed, account.tombstones) == (3, 1), what=brief.status)
    eventually(lambda: "3 values are not CSV of its schema" in brief.status(), what=brief.status)
    eventually(lambda: written(brief, "q") == 2, what=brief.status)
    found = sorted((row["a"], row["d"], row["s"], row["_offset"], row["_partition"]) for row in rows(brief, "q"))
    assert found == [(1, 2.5, "a", 0, 0), (3, 4.5, "c,d", 2, 0)]
    assert all(row["_timestamp"].year >= 2020 and row["_key"] is None for row in rows(brief, "q"))


def test_rejects_go_to_a_topic_with_reason_and_place(brief: Session, topic: str) -> None:
    rejects = f"{topic}.rejects"
    line = f"q --topic {topic} --schema 'a INT, at TIMESTAMP' --starting earliest -p 1 --malformed topic:{rejects}"
    cell(brief, line, "source.select('a', 'at')")
    send(brief, topic, [b'{"a": 1}', b"{", b'{"a": "x"}', b'{"a": 2, "at": 1764201600000}', None])
    settled(brief, "q", 5)
    said = f"2 values are not JSON of its schema and were sent to the topic {rejects}"
    eventually(lambda: said in brief.status(), what=brief.status)
    with closing(Tail(brief.kafka, rejects, 10)) as tail:
        found = sorted((record.headers["qod.offset"], record.value) for record in tail.read().by_time)
    assert sorted(set(found)) == [(b"1", b"{"), (b"2", b'{"a": "x"}'), (b"3", b'{"a": 2, "at": 1764201600000}')]
    eventually(lambda: [row["a"] for row in rows(brief, "q")] == [1], what=brief.status)


def test_rejects_are_the_records_of_values_that_are_no_rows(brief: Session, topic: str) -> None:
    """Also those that are larger than Kafka's producers send by default."""
    rejects, malformed = f"{topic}.rejects", [b'{"a": 1}', b"[" + b"x" * 2_000_000, b'["x"]']
    line = f"q --topic {topic} --schema 'ARRAY<INT>' --starting earliest -p 1 --malformed topic:{rejects}"
    cell(brief, line, "source")
    send(brief, topic, [b"[1, 2]", *malformed])
    settled(brief, "q", 4)
    with closing(Tail(brief.kafka, rejects, 10)) as tail:
        found: set[bytes | None] = set()

        def all_there() -> bool:
            found.update(record.value for record in tail.read().by_time)
            return found >= set(malformed)

        eventually(all_there, what=brief.status)
    assert found == set(malformed)


def test_rules_are_counted_and_carried_out(brief: Session, topic: str) -> None:
    line = f"q --topic {topic} --schema 'a INT' --starting earliest -p 1"
    cell(brief, f"{line} --expect 'a > 0:drop' 'a < 3'", "source")
    send(brief, topic, [b'{"a": %d}' % n for n in range(-1, 5)])
    settled(brief, "q", 6)
    eventually(lambda: "2 rows break the rule a > 0 and were dropped" in brief.status(), what=brief.status)
    assert "2 rows break the rule a < 3 and were kept" in brief.status()
    eventually(lambda: sorted(row["a"] for row in rows(brief, "q")) == [1, 2, 3, 4], what=brief.status)
    cell(brief, f"f --topic {topic} --schema 'a INT' --starting earliest -p 1 --expect 'a < 3:fail'", "source")
    eventually(lambda: "a row breaks the rule a < 3" in brief.status(), what=brief.status)
    assert books(brief).get("f", Count()).processed < 6
