"""The end of a session's presence, with a broker that is a set of topics. On a real one: tests/live."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError as ClientError

from qod_magics.errors import KafkaError
from qod_magics.kafka import topics
from qod_magics.kafka.topics import Presence
from tests.kafka.fakes import FakeKafka, failure


@pytest.mark.parametrize(
    ("others", "left"),
    [
        ([], []),
        (["qod.bbbbbb.alive", "qod.bbbbbb.src", "trips"], ["qod.bbbbbb.alive", "qod.bbbbbb.src", "trips"]),
        (["qod.aaaaaa.src"], ["qod.aaaaaa.alive", "qod.aaaaaa.src"]),
    ],
)
def test_the_mark_of_a_session_goes_last(others: list[str], left: list[str]) -> None:
    """Without it, nobody would find what its session could not delete."""
    kafka = FakeKafka(dict.fromkeys(others, 1))
    made = Presence(kafka, "aaaaaa")
    made.begin()
    assert "qod.aaaaaa.alive" in kafka.topics
    made.end()
    assert sorted(kafka.topics) == left


def test_the_mark_of_a_dead_session_stays_where_another_topic_can_not_be_deleted() -> None:
    def fail(operation: str, topic: str) -> None:
        if (operation, topic) == ("delete", "qod.aaaaaa.src"):
            raise failure(ClientError.TOPIC_AUTHORIZATION_FAILED)

    def sweep() -> None:
        with pytest.raises(KafkaError) as caught:
            topics.sweep(kafka)
        cause = caught.value.__cause__
        assert cause is not None
        assert cause.args[0].code() == ClientError.TOPIC_AUTHORIZATION_FAILED

    kafka = FakeKafka(dict.fromkeys(("qod.aaaaaa.alive", "qod.aaaaaa.src"), 1))
    kafka.fail = fail
    kafka.topics["qod.aaaaaa.alive"][0].beat_s = 0.0
    sweep()
    assert [*kafka.topics] == ["qod.aaaaaa.alive", "qod.aaaaaa.src"]
    for name in ("qod.bbbbbb.alive", "qod.bbbbbb.src"):
        kafka.create(name)
        kafka.topics[name][0].beat_s = 0.0
    sweep()
    assert [*kafka.topics] == ["qod.aaaaaa.alive", "qod.aaaaaa.src"], "one failure keeps no other dead session's topics"


@pytest.mark.parametrize("name", ["trips-abc123", "abcdef-abc123"])
def test_topics_of_a_named_session_stay_though_it_was_killed_long_ago(name: str) -> None:
    kafka = FakeKafka(dict.fromkeys((f"qod.{name}.alive", f"qod.{name}.src", "qod.bbbbbb.alive", "qod.bbbbbb.src"), 1))
    for topic in kafka.topics.values():
        topic[0].beat_s = 0.0
    assert topics.sweep(kafka) == {"bbbbbb": 2}
    assert [*kafka.topics] == [f"qod.{name}.alive", f"qod.{name}.src"]
