"""Names of the topics that sessions make for themselves, and of consumer groups."""

from __future__ import annotations

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.kafka import topics
from qod_magics.kafka.cluster import ExternalKafka
from qod_magics.kafka.names import check_prefix, is_of, is_own, own_topic, session_of
from qod_magics.sources.source import matching
from tests.kafka.fakes import FakeKafka
from tests.raising import breaks


@pytest.mark.parametrize("prefix", ["", "team-x.", "x"])
@pytest.mark.parametrize("session", ["0a1b2c", "night-0a1b2c"])
def test_a_sessions_own_topics_are_known_whatever_the_prefix(prefix: str, session: str) -> None:
    name = own_topic(prefix, session, "trips.fares.1")
    assert is_own(name)
    assert matching(".*", [name, "trips", "team-x.trips"]) == ["team-x.trips", "trips"]
    assert session_of(prefix, name) == (session if session == "0a1b2c" else None), "those of named sessions stay"
    assert session_of(f"{prefix}y", name) is None


@pytest.mark.parametrize(
    "name", ["qod.0a1b2c.trips.out.12", "x.qod.0a1b2c.tm1.dials", "qod.0a1b2c.tm1.warm.out", "qod.n-0a1b2c.alive"]
)
def test_topics_of_each_form_are_a_sessions(name: str) -> None:
    assert is_own(name)
    assert is_of(name.split("qod.")[1].split(".")[0], name)


@pytest.mark.parametrize(
    "name",
    [
        *("trips", "mqod.trips", "team-x.qod", "team-x.qod.trips", "team.qod.0a1b2c", "qod.orders", "qod.clean"),
        *("prod.qod.orders-decade.v1", "x.qod.0a1b2c.y", "x.qod.word-0a1b2c.y"),
    ],
)
def test_other_topics_are_the_users(name: str) -> None:
    assert not is_own(name)
    assert matching(".*", [name]) == [name]
    assert not any(is_of(session, name) for session in ("", "d41d8c", "night-d41d8c"))


@pytest.mark.parametrize("prefix", ["a b", "x/", "x" * 81, "__x"])
def test_a_prefix_that_kafka_does_not_allow_is_refused(prefix: str) -> None:
    with pytest.raises(UsageProblem, check=breaks("name", value=prefix)):
        check_prefix(prefix)


def test_a_prefix_begins_the_names_of_consumer_groups() -> None:
    assert ExternalKafka("host:1", None, "team-x.").spark_options()["groupIdPrefix"].startswith("team-x.")
    assert "groupIdPrefix" not in ExternalKafka("host:1").spark_options()


def test_topics_of_another_prefix_are_not_swept() -> None:
    kafka = FakeKafka(dict.fromkeys(("qod.aaaaaa.alive", "team-x.qod.bbbbbb.alive", "team-x.qod.bbbbbb.src"), 1))
    kafka.prefix = "team-x."
    for topic in kafka.topics.values():
        topic[0].beat_s = 0.0
    assert topics.sweep(kafka) == {"bbbbbb": 2}
    assert [*kafka.topics] == ["qod.aaaaaa.alive"]
