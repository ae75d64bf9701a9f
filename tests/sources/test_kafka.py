"""What a consumer may hold of the topics that an instance reads, and on which cluster a topic is."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.errors import KafkaError, QodError, UsageProblem
from qod_magics.kafka.clusters import Clusters
from qod_magics.kafka.names import own_topic
from qod_magics.kafka.properties import FETCHED_BY_ALL, LEAST_FETCHED, fetch_options
from qod_magics.sources.kafka import KafkaSource
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Context
from qod_magics.spark.metrics.metrics import ends_of
from tests.kafka.fakes import FakeKafka, failure
from tests.raising import breaks


@given(st.integers(0, 10_000))
def test_many_partitions_hold_no_more_than_the_default_or_their_share(partitions: int) -> None:
    fetched = int(fetch_options(partitions)["kafka.max.partition.fetch.bytes"])
    assert fetched >= LEAST_FETCHED
    assert fetched * partitions <= max(FETCHED_BY_ALL, LEAST_FETCHED * partitions)


def test_with_a_second_cluster_the_sessions_own_topics_are_there() -> None:
    own, users = FakeKafka(), FakeKafka({"trips": 2})
    own.create("qod.s.trips.q.1", 3)
    users.set_ends("trips", {0: 5, 1: 7})
    source = KafkaSource(Context(own, users=users, session="s"))  # type: ignore[arg-type]
    assert (source.splits("trips"), source.splits("qod.s.trips.q.1")) == (2, 3)
    assert source.begin("trips", "latest") == {0: 5, 1: 7}
    ends, missing = source.ends(["trips", "qod.s.trips.q.1", "none"])
    assert ends.keys() == {"trips", "qod.s.trips.q.1"}
    assert missing.keys() == {"none"}


@pytest.mark.parametrize("topic", ["qod.orders", "prod.qod.orders-decade.v1", "qod.0a1b2c.trips.out.1"])
def test_topics_that_are_called_like_those_of_a_session_are_the_users(topic: str) -> None:
    own, users = FakeKafka(), FakeKafka({topic: 2})
    context = Context(own, users=users, session="d41d8c")  # type: ignore[arg-type]
    assert KafkaSource(context).splits(topic) == 2
    for prefix in ("", "team-x.", "earlier."):
        assert context.of(own_topic(prefix, "d41d8c", "trips.out.1")) is own


def test_where_one_of_two_clusters_is_silent_its_topics_are_missing() -> None:
    own, users = FakeKafka({"qod.s.trips.q.1": 1}), FakeKafka({"trips": 1})
    own.bootstrap = "own:1"
    sources = Sources(Context(own, users=users, session="s"))
    topics = ["trips", "qod.s.trips.q.1"]

    def refuse(operation: str, topic: str) -> None:
        raise failure(ClientError._TRANSPORT)

    answers = own.fail
    own.fail = refuse
    ends = ends_of(sources, topics)
    assert (ends.found.keys(), ends.missing.keys(), ends.silent.keys()) == ({"trips"}, {topics[1]}, {"own:1"})
    assert "own:1" in ends.missing[topics[1]]
    for read in (["trips"], []):
        ends = ends_of(sources, read)
        assert (ends.missing, ends.silent.keys(), ends.unread) == ({}, {"own:1"}, None), "it may be written to"
    users.fail = refuse
    assert ends_of(sources, []).unread is None
    assert ends_of(sources, topics).unread is not None
    own.fail = users.fail = answers
    ends = ends_of(sources, topics)
    assert (ends.missing, ends.silent, ends.unread) == ({}, {}, None)


def test_a_broker_without_a_second_has_all_topics() -> None:
    users = FakeKafka({"trips": 2})
    alone = KafkaSource(Context(users))  # type: ignore[arg-type]
    assert alone.splits("trips") == 2
    with pytest.raises(KafkaError):
        alone.splits("qod.s.trips.q.1")


def test_the_clusters_of_a_session_are_one_or_two() -> None:
    for alone in (Clusters.of(None, None), Clusters.of("host:9092", {"client.id": "x"})):
        assert (alone.internal, alone.own, alone.all) == (None, alone.users, (alone.users,))
    assert Clusters.of(None, None, cpus={0}).embedded is not None
    assert Clusters.of("host:9092", None).embedded is None

    started = Clusters.of("host:9092", {}, "own", cpus={0})
    assert started.embedded is started.own is started.internal
    assert started.users.bootstrap == "host:9092"

    named = Clusters.of("host:9092", {"client.id": "x"}, "second:1", {"client.id": "y"})
    assert [each.bootstrap for each in named.all] == ["host:9092", "second:1"]
    assert [each.client_config()["client.id"] for each in named.all] == ["x", "y"]
    assert named.embedded is None


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"bootstrap": None, "options": None, "internal": "own"}, "own broker"),
        ({"bootstrap": "host:1", "options": None, "internal_options": {"client.id": "x"}}, "own broker"),
        ({"bootstrap": "host:1", "options": None, "internal": "own", "internal_options": {"a": "x"}}, "own broker"),
        ({"bootstrap": "host:1", "options": None, "internal": "two:2", "cpus": {0}}, "embedded broker"),
        ({"bootstrap": "host:1", "options": None, "internal": "yes"}, "host:port"),
        ({"bootstrap": "host:1", "options": None, "internal": True}, "host:port"),
        ({"bootstrap": "a:1,host:1", "options": None, "internal": "Host:1, b:1"}, "another broker"),
    ],
)
def test_options_of_a_second_cluster_that_lack_another_are_refused(given: Any, rule: str) -> None:
    with pytest.raises(QodError, check=breaks(rule)):
        Clusters.of(**given)


def test_one_cluster_under_two_addresses_is_refused_once_it_answers() -> None:
    users, own = FakeKafka(), FakeKafka()
    own.id = "two"
    clusters = Clusters(users, own)
    assert clusters.access() is clusters
    own.id = users.id
    with pytest.raises(UsageProblem, check=breaks("another broker")):
        clusters.access()
    own.id = users.id = ""  # neither says which it is
    assert clusters.access() is clusters
