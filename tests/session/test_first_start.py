"""The first start with servers that are stand-ins. With real ones: tests/live."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.session import resources
from tests.raising import breaks


def test_a_port_that_was_taken_is_no_failed_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed one is not tried again: all later starts would take longer."""
    monkeypatch.setenv("QOD_CACHE", str(tmp_path))
    finished, closed = [], []
    making = SimpleNamespace(finish=lambda: finished.append(True))
    child = SimpleNamespace(end=lambda _: None)
    server = SimpleNamespace(
        name="archives", options=None, child=child, making=making, stop=lambda: closed.append(False)
    )
    another = SimpleNamespace(name="archives", options=None, child=child, making=None)
    manager = SimpleNamespace(server=another, no_realtime="", close=lambda: closed.append(True))
    stands_in: dict[str, Any] = {
        "missing": lambda: True,
        "EmbeddedBroker": lambda **_: nullcontext(),
        "LocalServer": lambda *_, **__: server,
        "start_local": lambda *_, **__: manager,
        "warm_up": lambda *_, **__: None,
        "server_archive": lambda: None,
        "broker_archives": list,
    }
    for name, each in stands_in.items():
        monkeypatch.setattr(resources, name, each)
    with pytest.raises(TaskManagerError, check=breaks("free port")):
        resources.make_archives(lambda _: None)
    assert (finished, closed) == ([], [True, False])
