"""What a consumer may hold of the topics that an instance reads, and on which cluster a topic is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.errors import KafkaError, UsageProblem
from qod_magics.kafka.broker import check_internal
from qod_magics.kafka.properties import FETCHED_BY_ALL, LEAST_FETCHED, fetch_options
from qod_magics.sources.kafka import KafkaSource
from qod_magics.sources.source import Context
from tests.kafka.fakes import FakeKafka
from tests.raising import breaks


@given(st.integers(0, 10_000))
def test_many_partitions_hold_no_more_than_the_default_or_their_share(partitions: int) -> None:
    fetched = int(fetch_options(partitions)["kafka.max.partition.fetch.bytes"])
    assert fetched >= LEAST_FETCHED
    assert fetched * partitions <= max(FETCHED_BY_ALL, LEAST_FETCHED * partitions)


def test_where_a_cluster_is_only_read_the_sessions_own_topics_are_on_its_broker() -> None:
    own, users = FakeKafka(), FakeKafka({"trips": 2})
    own.create("qod.s.trips.q.1", 3)
    users.set_ends("trips", {0: 5, 1: 7})
    source = KafkaSource(Context(own, read=users))  # type: ignore[arg-type]
    assert (source.splits("trips"), source.splits("qod.s.trips.q.1")) == (2, 3)
    assert source.begin("trips", "latest") == {0: 5, 1: 7}
    ends, missing = source.ends(["trips", "qod.s.trips.q.1", "none"])
    assert ends.keys() == {"trips", "qod.s.trips.q.1"}
    assert missing.keys() == {"none"}
    alone = KafkaSource(Context(users))  # type: ignore[arg-type]
    assert alone.splits("trips") == 2
    with pytest.raises(KafkaError):
        alone.splits("qod.s.trips.q.1")


def test_a_broker_that_is_only_read_is_named_and_its_session_has_no_name() -> None:
    check_internal(True, "host:9092", None)
    check_internal(False, None, "night")
    with pytest.raises(UsageProblem, check=breaks("own broker")):
        check_internal(True, None, None)
    with pytest.raises(UsageProblem, check=breaks("no name")):
        check_internal(True, "host:9092", "night")
