"""Fixtures of tests that start no server."""

from __future__ import annotations

import pytest

from qod_magics.lifecycle import query
from qod_magics.spark.servers import connection
from qod_magics.spark.servers.connection import Ours


@pytest.fixture
def back_off(monkeypatch: pytest.MonkeyPatch) -> tuple[float, ...]:
    waits = (1.0, 2.0, 4.0)
    monkeypatch.setattr(query, "BACK_OFF_S", waits)
    return waits


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Ours:
    """What the module of connections changed in this process: nothing yet."""
    nothing = Ours()
    monkeypatch.setattr(connection, "_ours", nothing)
    return nothing
