"""The runtime's own threads do not get into each other's way."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.spark import runtime as module
from qod_magics.spark.books import Account
from qod_magics.spark.bounded import gather
from qod_magics.spark.runtime import SparkRuntime


class Kafka:
    """Has no topic, and is asked for none."""

    def spark_options(self) -> dict[str, str]:
        return {}


@pytest.fixture
def runtime() -> Iterator[SparkRuntime]:
    made = SparkRuntime(Kafka(), "s", "/nowhere", lambda homeless, managers, running: {})  # type: ignore[arg-type]
    yield made
    made.close()


def test_answers_about_offsets_never_overtake_each_other(
    runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lower offset after a higher one would look like a topic made anew, and its rate would be forgotten."""
    asked, busy, together = itertools.count(), threading.Lock(), []

    def end_offsets(*_: Any, **__: Any) -> dict[str, dict[int, int]]:
        together.append(not busy.acquire(blocking=False))
        now = next(asked)
        time.sleep(0.02 if now % 2 else 0.0)
        if not together[-1]:
            busy.release()
        return {"t": {0: 1000 + now}}

    monkeypatch.setattr(module, "end_offsets", end_offsets)
    runtime.deployment.accounts["S"] = Account("t", {0: 0})
    gather({str(i): runtime._sample for i in range(8)}, 10.0)
    assert len(together) >= 8
    assert not any(together)
    runtime.deployment.accounts.clear()


def test_a_task_manager_that_comes_after_the_end_is_refused(runtime: SparkRuntime) -> None:
    runtime.close()

    class Late:
        id = "tm9"

    with pytest.raises(TaskManagerError, match="'tm9' came too late"):
        runtime.add_task_manager(Late())  # type: ignore[arg-type]


def test_without_task_managers_there_is_nothing_to_observe(runtime: SparkRuntime) -> None:
    with pytest.raises(TaskManagerError, match="add-tm"):
        runtime.observe()
