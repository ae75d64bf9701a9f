"""What the reader of a topic's newest records makes of errors, by a scripted client. On a real broker: tests/live."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError

from qod_magics.errors import KafkaError
from qod_magics.kafka import reading
from qod_magics.kafka.reading import Tail

Script = list[list[Any]]


def record(offset: int) -> Any:
    return SimpleNamespace(
        error=lambda: None,
        partition=lambda: 0,
        offset=lambda: offset,
        key=lambda: None,
        value=lambda: str(offset).encode(),
        timestamp=lambda: (1, offset),
        headers=lambda: None,
    )


def failure(code: int, offset: int = -1001) -> Any:
    return SimpleNamespace(error=lambda: ClientError(code), partition=lambda: 0, offset=lambda: offset)


class Scripted:
    """A consumer that returns these messages, a list by call; its options, and the offset that it was assigned last."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.options: dict[str, Any] = {}
        self.begin = -1

    def made(self, options: dict[str, Any], **_: Any) -> Scripted:
        self.options = options
        return self

    def assign(self, places: list[Any]) -> None:
        (place,) = places
        self.begin = place.offset

    def unassign(self) -> None:
        pass

    def consume(self, *_: Any) -> list[Any]:
        return self.script.pop(0)


@pytest.fixture
def script() -> Script:
    return []


@pytest.fixture
def consumer(script: Script, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    """Of a topic with one partition, whose end offset is 5."""
    made = Scripted(script)
    monkeypatch.setattr(reading, "Consumer", made.made)
    monkeypatch.setattr(reading, "end_offsets", lambda *_, **__: {"t": {0: 5}})
    monkeypatch.setattr(reading, "beginning_offsets", lambda *_, **__: {"t": {0: 0}})
    yield made
    assert not script


def tail_of(**options: Any) -> Tail:
    kafka: Any = SimpleNamespace(client_config=lambda: options)
    return Tail(kafka, "t", 100)


def offsets(made: Tail) -> list[int]:
    return [int(each.value) for each in made.read().records]


def test_rows_are_read_without_rights_on_a_group(consumer: Scripted, script: Script) -> None:
    script.append([failure(ClientError.GROUP_AUTHORIZATION_FAILED), *map(record, range(5))])
    assert offsets(tail_of()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("options", "group"), [({}, "qod-show"), ({"group.id": "mine"}, "mine")])
def test_the_users_group_is_named_if_there_is_one(
    options: dict[str, Any], group: str, consumer: Scripted, script: Script
) -> None:
    script.append([record(4)])
    tail_of(**options).read()
    assert consumer.options["group.id"] == group


def test_what_was_read_before_a_failure_is_read_again(consumer: Scripted, script: Script) -> None:
    script.extend([[record(0), record(1), failure(ClientError._ALL_BROKERS_DOWN)], [*map(record, range(5))]])
    made = tail_of()
    with pytest.raises(KafkaError, match="Kafka returned no records of 't'"):
        made.read()
    assert offsets(made) == [0, 1, 2, 3, 4]
    assert consumer.begin == 0


def test_records_behind_the_end_that_a_lagging_replica_has_are_read_later(consumer: Scripted, script: Script) -> None:
    end = ClientError._PARTITION_EOF
    script.extend([[record(0), record(1), record(2), failure(end, 3)], [record(3), record(4)]])
    made = tail_of()
    assert offsets(made) == [0, 1, 2]
    assert offsets(made) == [3, 4]
    assert consumer.begin == 3


def test_offsets_without_records_before_the_end_are_passed_over(consumer: Scripted, script: Script) -> None:
    script.append([record(0), failure(ClientError._PARTITION_EOF, 5)])
    made = tail_of()
    assert offsets(made) == [0]
    assert offsets(made) == [], "nothing waits"
