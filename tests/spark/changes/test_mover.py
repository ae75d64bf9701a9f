"""Restarts of instances whose tables beside the stream are read again from time to time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from qod_magics.application.tasks import tasks
from qod_magics.lifecycle.events import BatchEnded, MoveAsked, State, StopAsked, SuspendAsked
from qod_magics.spark.plans.job import Feed
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.task_manager import TaskManager
from tests.application.frames import application, stream
from tests.spark.fakes import Parts, Query, Script, cluster, instance, manager, runs, soon


def refreshed(
    prepare: Callable[[Instance], object], refresh_s: float | None = 5.0, idle: bool = False
) -> tuple[Instance, list[str]]:
    """An instance that a test has prepared, and where it was started again, once its tables were looked after."""
    started: list[str] = []

    def start(one: Instance, home: TaskManager) -> None:
        started.append(home.id)
        runs(one, Query(), "again")
        one.life.started_at = time.monotonic()

    home = manager()
    one = instance(home, Query(), Script(start).make)
    made = cluster(home, instances=(one,))
    made.deployment.specs = {"T": tasks(application(stream("T", priority=1, refresh_s=refresh_s)))[0]}
    prepare(one)
    Parts(made).mover.refresh_tables(lambda _: idle)
    return one, started


def test_an_instance_restarts_where_it_is_once_its_tables_are_due() -> None:
    one, started = refreshed(lambda one: one.handle(BatchEnded()))  # its run began long ago
    soon(lambda: bool(started) and one.state is State.RUNNING)
    assert (started, one.run_id, one.life.run) == (["tm1"], "again", 2)
    assert "read again" in one.life.steps[-2].why


def test_an_instance_without_rows_to_read_restarts_too() -> None:
    one, started = refreshed(lambda one: None, idle=True)
    soon(lambda: bool(started) and one.state is State.RUNNING)
    assert one.run_id == "again"


def ends_a_batch(one: Instance) -> None:
    one.handle(BatchEnded())
    one.life.started_at = time.monotonic()


def is_suspended(one: Instance) -> None:
    one.handle(BatchEnded())
    one.handle(SuspendAsked("no room"))


@pytest.mark.parametrize(
    ("prepare", "refresh_s"),
    [
        (ends_a_batch, 60.0),
        (lambda one: None, 5.0),  # it still reads its first batch
        (is_suspended, 5.0),
        (lambda one: one.handle(BatchEnded()), None),
    ],
    ids=["not due", "no batch", "suspended", "once"],
)
def test_others_run_on(prepare: Callable[[Instance], object], refresh_s: float | None) -> None:
    one, started = refreshed(prepare, refresh_s)
    assert one.state is (State.SUSPENDED if prepare is is_suspended else State.RUNNING)
    time.sleep(0.1)
    assert (started, one.run_id, one.life.run) == ([], "r", 1)


class Waiting(Query):
    """A run without a batch under way; how often it was stopped is in `stops`."""

    def __init__(self) -> None:
        super().__init__()
        self.status, self.stops = {"isTriggerActive": False}, 0

    def stop(self) -> None:
        self.stops += 1


def runs_there(one: Instance, there: TaskManager) -> None:
    """It was moved, and runs on the other task manager."""
    one.handle(MoveAsked("tm2", "tm1", "a user asks"))
    one.task_manager = there
    runs(one, Waiting(), "there")


def starts_there(one: Instance, there: TaskManager) -> None:
    runs_there(one, there)
    one.life.state = State.STARTING


def is_stopped_to_move(one: Instance, _: TaskManager) -> None:
    one.handle(MoveAsked("tm2", "tm1", "a user asks"))


def began_again(one: Instance, _: TaskManager) -> None:
    runs(one, Waiting(), "again")


@pytest.mark.parametrize("breaks_off", [False, True])
@pytest.mark.parametrize(
    ("meanwhile", "state"),
    [
        (runs_there, State.RUNNING),
        (starts_there, State.STARTING),
        (is_stopped_to_move, State.MOVING),
        (began_again, State.RUNNING),
        (lambda one, _: one.handle(StopAsked()), State.STOPPED),
        (lambda one, _: one.detach("it was lost"), State.WAITING),
    ],
)
def test_a_restart_leaves_alone_what_was_moved_stopped_or_lost_while_it_waited(
    meanwhile: Callable[[Instance, TaskManager], object], state: State, breaks_off: bool
) -> None:
    started: list[str] = []

    def poll(one: Instance) -> bool:
        meanwhile(one, other)
        if breaks_off:
            raise ConnectionError("its query was stopped")
        return False

    home, other = manager(), manager("tm2")
    script = Script(lambda one, there: started.append(there.id), poll)
    one = instance(home, Waiting(), script.make)
    one.mode = "micro-batch"
    one.job = replace(one.job, feeds=(Feed("T", ("T",), "t", (0,), {0: 0}, None, False),))
    Parts(cluster(home, other, instances=(one,))).mover.restart(one)
    assert (one.state, started) == (state, [])
    assert getattr(one.query, "stops", 0) == 0
