"""The user's Kafka, on which a session makes no topic of its own, and a second one that has these."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from qod_magics.application.streams.sink import KafkaTopic
from qod_magics.errors import KafkaError, QodError, UsageProblem
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.topics import create_topics, topic_partitions
from qod_magics.session.results import QueryResults
from qod_magics.session.session import Session
from tests.live.conftest import eventually, server_of
from tests.live.guarded import READS, WRITES, GuardedBroker, running
from tests.raising import breaks

SCHEMA = "n LONG, zone INT, at TIMESTAMP"
ZONES = 3
#: Topics that the login may read: one for each test, and one that is only looked at.
READABLE = ("alone", "both", "night", "sealed")


@pytest.fixture
def users() -> Iterator[GuardedBroker]:
    """The user's Kafka: a login that may read some topics, write to sums, and does not see other."""
    made = GuardedBroker()
    with running(made):
        create_topics(made, {"sums": 1, "other": 1, **dict.fromkeys(READABLE, 2)})
        for topic in READABLE:
            made.allow(topic, *READS)
        made.allow("sums", *WRITES)
        yield made


def send(broker: EmbeddedBroker, topic: str, numbers: Iterable[int]) -> None:
    """Write rows to a topic, as one who may."""
    producer = Producer(broker.client_config())
    for n in numbers:
        row = {"n": n, "zone": n % ZONES, "at": "2026-01-01T00:00:00Z"}
        producer.produce(topic, json.dumps(row).encode(), partition=n % 2)
    assert producer.flush(30.0) == 0


def test_a_broker_that_may_only_be_read_gets_no_topic(cluster: Session, users: GuardedBroker) -> None:
    """With Read and Describe on one topic, two streams apart from each other run; their topics are elsewhere."""
    before = topic_partitions(users)
    there: dict[str, Any] = {"task_managers": 0, "connect": [server_of(cluster).url], **users.reader}
    with Session.up(**there, period_s=2.0, internal_kafka="own") as session:
        session.stream("trips", topic="alone", schema=SCHEMA, fuse=False)
        sql = "SELECT window(at, '10 seconds') AS w, zone, sum(_weight) AS n FROM trips GROUP BY 1, 2"
        session.stream("per_zone", sql, priority=1, min_accuracy=0.4)
        send(users, "alone", range(1000))
        eventually(lambda: session.status() and _sums(session, "per_zone", "zone", "n") == 1000, what=session.status)
        exact = session.exact("per_zone", "2026-01-01T00:00", "2026-01-01T00:01", margin_s=1e8)
        assert [group.exact["n"] for group in exact.groups] == [334, 333, 333]
        with pytest.raises(UsageProblem, check=breaks("writes")):
            session.send("alone", [{"zone": 1}])
        with pytest.raises(UsageProblem, check=breaks("writes")):
            session.inject({})
        with pytest.raises(QodError):
            session.stream("none", topic="other", schema=SCHEMA, priority=1)
        assert set(session.topics()) == {"sums", *READABLE}
        assert topic_partitions(users) == before
    assert topic_partitions(users) == before


def _sums(session: Session, name: str, group: str, column: str) -> float:
    """The newest values of each group, added up."""
    return sum(row[1] for row in session.results(name).groupBy(group).max(column).collect())


def test_sinks_write_to_the_users_broker_and_the_loss_of_either_loses_no_row(
    cluster: Session, users: GuardedBroker
) -> None:
    second = EmbeddedBroker()
    with running(second):
        there: dict[str, Any] = {"task_managers": 0, "connect": [server_of(cluster).url], **users.reader}
        own = {"internal_kafka": second.bootstrap, "internal_kafka_options": second.credentials}
        before = topic_partitions(users)
        with Session.up(**there, **own, period_s=2.0) as session:
            session.stream("trips", topic="both", schema=SCHEMA, fuse=False)
            sql = "SELECT window(at, '10 seconds') AS w, zone, count(*) AS n FROM trips GROUP BY 1, 2"
            session.stream("sums", sql, priority=1, sink="kafka:sums")
            session.stream("seen", "SELECT n FROM trips", priority=1)
            check_refusals(session)

            def seen() -> set[int]:
                return {row.n for row in session.results("seen").collect()}

            rows = 300
            send(users, "both", range(rows))
            eventually(lambda: seen() == set(range(rows)), what=session.status)
            results = QueryResults(session, "sums")
            eventually(lambda: newest(results) == dict.fromkeys(range(ZONES), rows // ZONES), what=session.status)
            exact = session.exact("sums", "2026-01-01T00:00", "2026-01-01T00:01", margin_s=1e8)
            assert exact.beside, "the rows in the user's topic were read"
            counts = [(group.exact["n"], group.written and group.written["n"]) for group in exact.groups]
            assert counts == [(rows // ZONES, rows // ZONES)] * ZONES
            assert {name.split(".")[1] for name in topic_partitions(second)} == {session.id}
            for number, lost in enumerate((users, second), 1):
                lost.kill()
                eventually(lambda: "does not answer" in session.status(), what=session.status)
                lost.restart()
                send(users, "both", range(number * rows, (number + 1) * rows))
                every = set(range((number + 1) * rows))
                eventually(lambda: seen() == every, what=session.status)  # noqa: B023
            assert topic_partitions(users) == before
        assert topic_partitions(users) == before
        assert topic_partitions(second) == {}


def test_a_session_with_a_name_finds_its_own_topics_again(
    cluster: Session, users: GuardedBroker, tmp_path: Path
) -> None:
    """The broker that it starts has them in its directory; rows that came in between are counted."""
    there: dict[str, Any] = {"task_managers": 0, "connect": [server_of(cluster).url], **users.reader}
    named: dict[str, Any] = {"internal_kafka": "own", "name": "night", "checkpoints": str(tmp_path)}
    rows, made = 300, []
    for number in (1, 2):
        with Session.up(**there, **named, period_s=2.0) as session:
            session.stream("trips", topic="night", schema=SCHEMA, fuse=False)
            session.stream("counts", "SELECT zone, count(*) AS n FROM trips GROUP BY zone", priority=1)
            if number == 1:
                send(users, "night", range(rows))
            eventually(lambda: _sums(session, "counts", "zone", "n") == number * rows, what=session.status)  # noqa: B023
            made.append(set(topic_partitions(session.runtime.kafka)))
        send(users, "night", range(rows))
    assert made[0] == made[1] != set()


def newest(results: QueryResults) -> Mapping[int, int]:
    """The newest count of each zone in the user's topic."""
    return {row["zone"]: row["n"] for row in results.read().rows.values()}


def check_refusals(session: Session) -> None:
    """A topic that the login does not see or may not write to is refused before anything runs, and none is made."""
    for topic, rule in (("other", "exists"), ("sealed", "writes")):
        with pytest.raises(KafkaError, check=breaks(rule, name=topic)):
            session.stream("bad", "SELECT n FROM trips", priority=1, sink=f"kafka:{topic}")
    with pytest.raises(KafkaError):
        session.stream("bad", "SELECT n FROM trips", priority=1, sink=KafkaTopic("new", 2))
    assert "bad" not in session.application
