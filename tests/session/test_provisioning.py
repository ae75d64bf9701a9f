"""Servers in the hands of a provisioner, told by hand. With real ones: tests/live/test_nodes.py."""

from __future__ import annotations

import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import SetupError
from qod_magics.session import provisioning
from qod_magics.session.provisioning import Provisioner, abandon

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


def test_one_that_is_launched_late_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first launch of all downloads jars, which may take minutes."""
    monkeypatch.setattr(provisioning, "END_S", 0.05)
    there, late, broken = (Future[Any]() for _ in range(3))
    servers = Server("tm1"), Server("tm2")
    there.set_result(servers[0])
    broken.set_exception(SetupError("no Java"))
    abandon([there, late, broken])
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
