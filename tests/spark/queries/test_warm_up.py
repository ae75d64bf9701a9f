"""A warm-up on a server that hangs. On servers that answer: tests/live."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.spark.queries.warm_up import warm_up
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
