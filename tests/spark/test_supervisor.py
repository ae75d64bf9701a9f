"""What happens around calls that hang: by hand, with gates in the place of servers that freeze."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.spark import dial, supervisor, task_manager
from qod_magics.spark.bounded import begin
from qod_magics.spark.cluster import Cluster
from qod_magics.spark.deployment import Deployment
from qod_magics.spark.dial import written
from qod_magics.spark.instance import Instance, State
from qod_magics.spark.pipeline import Job
from qod_magics.spark.supervisor import Supervisor
from qod_magics.spark.task_manager import TaskManager, leave_connect_mode
from tests.spark.batches import batch

BOARD = dial.DialBoard("s")


class Spark:
    """Answers as a local session would, but only while its gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[str] = []
        self.conf = self

    def get(self, key: str) -> str | None:
        return {"spark.master": "local[4]", "spark.driver.host": "localhost"}.get(key)

    def sql(self, text: str) -> Spark:
        self.gate.wait(30)
        self.asked.append(text)
        return self

    def collect(self) -> list[dict[str, Any]]:
        return [{"value": 0.25}]


class Query:
    """A streaming query that runs; `stop` waits for the gate."""

    runId = "r"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.isActive = True
        self.lastProgress = None
        self.why: Exception | None = None

    def exception(self) -> Exception | None:
        return self.why

    def stop(self) -> None:
        self.gate.wait(30)


def manager(id: str = "tm1") -> TaskManager:
    return TaskManager(id, Spark(), kind="attached", cores=1.0, board=BOARD)  # type: ignore[arg-type]


def instance(home: TaskManager | None = None, query: Query | None = None) -> Instance:
    job = Job("T", "T.1", 0, (), lambda spark, inputs: None, (), (), None, None, None)  # type: ignore[arg-type, return-value]
    one = Instance(job, "/nowhere", task_manager=home, query=query)  # type: ignore[arg-type]
    if query is not None:
        one.state, one.run_id = State.RUNNING, "r"
    return one


def cluster(*managers: TaskManager, instances: tuple[Instance, ...] = ()) -> Cluster:
    def place(homeless: Any, there: Any, running: Any) -> Mapping[str, str]:
        return {one.instance: there[0].id for one in homeless}

    made = Cluster(Deployment(None, "s"), BOARD, {}, place, 5.0)  # type: ignore[arg-type]
    made.task_managers.update({m.id: m for m in managers})
    made.instances.update({i.id: i for i in instances})
    return made


def kinds(made: Cluster) -> list[str]:
    return [event.kind for event in made.events]


def soon(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def back_off(monkeypatch: pytest.MonkeyPatch) -> tuple[float, ...]:
    waits = (1.0, 2.0, 4.0)
    monkeypatch.setattr(supervisor, "BACK_OFF_S", waits)
    return waits


# -- failures ----------------------------------------------------------------------------------------------------------


def test_waits_grow_and_the_last_failure_is_said_aloud(back_off: tuple[float, ...]) -> None:
    home = manager()
    one = instance(home, Query())
    made = cluster(home, instances=(one,))
    for wait_s in back_off:
        Supervisor(made).fail(one, "it broke")
        assert one.state is State.BACKING_OFF
        assert one.query is None
        assert made.events[-1].detail["retry_in_s"] == wait_s
        assert one.retry_at - time.monotonic() == pytest.approx(wait_s, abs=0.5)
    Supervisor(made).fail(one, "it broke")
    assert one.state is State.GAVE_UP
    assert made.events[-1].detail == {
        "instance": "T.1",
        "task_manager": "tm1",
        "why": "it broke",
        "gave_up": True,
        "failures": 3,
    }


def test_a_query_that_ran_for_long_has_recovered(back_off: tuple[float, ...]) -> None:
    home = manager()
    one = instance(home, Query())
    made = cluster(home, instances=(one,))
    one.failures = 3
    one.started_at = time.monotonic() - supervisor.RECOVERED_AFTER_S - 1
    Supervisor(made).fail(one, "after all")
    assert (one.state, one.failures) == (State.BACKING_OFF, 1)


def test_who_lost_his_task_manager_did_not_fail(back_off: tuple[float, ...]) -> None:
    """A start that breaks off because the server died is not the query's fault, and is not tried there again."""
    gone, left = manager("tm1"), manager("tm2")
    one = instance(gone, Query())
    made = cluster(left, instances=(one,))
    Supervisor(made).fail(one, "connection refused")
    assert (one.state, one.failures, one.task_manager) == (State.WAITING, 0, None)
    assert kinds(made) == []


def test_a_late_failure_of_where_it_was_before_is_none_of_its_present_home(back_off: tuple[float, ...]) -> None:
    old, new = manager("tm1"), manager("tm2")
    query = Query()
    one = instance(new, query)
    made = cluster(old, new, instances=(one,))
    Supervisor(made).fail_on(one, old, "too late")
    assert (one.state, one.query) == (State.RUNNING, query)


def test_a_move_to_where_it_is_does_not_hide_that_it_does_not_run() -> None:
    home = manager()
    one = instance(home)
    one.state = State.MOVING
    made = cluster(home, instances=(one,))
    started: list[str] = []
    watched = Supervisor(made)
    watched.start = lambda i, m: started.append(m.id)  # type: ignore[method-assign]
    watched.move(one, home, "by hand")
    assert started == ["tm1"]


# -- queries that stand still ----------------------------------------------------------------------------------------


def test_a_query_that_stands_still_is_told_of_once_a_run() -> None:
    home = manager()
    one = instance(home, Query())
    one.mode, one.started_at = "real-time", time.monotonic() - 2 * supervisor.STILL_S
    made = cluster(home, instances=(one,))
    watched = Supervisor(made)
    watched.notice()
    watched.notice()
    assert kinds(made) == ["query-still"]
    assert "no batch has ended for 120 s" in made.events[0].detail["why"]


@pytest.mark.parametrize("other", ["a batch ended", "micro-batch", "just begun", "silent"])
def test_others_do_not_stand_still(other: str) -> None:
    home = manager()
    one = instance(home, Query())
    one.mode, one.started_at = "real-time", time.monotonic() - 2 * supervisor.STILL_S
    if other == "a batch ended":
        one.meter.add(batch(0, time.time() - 6.0, time.time() - 1.0, run="r"))
    elif other == "micro-batch":
        one.mode = other
    elif other == "just begun":
        one.started_at = time.monotonic()
    else:
        home.silent_since = time.monotonic()
    made = cluster(home, instances=(one,))
    Supervisor(made).notice()
    assert kinds(made) == []


# -- real-time mode that is refused late -----------------------------------------------------------------------------


def starting(answers: list[bool | None]) -> tuple[Instance, Supervisor]:
    """A query that has just begun in real-time mode, and that Spark refuses once its task manager has given these
    answers as to whether it has tasks."""
    query, home = Query(), manager()
    one = instance(home, query)
    one.mode, one.mode_wanted = "real-time", "realtime"

    def works_on(run_id: str) -> bool | None:
        answer = answers.pop(0)
        if not answers:
            query.isActive, query.why = False, Exception("[STREAMING_REAL_TIME_MODE.X] it has a limitation")
        return answer

    home.works_on = works_on  # type: ignore[method-assign]
    return one, Supervisor(cluster(home, instances=(one,)))


def test_while_a_query_has_no_tasks_a_refusal_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "UNTOLD_S", 0.0)
    one, supervises = starting([False, None, False])
    with pytest.raises(TaskManagerError, match=r"T\.1 can't run in real-time mode"):
        supervises.settle(one)


def test_where_nobody_tells_of_tasks_a_refusal_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "UNTOLD_S", 0.0)
    answers: list[bool | None] = [None, False]
    one, supervises = starting(answers)
    supervises.settle(one)
    assert answers == [False]


def test_a_query_with_tasks_is_settled() -> None:
    answers: list[bool | None] = [False, True, False]
    one, supervises = starting(answers)
    supervises.settle(one)
    assert answers == [False]


# -- calls that hang ---------------------------------------------------------------------------------------------------


def test_a_poll_that_is_not_answered_is_not_begun_again() -> None:
    home, query = manager(), Query()
    one = instance(home, query)
    made = cluster(home, instances=(one,))
    gate, began = threading.Event(), threading.Event()

    class Slow(Query):
        @property
        def lastProgress(self) -> None:  # type: ignore[override]
            began.set()
            gate.wait(30)

        @lastProgress.setter
        def lastProgress(self, value: object) -> None:
            pass

    one.query = Slow()  # type: ignore[assignment]
    first = begin(lambda: Supervisor(made).poll(home), "poll")
    assert began.wait(10)
    with pytest.raises(TaskManagerError, match="tm1 has not answered"):  # and so it stays silent, in `silent_since`
        Supervisor(made).poll(home)
    gate.set()
    first.result(10)
    one.query = query  # type: ignore[assignment]
    Supervisor(made).poll(home)


def test_who_is_forsaken_in_a_hanging_call_can_start_elsewhere_and_stays_there() -> None:
    old, new = manager("tm1"), manager("tm2")
    hanging = Query()
    hanging.gate.clear()
    one = instance(old, hanging)
    stopping = begin(one.stop, "stop")  # holds the lock
    soon(lambda: not _free(one.lock))
    one.forsake()
    assert (one.state, one.task_manager, one.query) == (State.WAITING, None, None)
    assert _free(one.lock)
    query = Query()
    with one.lock:
        one.query, one.run_id, one.task_manager, one.state = query, "next", new, State.RUNNING  # type: ignore[assignment]
    hanging.gate.set()  # the old server wakes up
    stopping.result(10)
    assert (one.query, one.run_id, one.task_manager, one.state) == (query, "next", new, State.RUNNING)


def test_a_start_that_waited_while_it_was_taken_away_does_not_take_place() -> None:
    old, new = manager("tm1"), manager("tm2")
    hanging = Query()
    hanging.gate.clear()
    one = instance(old, hanging)
    stopping = begin(one.stop, "stop")
    soon(lambda: not _free(one.lock))
    starting = begin(lambda: one.start(new, BOARD, {}, {}, 5.0), "start")
    time.sleep(0.1)  # it may come after `forsake` instead: then it fails in another way
    one.forsake()
    hanging.gate.set()
    stopping.result(10)
    with pytest.raises(TaskManagerError):
        starting.result(10)
    assert one.query is None


def test_what_was_stopped_or_given_up_does_not_wait_for_a_task_manager() -> None:
    for state in (State.STOPPED, State.GAVE_UP):
        one = instance(manager())
        one.state = state
        one.forsake()
        assert (one.state, one.task_manager) == (state, None)


def test_dials_told_to_a_frozen_server_never_overtake_later_ones() -> None:
    home = manager()
    spark: Any = home.spark
    home.turn({"qod.a": 1.0})
    spark.asked.clear()
    spark.gate.clear()
    with pytest.raises(TaskManagerError, match="did not answer"):
        home.turn({"qod.a": 0.5}, timeout_s=0.1)
    assert "qod.a" not in home.dials  # nobody knows which it holds
    with pytest.raises(TaskManagerError, match="has not answered"):
        home.turn({"qod.a": 1.0}, timeout_s=0.1)
    spark.gate.set()
    home.turn({"qod.a": 1.0})
    assert [f"'{written(0.5)}'" in text for text in spark.asked] == [True, False]
    assert f"('qod.a', '{written(1.0)}')" in spark.asked[-1]
    assert home.dials["qod.a"] == 1.0
    spark.asked.clear()
    home.turn({"qod.a": 1.0})
    assert spark.asked == []  # it holds that already


# -- Connect mode ------------------------------------------------------------------------------------------------------


def test_connect_mode_is_left_when_nobody_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        pass

    monkeypatch.setattr(task_manager, "_mode_is_ours", True)
    monkeypatch.setenv(task_manager.CONNECT_MODE, "1")
    session: Any = Session()
    task_manager._open.add(session)
    leave_connect_mode()
    assert os.environ[task_manager.CONNECT_MODE] == "1"  # someone still is
    task_manager._open.discard(session)
    leave_connect_mode()
    assert task_manager.CONNECT_MODE not in os.environ
    monkeypatch.setenv(task_manager.CONNECT_MODE, "1")  # the user's own
    leave_connect_mode()
    assert os.environ[task_manager.CONNECT_MODE] == "1"


def _free(lock: threading.RLock) -> bool:  # type: ignore[valid-type]
    """Whether another thread could take it."""
    found: bool = begin(lambda: lock.acquire(blocking=False) and (lock.release() or True), "look").result(10)  # type: ignore[attr-defined]
    return found
