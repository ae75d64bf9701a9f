"""What the reader of a topic's newest records makes of errors, by a scripted client. On a real broker: tests/live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError

from qod_magics.errors import KafkaError
from qod_magics.kafka.reading import Tail
from tests.kafka.fakes import FakeKafka, problem
from tests.kafka.fakes import record as fake_record

Script = list[list[Any]]


def record(offset: int) -> Any:
    return fake_record(offset, str(offset).encode())


class Scripted(FakeKafka):
    """A topic with one partition, whose end offset is 5; its consumer returns these messages, a list by call."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.create("t", end=5)
        self.script = script

    def consumer(self, config: Mapping[str, Any]) -> Any:
        made: Any = super().consumer(config)
        made.consume = lambda *_: self.script.pop(0)
        return made

    @property
    def begin(self) -> int:
        """The offset that a consumer was assigned last."""
        (last,) = self.consumers[-1].assigned[-1].values()
        return last


@pytest.fixture
def script() -> Script:
    return []


@pytest.fixture
def kafka(script: Script) -> Iterator[Scripted]:
    yield Scripted(script)
    assert not script


def offsets(made: Tail) -> list[int]:
    return [int(each.value) for each in made.read().records]


def test_rows_are_read_without_rights_on_a_group(kafka: Scripted, script: Script) -> None:
    script.append([problem(ClientError.GROUP_AUTHORIZATION_FAILED), *map(record, range(5))])
    assert offsets(Tail(kafka, "t", 100)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("options", "group"), [({}, "qod-show"), ({"group.id": "mine"}, "mine")])
def test_the_users_group_is_named_if_there_is_one(
    options: dict[str, Any], group: str, kafka: Scripted, script: Script
) -> None:
    script.append([record(4)])
    kafka.options = options
    Tail(kafka, "t", 100).read()
    assert kafka.consumers[-1].config["group.id"] == group


def test_what_was_read_before_a_failure_is_read_again(kafka: Scripted, script: Script) -> None:
    script.extend([[record(0), record(1), problem(ClientError._ALL_BROKERS_DOWN)], [*map(record, range(5))]])
    made = Tail(kafka, "t", 100)
    with pytest.raises(KafkaError) as caught:
        made.read()
    cause = caught.value.__cause__
    assert cause is not None
    assert cause.args[0].code() == ClientError._ALL_BROKERS_DOWN
    assert offsets(made) == [0, 1, 2, 3, 4]
    assert kafka.begin == 0


def test_records_behind_the_end_that_a_lagging_replica_has_are_read_later(kafka: Scripted, script: Script) -> None:
    end = ClientError._PARTITION_EOF
    script.extend([[record(0), record(1), record(2), problem(end, 3)], [record(3), record(4)]])
    made = Tail(kafka, "t", 100)
    assert offsets(made) == [0, 1, 2]
    assert offsets(made) == [3, 4]
    assert kafka.begin == 3


def test_offsets_without_records_before_the_end_are_passed_over(kafka: Scripted, script: Script) -> None:
    script.append([record(0), problem(ClientError._PARTITION_EOF, 5)])
    made = Tail(kafka, "t", 100)
    assert offsets(made) == [0]
    assert offsets(made) == [], "nothing waits"
