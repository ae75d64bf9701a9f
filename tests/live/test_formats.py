"""Formats, columns of the record, topics of rejects and rules, on real Kafka and Spark."""

from __future__ import annotations

from contextlib import closing

import pytest
from pyspark.sql import functions as F

from qod_magics.core.runtime import Count
from qod_magics.errors import ApplicationError
from qod_magics.kafka.reading import Tail
from qod_magics.kafka.topics import create_topics, delete_topics
from qod_magics.session.session import Session
from tests.live.applications import all_read, cell, count, instances, rows, turn, written
from tests.live.conftest import eventually, new_topic, produce
from tests.live.framed_avro import send
from tests.live.watching import books, settled
from tests.raising import breaks
from tests.texts import tells

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


def test_several_topics_are_one_stream_and_each_row_is_counted(brief: Session) -> None:
    """Of topics with unlike numbers of partitions, with rows shed before they are parsed, through a move and a restart
    of the query; rejects tell the topic."""
    one, two = new_topic(brief, partitions=2), new_topic(brief, partitions=3)
    rejects = f"{one}.rejects"
    line = f"q --topic {one},{two} --schema 'id BIGINT' --with topic,partition,offset --starting earliest -p 1 -a 0.1"
    line = f"{line} -n 2 --malformed topic:{rejects}"
    produce(brief, one, ({"id": i} for i in range(400)), partitions=2)
    produce(brief, two, ({"id": i} for i in range(400, 1000)), partitions=3)
    send(brief, two, [b"{"])
    cell(brief, line, "source.select('id', '_topic', '_partition', '_offset', '_weight')")

    def counted(rows: int) -> Count:
        eventually(lambda: all_read(brief, "q", rows), what=brief.status)
        now = count(brief, "q")
        assert now.arrived == now.processed + now.dropped == rows
        return now

    assert counted(1001).dropped == 0
    whole = rows(brief, "q")
    assert {(row["_topic"], row["id"]) for row in whole} == {(one if i < 400 else two, i) for i in range(1000)}
    assert len({(row["_topic"], row["_partition"], row["_offset"]) for row in whole}) == 1000
    accounts = brief.runtime.deployment.accounts
    assert {each.topic: sum(each.position.values()) for each in accounts.values()} == {one: 400, two: 601}
    with closing(Tail(brief.kafka, rejects, 10)) as tail:
        assert {record.headers["qod.topic"] for record in tail.read().by_time} == {two.encode()}
    turn(brief, {(None, "q"): 0.5})
    there = instances(brief, "q")[0].task_manager
    brief.move("q.1", next(id for id, each in brief.runtime.task_managers.items() if each is not there))
    produce(brief, one, ({"id": i} for i in range(1000, 3000)), partitions=2)
    produce(brief, two, ({"id": i} for i in range(3000, 5000)), partitions=3)
    now = counted(5001)
    assert 0.4 < now.dropped / 4000 < 0.6
    eventually(lambda: written(brief, "q") == now.processed - 1, what=brief.status)
    shed = rows(brief, "q")
    for topic, came in ((one, 2000), (two, 2000)):
        weights = [row["_weight"] for row in shed if row["_topic"] == topic and row["id"] >= 1000]
        assert sum(weights) == pytest.approx(came, rel=0.2)
    with pytest.raises(ApplicationError, check=breaks("one topic", option="--starting")):
        cell(brief, f"r --topic {one},{two} --schema 'id INT' --starting '{{\"0\": 1}}' -p 1", "source")


def test_topics_of_a_pattern_are_read_and_shed_as_they_come_and_state_is_kept(brief: Session, topic: str) -> None:
    """A group that was begun goes on when its query restarts for a new topic, is moved, and is declared again."""
    line = f"q --topic-pattern '{topic}-.*' --schema 'id BIGINT' --with topic --starting earliest -p 1 -a 0.1"
    body = "source.groupBy('_topic').agg(F.sum('_weight').alias('n'))"
    with pytest.raises(ApplicationError, check=breaks("matches", option="--topic-pattern")):
        cell(brief, line, body)
    names = [f"{topic}-{each}" for each in "bac"]
    with pytest.raises(ApplicationError):  # its rejects would be read
        cell(brief, f"{line} --malformed topic:{topic}-rejects", body)
    came = dict.fromkeys(names, 0)

    def send(name: str, many: int) -> None:
        produce(brief, name, ({"id": i} for i in range(many)))
        came[name] += many

    def counted() -> dict[str, float]:
        eventually(lambda: all_read(brief, "q", sum(came.values())), what=brief.status)
        return {row["_topic"]: row["n"] for row in rows(brief, "q")}

    def all_there() -> bool:
        return counted() == {name: many for name, many in came.items() if many}

    create_topics(brief.kafka, {names[0]: 1})
    send(names[0], 100)
    cell(brief, line, body)
    eventually(all_there, what=brief.status)
    create_topics(brief.kafka, {names[1]: 2})
    send(names[0], 50)
    send(names[1], 200)
    eventually(all_there, what=lambda: f"{counted()} of {came}: {brief.status()}")
    there = instances(brief, "q")[0].task_manager
    brief.move("q.1", next(id for id, each in brief.runtime.task_managers.items() if each is not there))
    cell(brief, line, body)
    create_topics(brief.kafka, {names[2]: 1})
    brief.pause()
    turn(brief, {(None, "q"): 0.5})
    eventually(lambda: names[2] in {each.topic for each in brief.runtime.metrics.rows()}, what=brief.status)
    send(names[2], 2000)
    found = counted()
    now = count(brief, "q")
    assert now.arrived == now.processed + now.dropped == sum(came.values())
    assert 0.4 < now.dropped / 2000 < 0.6
    assert {name: found[name] for name in names[:2]} == {name: came[name] for name in names[:2]}
    eventually(lambda: counted()[names[2]] == pytest.approx(2000, rel=0.15), what=brief.status)
    assert not brief.runtime.incomplete.lost_at


def test_a_topic_of_a_pattern_that_is_deleted_is_read_no_more_and_its_rows_are_counted(
    brief: Session, topic: str
) -> None:
    """The query goes on with the others and with its state; rows that nobody read are told."""
    names = [f"{topic}-{each}" for each in "abc"]
    create_topics(brief.kafka, dict.fromkeys(names, 1))
    line = f"q --topic-pattern '{topic}-.*' --schema 'id BIGINT' --with topic --starting earliest -p 1 --trigger 8"
    cell(brief, line, "source.groupBy('_topic').agg(F.count('*').alias('n'))", F=F)

    def counts() -> dict[str, int]:
        found: dict[str, int] = {}
        for row in rows(brief, "q"):
            found[row["_topic"]] = max(row["n"], found.get(row["_topic"], 0))
        return found

    for name in names:
        produce(brief, name, ({"id": i} for i in range(100)))
    eventually(lambda: counts() == dict.fromkeys(names, 100), what=brief.status)
    produce(brief, names[1], ({"id": i} for i in range(70)))  # in the pause between two batches
    eventually(lambda: count(brief, "q").arrived == 370, every_s=0.05, what=brief.status)
    read = counts().get(names[1], 0)
    delete_topics(brief.kafka, [names[1]])
    eventually(lambda: f"topic {names[1]} was deleted" in brief.status(), what=brief.status)
    produce(brief, names[2], ({"id": i} for i in range(50)))
    eventually(lambda: counts().get(names[2]) == 150, what=brief.status)
    books = count(brief, "q")
    unread = 70 - (counts()[names[1]] - 100)
    assert read <= counts()[names[1]] <= 170
    assert (books.arrived, books.processed, books.unreported) == (420, 420 - unread, unread)
    assert counts()[names[0]] == 100
    create_topics(brief.kafka, {names[1]: 1})
    produce(brief, names[1], ({"id": i} for i in range(30)))
    eventually(lambda: counts()[names[1]] == 200 - unread, what=brief.status)
    books = count(brief, "q")
    assert (books.arrived, books.processed, books.unreported) == (450, 450 - unread, unread)


def test_options_of_json_decide_what_fits(brief: Session, topic: str) -> None:
    line = f"q --topic {topic} --schema 'a INT, at TIMESTAMP' --starting earliest -p 1 --json-option"
    for option in ("timestampFormat=bbbb", "allowComments=perhaps", "timeZone=Nowhere"):
        with pytest.raises(ApplicationError, check=breaks(name=None)):
            cell(brief, f"{line} {option}", "source")
    cell(brief, f"{line} 'timestampFormat=dd.MM.yyyy HH:mm' allowComments=true", "source")
    values = [b'{"a": 1, "at": "03.02.2026 10:30"} // a note', b'{"a": 2, "at": "2026-02-03T10:30:00"}', b'{"a": 3}']
    send(brief, topic, values)
    settled(brief, "q", 3)
    eventually(lambda: "1 value is not JSON of its schema" in brief.status(), what=brief.status)
    found = {row["a"]: row["at"] for row in rows(brief, "q")}
    assert found.keys() == {1, 3}
    assert (found[1].day, found[1].month, found[1].minute) == (3, 2, 30)


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
    eventually(lambda: tells(brief.status(), 2, "a > 0", "dropped"), what=brief.status)
    assert tells(brief.status(), 2, "a < 3", "kept")
    eventually(lambda: sorted(row["a"] for row in rows(brief, "q")) == [1, 2, 3, 4], what=brief.status)
    cell(brief, f"f --topic {topic} --schema 'a INT' --starting earliest -p 1 --expect 'a < 3:fail'", "source")
    eventually(lambda: "a row breaks the rule a < 3" in brief.status(), what=brief.status)
    assert books(brief).get("f", Count()).processed < 6
