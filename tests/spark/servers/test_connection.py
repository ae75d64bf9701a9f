"""Connect sessions and pyspark's mode, without a server."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.spark.servers import connection
from qod_magics.spark.servers.connection import leave_connect_mode


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


def test_a_session_is_let_go_if_its_first_call_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a kernel that keeps the traceback would stay in Connect mode."""

    class Session:
        client = SimpleNamespace(set_retry_policies=lambda _: None)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    made, gone = Session(), []
    monkeypatch.setattr(connection, "load_client", lambda: None)
    monkeypatch.setattr(connection, "begin", lambda *_: SimpleNamespace(result=lambda: made))
    monkeypatch.setattr(connection, "call_within", interrupted)
    monkeypatch.setattr(connection, "let_go", lambda session, _: gone.append(session))
    with pytest.raises(KeyboardInterrupt):
        connection.connect("sc://127.0.0.1:1", 5.0)
    connection._open.discard(made)  # type: ignore[arg-type]
    assert gone == [made]
