"""A warm-up on a server that hangs. On servers that answer: tests/live."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.machine.releases import SPARK_VERSION
from qod_magics.spark.queries.warm_up import check_kafka, warm_up
from tests.kafka.fakes import FakeKafka
from tests.spark.fakes import BOARD


class Hanging:
    """The query of a warm-up, whose server answers nothing once it has started."""

    run_id, mode = "r", "micro-batch"

    def __init__(self) -> None:
        self.stopped = False

    def start(self, *_: Any, **__: Any) -> None:
        """At once."""

    def failed(self) -> str | None:
        GATE.wait(30)
        return None

    poll = failed

    def stop(self) -> None:
        self.stopped = True


GATE = threading.Event()


@pytest.fixture(autouse=True)
def gate() -> Iterator[None]:
    GATE.clear()
    yield
    GATE.set()


@pytest.mark.parametrize("whole_batch", [False, True])
def test_one_that_hangs_is_given_up(whole_batch: bool) -> None:
    manager: Any = SimpleNamespace(id="tm2", kind="local", works_on=lambda _: None)
    kafka, query = FakeKafka(), Hanging()
    with pytest.raises(TaskManagerError) as caught:
        warm_up(manager, kafka, BOARD, "/nowhere", 0.1, whole_batch=whole_batch, query=lambda *_: query)  # type: ignore[arg-type, return-value]
    assert caught.value.rule == "answers"
    assert query.stopped
    assert not kafka.topics


class Reader:
    """A session whose executors read what a topic of a cluster has, or raise."""

    version = SPARK_VERSION

    def __init__(self, kafka: FakeKafka, error: Exception | None = None, found: int | None = None) -> None:
        self.kafka, self.error, self.found = kafka, error, found
        self.read = self
        self.topic = ""

    def format(self, _: str) -> Reader:
        return self

    def options(self, *, subscribe: str, **_: str) -> Reader:
        self.topic = subscribe
        return self

    def load(self) -> Reader:
        return self

    def count(self) -> int:
        if self.error is not None:
            raise self.error
        return sum(self.kafka.ends(self.topic).values()) if self.found is None else self.found


def checked(**how: Any) -> FakeKafka:
    """The cluster after a check of its reader."""
    kafka = FakeKafka()
    manager: Any = SimpleNamespace(id="tm2", spark=Reader(kafka, **how), ask=lambda call, *_: call())
    try:
        check_kafka(manager, kafka, BOARD)  # type: ignore[arg-type]
    finally:
        assert not kafka.topics, "its topic is deleted"
    return kafka


def test_executors_that_read_a_row_can_be_used() -> None:
    (created, deleted) = checked().done
    assert created[1] == deleted[1]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"found": 0}, "got 0 of 1 row"),
        ({"error": ValueError("Failed to find data source: kafka. See ...")}, "no Kafka connector"),
        ({"error": ValueError("SASL authentication failed")}, "SASL authentication failed"),
        ({"error": TaskManagerError("reading a topic did not answer", rule="answers")}, "did not answer"),
    ],
)
def test_executors_that_read_none_are_refused_in_one_line(how: dict[str, Any], says: str) -> None:
    with pytest.raises(TaskManagerError) as caught:
        checked(**how)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.rule in ("reads topics", None)
