"""Who may read metrics, and what is left when nobody may any more."""

from __future__ import annotations

import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.monitoring.door import Door, Textfile, token_in
from qod_magics.monitoring.metrics import SessionCollector, Told
from qod_magics.monitoring.monitor import Monitor
from qod_magics.session.outside import Outlets
from tests.monitoring.scraping import samples
from tests.raising import breaks

TOKEN = "a-token-of-this-test"


def collector() -> SessionCollector:
    return SessionCollector(Monitor(), lambda: Told("abc", "0.1", "fixed", ()))


@pytest.fixture
def opened() -> Iterator[Callable[..., Door]]:
    doors: list[Door] = []

    def make(health: str = "", port: int = 0, metrics: SessionCollector | None = None) -> Door:
        doors.append(Door(port, metrics or collector(), lambda: health, TOKEN))
        return doors[-1]

    yield make
    for each in doors:
        each.close()


def get(url: str, token: str | None = TOKEN, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(
        url, headers={**headers, **({"Authorization": f"Bearer {token}"} if token else {})}
    )
    try:
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_are_read_with_the_token_only(opened: Callable[..., Door]) -> None:
    url = opened().url
    status, text = get(url)
    assert status == 200
    assert "qod_session_info" in samples(text)
    for token in (None, "", "another", TOKEN[:-1], TOKEN + "x", "é"):
        status, text = get(url, token)
        assert status == 401
        assert "qod_" not in text


def test_a_scraper_may_ask_for_openmetrics(opened: Callable[..., Door]) -> None:
    status, text = get(opened().url, Accept="application/openmetrics-text; version=1.0.0")
    assert (status, text.splitlines()[-1]) == (200, "# EOF")


@pytest.mark.parametrize(("health", "status"), [("", 200), ("the controller is silent", 503)])
def test_health_is_told_without_a_token(opened: Callable[..., Door], health: str, status: int) -> None:
    url = opened(health).url.replace("/metrics", "/healthz")
    assert get(url, None) == (status, f"{health or 'ok'}\n")


def test_other_paths_are_not_there(opened: Callable[..., Door]) -> None:
    assert get(opened().url.replace("metrics", "metrics/../etc"))[0] == 404


def test_it_listens_on_the_loopback_interface_only(opened: Callable[..., Door]) -> None:
    door = opened()
    assert door._server.server_address[0] == "127.0.0.1"


def test_metrics_that_cannot_be_read_are_an_answer_not_an_end(opened: Callable[..., Door]) -> None:
    def broken() -> Told:
        raise RuntimeError("no rows")

    url = opened(metrics=SessionCollector(Monitor(), broken)).url
    assert [get(url)[0], get(url)[0]] == [500, 500]


def test_a_port_that_is_taken_is_told(opened: Callable[..., Door]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageProblem, check=breaks("free port", value=port)):
            opened(port=port)
    with pytest.raises(UsageProblem, check=breaks("port", value=70000)):
        opened(port=70000)


def test_nothing_listens_or_runs_after_the_end() -> None:
    before = set(threading.enumerate())
    door = Door(0, collector(), str, TOKEN)
    door.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", door.port), 1.0)
    assert set(threading.enumerate()) <= before


# --- the token --------------------------------------------------------------------------------------------------------


def test_a_token_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "config" / "token"
    token = token_in(path)
    assert len(token) > 30
    assert token_in(path) == token
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("text", "mode", "rule"), [("x" * 40, 0o644, "private"), ("short\n", 0o600, "long")])
def test_a_token_that_is_none_is_refused(tmp_path: Path, text: str, mode: int, rule: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(UsageProblem, check=breaks(rule)):
        token_in(path)


def test_a_directory_is_no_token(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, check=breaks("readable")):
        token_in(tmp_path)


# --- the file ---------------------------------------------------------------------------------------------------------


def test_a_file_is_written_after_a_cycle_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "qod.prom"
    file = Textfile(path, collector())
    assert "qod_session_info" in samples(path.read_text())
    before = path.stat().st_ino
    file.due()
    for _ in range(1000):
        if path.exists() and path.stat().st_ino != before:
            break
        threading.Event().wait(0.01)
    assert path.stat().st_ino != before, "it was replaced in one step"
    file.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("name", "rule"), [("qod.txt", ".prom"), ("no/such/qod.prom", "writable")])
def test_a_file_that_cannot_be_is_refused(tmp_path: Path, name: str, rule: str) -> None:
    with pytest.raises(UsageProblem, check=breaks(rule)):
        Textfile(tmp_path / name, collector())


# --- both, of a session -----------------------------------------------------------------------------------------------


def test_metrics_go_nowhere_until_asked_for_and_then_where_asked(tmp_path: Path) -> None:
    outlets = Outlets(Monitor(), lambda: Told("abc", "0.1", "fixed", ()), str)
    assert "nowhere" in outlets.text()
    outlets.serve(0, tmp_path / "token")
    first = outlets._door
    assert first is not None
    token = (tmp_path / "token").read_text().strip()
    assert get(first.url, token)[0] == 200
    outlets.serve(first.port, tmp_path / "token")  # again on the same port
    assert get(first.url, token)[0] == 200
    outlets.write(tmp_path / "qod.prom")
    assert str(first.port) in outlets.text()
    assert "qod.prom" in outlets.text()
    assert token not in outlets.text()
    outlets.close()
    assert not (tmp_path / "qod.prom").exists()
    with pytest.raises(urllib.error.URLError):
        get(first.url, token)
