"""Where files of servers can't be written, that is one line, and nothing is left: no directory, no claim of a core."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qod_magics.errors import SetupError
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.injector import Injector
from qod_magics.kafka.scenario import Scenario
from qod_magics.machine.child import Directory
from qod_magics.machine.cores import LINUX, CoreClaim, claimed
from qod_magics.spark.servers.server import LocalServer, ServerOptions

SCENARIO = {"duration_s": 1, "topics": [{"topic": "t", "data": {"generator": "taxi-trips"}, "rate": 1.0}]}


def start_server() -> None:
    LocalServer("tm1", ServerOptions(frozenset({0})), CoreClaim({0}))


def start_broker() -> None:
    nothing: Any = None
    EmbeddedBroker(java=lambda: nothing, jars=list).start()  # nothing is downloaded or looked for


def start_injector() -> None:
    Injector(Scenario.from_json(SCENARIO), "127.0.0.1:1").start()


STARTS: list[Callable[[], Any]] = [start_server, start_broker, start_injector]


def refused(start: Callable[[], Any]) -> str:
    with pytest.raises(SetupError) as caught:
        start()
    assert "\n" not in str(caught.value)
    assert claimed({0}) == frozenset()
    return str(caught.value)


@pytest.mark.skipif(not LINUX, reason="cores are claimed on Linux")
@pytest.mark.parametrize("start", [*STARTS, lambda: Directory("qod-session-")])
def test_no_directory(start: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert "\n" not in refused(start)


@pytest.mark.parametrize("start", STARTS)
def test_a_disk_that_is_full(start: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Path, "write_text", full)
    assert "[Errno 28]" in refused(start)
    assert list(tmp_path.iterdir()) == []
