"""A warm-up on a server that hangs. On servers that answer: tests/live."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.spark.queries import warm_up as module
from tests.spark.stand_ins import BOARD


class Hanging:
    """The query of a warm-up, whose server answers nothing once it has started."""

    run_id, mode = "r", "micro-batch"

    def __init__(self, *_: Any) -> None:
        """Of nothing."""

    def start(self, *_: Any) -> None:
        """At once."""

    def failed(self) -> str | None:
        GATE.wait(30)
        return None

    poll = stop = failed


GATE = threading.Event()


@pytest.fixture(autouse=True)
def gate() -> Iterator[None]:
    GATE.clear()
    yield
    GATE.set()


@pytest.mark.parametrize("whole_batch", [False, True])
def test_one_that_hangs_is_given_up(whole_batch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("create_topics", "delete_topics"):
        monkeypatch.setattr(module, name, lambda *_, **__: None)
    monkeypatch.setattr(module, "Producer", lambda _: SimpleNamespace(produce=lambda *_: None, flush=lambda _: None))
    monkeypatch.setattr(module, "Instance", Hanging)
    monkeypatch.setattr(module, "_has_rows", lambda *_: False)
    within = module.call_within
    monkeypatch.setattr(module, "call_within", lambda call, timeout_s, what: within(call, min(timeout_s, 0.1), what))
    manager: Any = SimpleNamespace(id="tm2", kind="local", works_on=lambda _: None)
    kafka: Any = SimpleNamespace(own_retention=None, client_config=dict, spark_options=dict)
    with pytest.raises(TaskManagerError, match="warming tm2 up did not answer"):
        module.warm_up(manager, kafka, BOARD, "/nowhere", 0.1, whole_batch=whole_batch)
