"""Moves by hand on a runtime whose task managers are stand-ins: whether they took place, and else what is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import State
from qod_magics.session.session import Session
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.runtime import SparkRuntime
from tests.kafka.fakes import FakeKafka
from tests.session.test_nodes import Manager
from tests.spark.fakes import instance
from tests.texts import tells

REFUSED = "T.1 can't start on tm2: no jar"


class Moving:
    """A session with T.1 on tm1, and a tm2."""

    def __init__(self) -> None:
        self.runtime = SparkRuntime(FakeKafka(), "s", "/nowhere")
        for id in ("tm1", "tm2"):
            self.runtime.add_task_manager(Manager(id))  # type: ignore[arg-type]
        self.one = instance(self.runtime.task_managers["tm1"])
        self.one.life.state = State.RUNNING
        self.runtime.cluster.instances["T.1"] = self.one
        self.session = object.__new__(Session)
        self.session.runtime = self.runtime

    def ends(self, where: str | None, state: State, failed: str = "", failure: str = "") -> None:
        """A move leaves the instance there."""

        def carry_out(one: Instance, *_: Any) -> str:
            one.task_manager = None if where is None else self.runtime.task_managers[where]
            one.life.move = None
            one.life.failure = failure
            one.life.state = state
            return failed

        self.runtime.mover.carry_out = carry_out  # type: ignore[method-assign]

    def refusal(self) -> str:
        with pytest.raises(TaskManagerError) as caught:
            self.session.move("T.1", "tm2")
        return str(caught.value)


@pytest.fixture
def moving() -> Iterator[Moving]:
    made = Moving()
    yield made
    made.runtime.cluster.instances.clear()
    made.runtime.close()


def test_a_move_that_took_place_is_silent(moving: Moving) -> None:
    moving.ends("tm2", State.RUNNING, failure="long cured")
    moving.session.move("T.1", "tm2")


def test_one_that_did_not_says_where_it_is_and_why(moving: Moving) -> None:
    moving.ends("tm1", State.RUNNING, REFUSED)
    assert tells(moving.refusal(), "T.1", "tm2", "tm1", REFUSED)
    moving.ends("tm1", State.BACKING_OFF, REFUSED)
    assert tells(moving.refusal(), "T.1", "tm2", "backing off", "tm1", REFUSED)
    moving.ends(None, State.WAITING, "tm1 was lost or removed meanwhile")
    assert tells(moving.refusal(), "T.1", "tm2", "tm1 was lost or removed meanwhile")


def test_one_that_fails_once_it_is_there_says_so(moving: Moving) -> None:
    moving.ends("tm2", State.GAVE_UP, failure="no column 'fare'")
    assert tells(moving.refusal(), "T.1", "tm2", "no column 'fare'")


def test_one_whose_task_is_stopped_meanwhile_says_so(moving: Moving) -> None:
    moving.ends("tm1", State.STOPPED)
    assert tells(moving.refusal(), "T.1", "tm2", "stopped", "tm1")
    moving.one = instance(moving.runtime.task_managers["tm1"])
    moving.runtime.cluster.instances["T.1"] = moving.one
    moving.runtime.mover.carry_out = lambda *_: moving.runtime.cluster.instances.clear() or ""  # type: ignore[method-assign, func-returns-value]
    assert tells(moving.refusal(), "T.1", "tm2", "stopped")
