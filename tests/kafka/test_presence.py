"""The end of a session's presence, with a broker that is a set of topics. On a real one: tests/live."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.errors import KafkaError
from qod_magics.kafka import presence
from qod_magics.kafka.presence import Presence


@pytest.mark.parametrize(
    ("others", "left"),
    [
        ([], []),
        (["qod.bbbbbb.alive", "qod.bbbbbb.src", "trips"], ["qod.bbbbbb.alive", "qod.bbbbbb.src", "trips"]),
        (["qod.aaaaaa.src"], ["qod.aaaaaa.alive", "qod.aaaaaa.src"]),
    ],
)
def test_the_mark_of_a_session_goes_last(others: list[str], left: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, nobody would find what its session could not delete."""
    topics = {"qod.aaaaaa.alive", *others}
    monkeypatch.setattr(presence, "create_topics", lambda *_, **__: None)
    monkeypatch.setattr(presence, "topic_partitions", lambda *_, **__: dict.fromkeys(topics, 1))
    monkeypatch.setattr(presence, "delete_topics", lambda _, names, **__: topics.difference_update(names))
    monkeypatch.setattr(Presence, "_run", lambda _: None)
    kafka: Any = None
    made = Presence(kafka, "aaaaaa")
    made.begin()
    made.end()
    assert sorted(topics) == left


def test_the_mark_of_a_dead_session_stays_where_another_topic_can_not_be_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics = {"qod.aaaaaa.alive", "qod.aaaaaa.src"}

    def delete(_: Any, names: list[str], **__: Any) -> None:  # asked for all at once, the broker deletes what it can
        topics.difference_update(set(names) - {"qod.aaaaaa.src"})
        if "qod.aaaaaa.src" in names:
            raise KafkaError("no permission")

    monkeypatch.setattr(presence, "topic_partitions", lambda *_, **__: dict.fromkeys(topics, 1))
    monkeypatch.setattr(presence, "delete_topics", delete)
    monkeypatch.setattr(presence, "_last_beat", lambda *_: 0.0)
    kafka: Any = None
    with pytest.raises(KafkaError, match="no permission"):
        presence.sweep(kafka)
    assert topics == {"qod.aaaaaa.alive", "qod.aaaaaa.src"}
    topics |= {"qod.bbbbbb.alive", "qod.bbbbbb.src"}
    with pytest.raises(KafkaError, match="no permission"):
        presence.sweep(kafka)
    assert topics == {"qod.aaaaaa.alive", "qod.aaaaaa.src"}, "one failure keeps no other dead session's topics"
