"""Servers in the hands of a provisioner, told by hand. With real ones: tests/live/test_nodes.py."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, wait
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import SetupError
from qod_magics.session.provisioning import ALONE_S, Provisioner, abandon

WAIT_S = 20.0  #: far more than anything here takes


class Server:
    """A server whose process has just begun."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.child = SimpleNamespace(alive=lambda: not self.stopped)
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


def provisioner() -> Any:
    runtime: Any = None
    return Provisioner(runtime, 0.1)


def test_one_that_is_abandoned_before_its_process_runs_ends_then() -> None:
    """Launching it takes seconds: it would come up whole, and warm up, beside the one that it gave way to."""
    made, given_up, wanted = provisioner(), Server("tm2"), Server("tm3")
    made.abandon("tm2")
    for server in (given_up, wanted):
        made._begun(server)
    assert (given_up.stopped, wanted.stopped) == (True, False)


def test_one_that_is_launched_late_ends_too() -> None:
    """The first launch of all downloads jars, which may take minutes."""
    there, late, broken = (Future[Any]() for _ in range(3))
    servers = Server("tm1"), Server("tm2")
    there.set_result(servers[0])
    broken.set_exception(SetupError("no Java"))
    abandon([there, late, broken], 0.05)
    late.set_result(servers[1])
    deadline = time.monotonic() + WAIT_S
    while not all(server.stopped for server in servers):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("joined", [False, True])
def test_one_that_has_joined_is_not_closed_if_interrupted_then(joined: bool) -> None:
    """It would stay among the task managers, with no session."""
    there: dict[str, Any] = {}

    def add(manager: Any) -> None:
        if joined:
            there[manager.id] = manager
        raise KeyboardInterrupt

    closed: list[bool] = []
    runtime: Any = SimpleNamespace(add_task_manager=add, task_managers=there)
    manager: Any = SimpleNamespace(id="tm2", close=lambda: closed.append(True))
    with pytest.raises(KeyboardInterrupt):
        Provisioner(runtime, 0.1).join(manager)
    assert closed == ([] if joined else [True])


class Started:
    """A provisioner of one local task manager, whose warm-up lasts as long as it is needed."""

    def __init__(self, own_kafka: bool, alone_s: float = ALONE_S) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        self.instances: list[Any] = []
        self.joined: list[str] = []
        self.server: Any = SimpleNamespace(
            name="tm1", options=None, begun=0.0, child=SimpleNamespace(alive=lambda: True)
        )
        self.manager: Any = SimpleNamespace(id="tm1", kind="local", cores=1.0, server=self.server, close=lambda: None)
        cluster = SimpleNamespace(all_instances=self.instances)
        runtime: Any = SimpleNamespace(
            add_task_manager=lambda manager: self.joined.append(manager.id),
            task_managers={},
            cluster=cluster,
            **dict.fromkeys(("board", "kafka", "checkpoints")),
        )
        self.provisioner = Provisioner(
            runtime,
            0.1,
            own_kafka,
            alone_s=alone_s,
            start=lambda *_: self.manager,
            check=lambda *_: None,
            warm_up=self._warm_up,
        )

    def up(self, warm: bool = False) -> Any:
        launched: Future[Any] = Future()
        launched.set_result(self.server)
        (found,) = self.provisioner.assemble([launched], (), warm)
        return found

    def _warm_up(self, *_: Any, needed: Any = lambda: False) -> float:
        self.begun.set()
        deadline = time.monotonic() + WAIT_S
        while needed():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.ended.set()
        return 0.0


@pytest.mark.parametrize("why", ["used", "cooled"])
def test_one_of_ours_joins_before_it_is_warm_until_a_query_is_there(why: str) -> None:
    started = Started(own_kafka=True, alone_s=0.01)
    assert started.up() is started.manager
    assert started.joined == ["tm1"]
    assert started.begun.wait(WAIT_S)
    assert not started.ended.wait(0.1)
    if why == "used":
        started.instances.append(SimpleNamespace(task_manager=started.manager))
    else:
        started.provisioner.cool()
    assert started.ended.wait(WAIT_S)
    assert started.provisioner.start_s == {}, "it was never seen warm"


def test_where_a_query_follows_at_once_no_warm_up_runs_beside_it() -> None:
    started = Started(own_kafka=True, alone_s=0.2)
    started.instances.append(SimpleNamespace(task_manager=started.up()))
    wait(started.provisioner._coming, WAIT_S)
    assert not started.begun.is_set()


@pytest.mark.parametrize("own_kafka", [False, True])
def test_on_a_kafka_of_the_users_or_if_asked_for_it_is_warm_first(own_kafka: bool) -> None:
    """A user's broker may lack what queries need: the warm-up tells."""
    started = Started(own_kafka=own_kafka)
    started.up(warm=own_kafka)
    assert started.ended.is_set()
    assert started.provisioner.start_s.keys() == {"local"}
