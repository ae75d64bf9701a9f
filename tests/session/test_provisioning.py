"""Servers in the hands of a provisioner, told by hand. With real ones: tests/live/test_nodes.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from qod_magics.session.provisioning import Provisioner


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
