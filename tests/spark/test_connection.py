"""Connect sessions and pyspark's mode, without a server."""

from __future__ import annotations

import os
from typing import Any

import pytest

from qod_magics.spark import connection
from qod_magics.spark.connection import leave_connect_mode


def test_connect_mode_is_left_when_nobody_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        pass

    monkeypatch.setattr(connection, "_mode_is_ours", True)
    monkeypatch.setenv(connection.CONNECT_MODE, "1")
    session: Any = Session()
    connection._open.add(session)
    leave_connect_mode()
    assert os.environ[connection.CONNECT_MODE] == "1"  # someone still is
    connection._open.discard(session)
    leave_connect_mode()
    assert connection.CONNECT_MODE not in os.environ
    monkeypatch.setenv(connection.CONNECT_MODE, "1")  # the user's own
    leave_connect_mode()
    assert os.environ[connection.CONNECT_MODE] == "1"
