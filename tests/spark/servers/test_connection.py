"""Connect sessions and pyspark's mode, without a server."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.spark.servers import connection
from qod_magics.spark.servers.connection import Ours, beside, clone, is_connect, is_loopback, leave_connect_mode, offer


def test_connect_mode_is_left_when_nobody_is_connected(monkeypatch: pytest.MonkeyPatch, ours: Ours) -> None:
    class Session:
        pass

    ours.mode = True
    monkeypatch.setenv(connection.CONNECT_MODE, "1")
    session: Any = Session()
    ours.open.add(session)
    leave_connect_mode()
    assert os.environ[connection.CONNECT_MODE] == "1"  # someone still is
    ours.open.discard(session)
    leave_connect_mode()
    assert connection.CONNECT_MODE not in os.environ
    monkeypatch.setenv(connection.CONNECT_MODE, "1")  # the user's own
    leave_connect_mode()
    assert os.environ[connection.CONNECT_MODE] == "1"


def test_a_session_is_let_go_if_its_first_call_is_interrupted(ours: Ours) -> None:
    """Else a kernel that keeps the traceback would stay in Connect mode."""

    class Session:
        client = SimpleNamespace(
            set_retry_policies=lambda _: None, disable_reattachable_execute=lambda: None, release_session=lambda: None
        )
        stopped = False

        def sql(self, _: str) -> Any:
            raise KeyboardInterrupt

        def stop(self) -> None:
            self.stopped = True

    made: Any = Session()
    with pytest.raises(KeyboardInterrupt):
        connection.connect("sc://127.0.0.1:1", 5.0, create=lambda *_: made)
    assert made.stopped
    assert made not in ours.open


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_the_loopback_interface(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["spark.example.org", "localhost.example.org", "10.0.0.1", "1270.0.0.1", "", "::2"])
def test_other_hosts(host: str) -> None:
    assert not is_loopback(host)


def options(url: str) -> dict[str, Any]:
    return dict(connection._channel(url, None)._effective_channel_options())


def test_no_proxy_is_between_this_machine_and_itself() -> None:
    """gRPC goes by http_proxy, also to localhost, unless no_proxy names it."""
    assert options("sc://localhost:7/;token=t")["grpc.enable_http_proxy"] == 0
    assert options("sc://127.0.0.1:7")["grpc.enable_http_proxy"] == 0
    assert "grpc.enable_http_proxy" not in options("sc://spark.example.org:7")


def test_our_servers_are_dialled_by_address_whatever_localhost_is() -> None:
    channel = connection._channel("sc://localhost:7/;token=t", "127.0.0.1")
    assert channel.endpoint == "127.0.0.1:7"
    assert channel.host == "localhost"  # with an address, a token would force TLS
    assert connection._channel("sc://localhost:7", None).endpoint == "localhost:7"


@pytest.fixture
def server_session(monkeypatch: pytest.MonkeyPatch, ours: Ours) -> Iterator[Any]:
    """A Connect session, which has made no call: there is no server."""
    from pyspark.sql.connect.session import SparkSession

    for name in (connection.CONNECT_MODE, connection.REMOTE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkSession, "_default_session", None)
    channel = connection._channel("sc://localhost:7/;token=t;session_id=00000000-0000-4000-8000-000000000000", None)
    made = SparkSession(connection=channel)
    yield made
    made.client.close()


def test_a_session_beside_another_one_is_its_own(server_session: Any, ours: Ours) -> None:
    other: Any = beside(server_session)
    try:
        assert is_connect(other)
        assert other.session_id != server_session.session_id
        assert other.client._builder.endpoint == "localhost:7"
        assert other in ours.open
    finally:
        other.client.close()


CLONE = "00000000-0000-4000-8000-000000000001"


def test_a_session_beside_one_with_changing_tokens_asks_for_them_too(ours: Ours) -> None:
    """Such a source of tokens has a lock or a connection, which can't be copied."""
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession

    class Renewed(DefaultChannelBuilder):
        def __init__(self) -> None:
            super().__init__("sc://localhost:7/;user_id=u")
            self.own_lock, self.asked = threading.Lock(), [0]

        def metadata(self) -> list[tuple[str, str]]:
            with self.own_lock:
                self.asked[0] += 1
            return [*super().metadata(), ("authorization", f"Bearer {self.asked[0]}")]

    theirs = SparkSession(connection=Renewed())
    stub: Any = theirs.client._stub
    stub.CloneSession = lambda *_, **__: SimpleNamespace(new_session_id=CLONE)  # the server's answer
    other: Any = beside(theirs)  # type: ignore[arg-type]
    cloned: Any = clone(theirs)  # type: ignore[arg-type]
    try:
        sessions = (theirs, other, cloned, theirs)
        tokens = [dict(each.client._builder.metadata())["authorization"] for each in sessions]
        asked = theirs.client._builder.asked[0]
        assert tokens == [f"Bearer {asked - back}" for back in (3, 2, 1, 0)]
        assert (cloned.session_id, cloned.client._builder.session_id) == (CLONE, CLONE)
        assert theirs.client._builder.session_id is None
        assert other.session_id != theirs.session_id
        with pytest.raises(TypeError):
            copy.deepcopy(theirs.client._builder)
    finally:
        for each in sessions[:3]:
            each.client.close()


def test_the_builder_gives_the_session_that_is_offered(
    server_session: Any, ours: Ours, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setenv(connection.CONNECT_MODE, "1")
    ours.open.add(server_session)
    offer(server_session)
    assert SparkSession.builder.getOrCreate() is server_session
    assert os.environ[connection.REMOTE].startswith("sc://localhost:7/;token=t")
    leave_connect_mode()
    assert connection.REMOTE in os.environ  # it is open yet
    ours.open.discard(server_session)
    leave_connect_mode()
    assert connection.REMOTE not in os.environ


def test_the_users_own_default_stays(server_session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = object.__new__(type(server_session))
    monkeypatch.setattr(type(server_session), "_default_session", theirs)
    monkeypatch.setenv(connection.REMOTE, "sc://theirs")
    offer(server_session)
    assert type(server_session)._default_session is theirs
    assert os.environ[connection.REMOTE] == "sc://theirs"
