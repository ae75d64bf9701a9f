"""Task managers of a budget come and go on a real runtime; what starts servers is replaced, and takes until it is let.

With real servers: tests/live/test_nodes.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import count
from typing import Any, Literal

import pytest

from qod_magics.core.plan import AddNode, Fuse, Lend, Move, Plan, ReleaseNode, Scale, SetBatch, Stop, Unfuse
from qod_magics.core.runtime import Dials
from qod_magics.core.snapshot import NodeState
from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import State
from qod_magics.session.nodes import SessionNodes
from qod_magics.session.pool import CONNECT, LOCAL, Budget, Node, Pool
from qod_magics.spark.plans.dial import DialReading
from qod_magics.spark.runtime import SparkRuntime
from tests.kafka.fakes import FakeKafka
from tests.raising import breaks
from tests.spark.fakes import instance
from tests.texts import tells

WAIT_S = 20.0  #: far more than anything here takes


class Runtime(SparkRuntime):
    """Lets a test take the place of what withdraws task managers, and interrupt what adds them."""

    withdrawn: Callable[[str], Any] | None = None
    interrupts: Literal["before", "after", "never"] = "never"

    def withdraw(self, id: str, why: str | None = None) -> Any:
        return super().withdraw(id, why) if self.withdrawn is None else self.withdrawn(id)

    def add_task_manager(self, manager: Any, why: str | None = None, took_s: float | None = None) -> None:
        if self.interrupts == "before":
            raise KeyboardInterrupt
        super().add_task_manager(manager, why, took_s)
        if self.interrupts == "after":
            raise KeyboardInterrupt


class Manager:
    """A task manager without queries."""

    cores, share = 0.9, 1.0
    slots: float | None = None
    cpu_meter = own_meter = None
    share = 1.0
    silent_since: float | None = None
    reading = DialReading.ROW

    def recount(self) -> None:
        """Its cores stay as they are."""

    def sample_cpu(self) -> None:
        return None

    def __init__(self, id: str, kind: str = "local") -> None:
        self.id, self.kind = id, kind
        self.lives, self.closed = True, False
        self.runs: frozenset[str] = frozenset()

    def alive(self) -> bool:
        return self.lives

    @property
    def ending(self) -> str:
        return "" if self.lives else "its process ended with exit code 1"

    def gone(self) -> bool:
        return not self.lives

    def turn(self, values: Any) -> None:
        return None

    def active_runs(self) -> frozenset[str]:
        return self.runs

    def ask(self, call: Callable[[], Any], what: str, timeout_s: float) -> Any:
        return call()

    def kill(self) -> None:
        self.lives = False

    def close(self) -> None:
        self.closed = True


class Maker:
    """Makes task managers while `gate` is open, or raises `error`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.error: Exception | None = None
        self.made: dict[str, Manager] = {}
        self.abandoned: list[str] = []
        self.urls: dict[str, str] = {}
        self.asked: list[str] = []

    def local(self, id: str) -> Any:
        return self._make(id, "local")

    def remote(self, id: str, url: str) -> Any:
        made = self._make(id, "connect")
        self.urls[id] = url
        return made

    def _make(self, id: str, kind: str) -> Manager:
        self.asked.append(id)
        assert self.gate.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        self.made[id] = Manager(id, kind)
        return self.made[id]

    def url_of(self, id: str) -> str | None:
        return self.urls.pop(id, None)

    def abandon(self, id: str) -> None:
        self.abandoned.append(id)

    def track(self, under_way: Future[Any]) -> Future[Any]:
        return under_way


class Lab:
    """A runtime with one task manager, tm1, and a budget."""

    def __init__(self, most: int, standby: bool = True, spare: tuple[str, ...] = ()) -> None:
        self.runtime = Runtime(FakeKafka(), "s", "/nowhere")
        self.runtime.add_task_manager(Manager("tm1"))  # type: ignore[arg-type]
        self.maker = Maker()
        numbers = count(2)
        budget = Budget(most, 1, spare_connect=spare, standby=standby, cores=1)
        self.nodes = SessionNodes(
            Pool(budget, lambda: f"tm{next(numbers)}", {LOCAL: 0.9}, {LOCAL: 12.0}), self.maker, self.runtime
        )
        self.runtime.use_nodes(self.nodes)  # from now on its watcher tends them

    def close(self) -> None:
        self.maker.gate.set()
        self.nodes.end()
        self.runtime.close()

    def apply(self, *actions: Any) -> None:
        self.runtime.apply(Plan({}, {}, actions), Dials({}, {}))

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [dict(event.detail) for event in list(self.runtime.cluster.events) if event.kind == kind]

    @property
    def up(self) -> list[str]:
        return list(self.runtime.task_managers)

    def soon(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, (self.nodes, self.runtime.cluster.events)
            time.sleep(0.01)

    def standing_by(self, id: str) -> None:
        self.nodes.tend()  # not to wait for the watcher
        self.soon(lambda: self.nodes.states().get(id) is NodeState.STANDBY)


@pytest.fixture
def make() -> Iterator[Callable[..., Lab]]:
    made: list[Lab] = []

    def lab(*given: Any, **more: Any) -> Lab:
        made.append(Lab(*given, **more))
        return made[-1]

    yield lab
    for each in made:
        each.close()


def test_a_plan_that_adds_one_has_the_standby_at_once(make: Callable[..., Lab]) -> None:
    lab = make(2)
    lab.maker.gate.set()
    lab.standing_by("tm2")
    assert lab.up == ["tm1"]
    seen = lab.runtime.observe().snapshot
    assert [manager.id for manager in seen.task_managers] == ["tm1"]
    assert seen.node_states == {"tm2": NodeState.STANDBY}
    (spare,) = seen.spares
    assert (spare.kind, spare.count, spare.cores, spare.start_s) == (LOCAL, 1, 0.9, 0.0)
    lab.apply(AddNode(LOCAL, "tm1 is full"))
    assert lab.up == ["tm1", "tm2"]
    (up,) = lab.events("task-manager-up")
    assert (up["task_manager"], up["why"]) == ("tm2", "tm1 is full")
    assert up["took_s"] >= 0
    assert lab.runtime.observe().snapshot.spares == (), "the budget is used up"


def test_without_a_standby_it_is_started_and_told(make: Callable[..., Lab]) -> None:
    lab = make(2, standby=False)
    lab.apply(AddNode(LOCAL, "tm1 is full"))
    assert lab.runtime.observe().snapshot.node_states == {"tm2": NodeState.STARTING}
    assert lab.runtime.observe().snapshot.spares == ()
    lab.maker.gate.set()
    lab.soon(lambda: lab.up == ["tm1", "tm2"])
    assert lab.events("task-manager-up")[-1]["why"] == "tm1 is full"


def test_what_is_refused_is_an_event_once(make: Callable[..., Lab]) -> None:
    lab = make(1)
    for _ in range(3):
        lab.apply(AddNode(LOCAL, "tm1 is full"), ReleaseNode("tm1", "idle"))
    told = {event["action"]: event["why"] for event in lab.events("action-refused")}
    assert len(lab.events("action-refused")) == 2
    assert "at most 1 task managers" in told["AddNode"]
    assert tells(told["ReleaseNode"], "last")
    lab.apply()
    lab.apply(AddNode(LOCAL, "tm1 is full"))
    assert len(lab.events("action-refused")) == 3, "a new plan, after one without it"


def test_one_that_is_released_stands_by_and_can_come_back(make: Callable[..., Lab]) -> None:
    lab = make(2)
    lab.maker.gate.set()
    lab.standing_by("tm2")
    lab.apply(AddNode(LOCAL))
    lab.apply(ReleaseNode("tm2", "idle"))
    lab.standing_by("tm2")
    assert lab.up == ["tm1"]
    (removed,) = lab.events("task-manager-removed")
    assert (removed["task_manager"], removed["why"]) == ("tm2", "idle")
    assert removed["took_s"] >= 0
    assert not lab.maker.made["tm2"].closed
    lab.apply(AddNode(LOCAL))
    assert lab.up == ["tm1", "tm2"]
    assert lab.maker.asked == ["tm2"], "started once"


@pytest.mark.parametrize("reason", ["no standby wanted", "a query still runs on it"])
def test_one_that_can_not_stand_by_is_closed(make: Callable[..., Lab], reason: str) -> None:
    lab = make(2, standby=reason != "no standby wanted")
    lab.maker.gate.set()
    lab.apply(AddNode(LOCAL))
    lab.soon(lambda: "tm2" in lab.up)
    lab.maker.made["tm2"].runs = frozenset({"r"} if "query" in reason else ())
    lab.nodes.remove("tm2")
    assert lab.maker.made["tm2"].closed
    assert "tm2" not in lab.nodes.states()


def test_one_that_was_lost_before_its_release_is_no_longer_leaving(make: Callable[..., Lab]) -> None:
    lab = make(3, standby=False)
    lab.maker.gate.set()
    lab.apply(AddNode(LOCAL))
    lab.soon(lambda: "tm2" in lab.up)

    def lost(*_: Any) -> None:
        raise TaskManagerError("There is no task manager 'tm2'.")

    lab.runtime.withdrawn = lost
    lab.apply(ReleaseNode("tm2", "idle"))
    lab.soon(lambda: lab.events("action-refused"))
    assert lab.nodes.states() == {}


def test_a_start_that_fails_is_an_event_and_is_not_repeated_at_once(make: Callable[..., Lab]) -> None:
    lab = make(2)
    lab.maker.error = TaskManagerError("no Java")
    lab.maker.gate.set()
    lab.nodes.tend()
    lab.soon(lambda: lab.events("task-manager-failed"))
    for _ in range(20):
        lab.nodes.tend()
    (failed,) = lab.events("task-manager-failed")
    assert (failed["task_manager"], failed["why"], failed["retry_in_s"]) == ("tm2", "no Java", 10.0)
    assert lab.maker.asked == ["tm2"]
    assert lab.runtime.observe().snapshot.spares == ()
    assert "no Java" in lab.nodes.text()


def test_a_standby_that_ends_is_replaced_after_a_while(make: Callable[..., Lab]) -> None:
    lab = make(2)
    lab.maker.gate.set()
    lab.standing_by("tm2")
    lab.maker.made["tm2"].lives = False
    lab.nodes.tend()
    lab.soon(lambda: lab.events("task-manager-failed"))
    assert lab.events("task-manager-failed")[0]["task_manager"] == "tm2"
    lab.soon(lambda: lab.maker.made["tm2"].closed)


def test_a_standby_whose_end_is_noticed_as_it_joins_does_not(make: Callable[..., Lab]) -> None:
    lab = make(2)
    lab.maker.gate.set()
    lab.standing_by("tm2")
    with lab.nodes._lock:  # its end is not noticed before
        lab.maker.made["tm2"].lives = False
        lab.apply(AddNode(LOCAL))
    assert lab.up == ["tm1"]
    assert lab.events("task-manager-failed")


def test_by_hand_the_standby_is_taken_unless_options_are_given(make: Callable[..., Lab]) -> None:
    lab = make(3)
    lab.maker.gate.set()
    lab.standing_by("tm2")

    def never(id: str) -> Any:
        raise AssertionError(id)

    assert lab.nodes.admit(LOCAL, never, plain=True) == "tm2"
    lab.standing_by("tm3")
    other = Manager("tm4")
    assert lab.nodes.admit(LOCAL, lambda id: other, plain=False) == "tm4"  # type: ignore[arg-type, return-value]
    lab.soon(lambda: lab.maker.made["tm3"].closed)  # it gave way
    assert lab.up == ["tm1", "tm2", "tm4"]
    with pytest.raises(TaskManagerError, check=breaks("budget", value=3)):
        lab.nodes.admit(LOCAL, never, plain=True)
    assert lab.nodes.remove("tm4")
    assert lab.nodes.states() == {"tm4": NodeState.STANDBY}


def test_by_hand_one_that_does_not_come_up_is_told(make: Callable[..., Lab]) -> None:
    lab = make(2)
    lab.maker.error = TaskManagerError("no Java")
    lab.nodes.tend()
    assert lab.nodes.states()
    threading.Timer(0.2, lab.maker.gate.set).start()
    with pytest.raises(TaskManagerError, check=breaks("comes up", name="tm2")):
        lab.nodes.admit(LOCAL, lambda id: Manager(id), plain=True)  # type: ignore[arg-type, return-value]


def test_at_the_end_nothing_is_left_and_nothing_starts(make: Callable[..., Lab]) -> None:
    lab = make(3)
    lab.maker.gate.set()
    lab.standing_by("tm2")
    lab.maker.gate.clear()
    lab.apply(AddNode(LOCAL))
    lab.soon(lambda: "tm3" in lab.maker.asked)
    lab.nodes.end()
    lab.maker.gate.set()
    lab.soon(lambda: "tm3" in lab.maker.made and lab.maker.made["tm3"].closed)
    assert lab.maker.asked == ["tm2", "tm3"]


def test_the_standby_closes_with_the_session(make: Callable[..., Lab]) -> None:
    lab = make(2)
    lab.maker.gate.set()
    lab.standing_by("tm2")
    lab.nodes.end()
    assert lab.maker.made["tm2"].closed


def test_without_a_budget_a_runtime_starts_and_releases_nothing(make: Callable[..., Lab]) -> None:
    assert make(2).runtime.supports == {Move, Stop, Scale, SetBatch, Lend, Fuse, Unfuse, AddNode, ReleaseNode}
    assert SparkRuntime.supports == {Move, Stop, Scale, SetBatch, Lend, Fuse, Unfuse}


def test_one_joins_though_what_waits_for_it_can_not_be_placed(make: Callable[..., Lab]) -> None:
    lab = make(2, standby=False)

    def broken(*_: Any) -> Any:
        raise ValueError("no place")

    lab.runtime.place_by(broken)
    waits = instance()
    waits.life.state = State.WAITING
    lab.runtime.cluster.instances[waits.id] = waits
    lab.maker.gate.set()
    lab.apply(AddNode(LOCAL))
    lab.soon(lambda: lab.maker.made and not lab.nodes.states())
    assert lab.up == ["tm1", "tm2"]
    assert not lab.maker.made["tm2"].closed
    assert any("no place" in event["why"] for event in lab.events("watcher-failed"))
    lab.runtime.cluster.instances.clear()


@pytest.mark.parametrize("leaving", [False, True])
def test_a_spare_server_that_was_lost_is_spare_again(make: Callable[..., Lab], leaving: bool) -> None:
    lab = make(3, standby=False, spare=("sc://a",))
    lab.maker.gate.set()

    def offered() -> list[str]:
        return [spare.kind for spare in lab.runtime.observe().snapshot.spares]

    assert offered() == [LOCAL, CONNECT]
    lab.apply(AddNode(CONNECT))
    lab.soon(lambda: lab.up == ["tm1", "tm2"])
    assert offered() == [LOCAL]
    lab.nodes.tend()
    if leaving:
        lab.runtime.withdrawn = lab.runtime.cluster.manager
        lab.runtime.cluster.task_managers.pop("tm2")
        lab.nodes._pool.nodes["tm2"] = Node("tm2", "", NodeState.LEAVING, 0.0, 0.0, "idle")
        with pytest.raises(TaskManagerError):
            lab.nodes._drain("tm2", "idle")
    lab.maker.made["tm2"].lives = False
    lab.soon(lambda: offered() == [LOCAL, CONNECT])
    for _ in range(3):
        lab.nodes.tend()
    assert lab.runtime.observe().snapshot.spares[1].count == 1


@pytest.mark.parametrize("joined", [False, True])
def test_one_whose_join_is_interrupted_has_joined_or_is_closed(make: Callable[..., Lab], joined: bool) -> None:
    lab = make(2, standby=False)
    lab.runtime.interrupts = "after" if joined else "before"
    other = Manager("tm2")
    with pytest.raises(KeyboardInterrupt):
        lab.nodes.admit(LOCAL, lambda id: other, plain=False)  # type: ignore[arg-type, return-value]
    assert other.closed is not joined
    assert lab.up == (["tm1", "tm2"] if joined else ["tm1"])
    assert lab.nodes.states() == {}, "it holds no place in the budget"
