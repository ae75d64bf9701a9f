"""Processes that end with the kernel, and cleanup at exit."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client import KernelManager
from jupyter_client.blocking import BlockingKernelClient

from qod_magics.errors import SetupError
from qod_magics.machine import child, watchdog
from qod_magics.machine.cache import cache_dir
from qod_magics.machine.child import Child, check_user, is_noexec, temporary
from qod_magics.notebook.replies import FROM_THE_START
from tests.raising import breaks

LARGE = 200_000  #: letters; more than what a message copies
LAST_WORDS = f"""\
from IPython.display import HTML, display
from qod_magics.machine.child import at_exit

at_exit(lambda: shown.update(HTML("last" + "." * {LARGE})))
shown = display(HTML("first" + "." * {LARGE}), display_id=True)
"""
PATIENCE_S = 60.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[BlockingKernelClient]:
    manager = KernelManager(connection_file=str(tmp_path / "kernel.json"))
    manager.start_kernel(cwd=str(tmp_path), extra_arguments=[FROM_THE_START])
    connected = manager.blocking_client()
    connected.start_channels()
    try:
        connected.wait_for_ready(timeout=PATIENCE_S)
        yield connected
    finally:
        connected.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_kernel_that_exits_still_sends_what_is_large(client: BlockingKernelClient) -> None:
    """Also where its first large message came after the call was asked for."""
    client.execute(LAST_WORDS)
    assert shown(client, "display_data").startswith("first")
    client.shutdown()
    assert shown(client, "update_display_data").startswith("last")


def shown(client: BlockingKernelClient, kind: str) -> str:
    """The page's text of the next message of this kind; a message that is not whole raises ValueError."""
    while True:
        message: dict[str, Any] = client.get_iopub_msg(timeout=PATIENCE_S)
        assert message["msg_type"] != "error", message["content"]
        if message["msg_type"] == kind:
            return str(message["content"]["data"]["text/html"])


def test_what_is_interrupted_while_it_starts_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []
    answers: list[str] = []

    def popen(*given: Any, **more: Any) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(*given, **more))
        return started[-1]

    def interrupted(answer: str) -> Any:
        answers.append(answer)
        raise KeyboardInterrupt

    monkeypatch.setattr(child, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": popen}))
    monkeypatch.setattr(child.json, "loads", interrupted)
    removed = tmp_path / "its"
    removed.mkdir()
    try:
        with pytest.raises(KeyboardInterrupt) as caught:  # held, as a notebook holds its last traceback
            Child(["sleep", "60"], log_path=tmp_path / "log", remove=[removed])
        assert started[0].poll() is not None, caught
    finally:
        started[0].kill()
        started[0].wait()
    assert '"pid"' in answers[0], "the process ran by then"
    assert not removed.exists()


@pytest.mark.parametrize(("command", "signals"), [("true", []), ("sleep 60 &", ["TERM", "KILL", "KILL"])])
def test_one_that_has_ended_gets_no_signal_unless_it_left_some_running(
    command: str, signals: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process id may be another's by the time that its session ends."""
    sent: list[str] = []

    def killpg(group: int, number: int) -> None:
        sent.append(signal.Signals(number).name.removeprefix("SIG"))
        killing(group, number)

    killing = os.killpg
    monkeypatch.setattr(watchdog, "tell", lambda _: None)
    shell = ["sh", "-c", command]
    guard = watchdog.Guard(
        {"command": shell, "env": {**os.environ}, "cwd": None, "log": tmp_path / "log", "cpus": None}
    )
    guard.start()
    guard.report_end()
    monkeypatch.setattr(watchdog.os, "killpg", killpg)
    guard.stop(5.0)
    assert sent == signals


@pytest.fixture
def noexec(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Directories on file systems from which nothing can be executed."""
    if not hasattr(os, "ST_NOEXEC"):
        pytest.skip("this system does not tell")
    places: set[Path] = set()

    def statvfs(place: str | Path) -> SimpleNamespace:
        inside = any(Path(place).is_relative_to(each) for each in places)
        return SimpleNamespace(f_flag=os.ST_NOEXEC if inside else 0)

    monkeypatch.setattr(os, "statvfs", statvfs)
    return places


def test_native_libraries_are_not_put_where_they_can_not_be_loaded(
    noexec: set[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usual, cache = tmp_path / "tmp", tmp_path / "cache"
    usual.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(usual))
    monkeypatch.setenv("QOD_CACHE", str(cache))
    assert temporary("x-").parent == usual
    noexec.add(usual)
    assert temporary("x-").parent == cache / "tmp"
    noexec.add(cache)
    assert temporary("x-").parent == usual  # `doctor` says that neither will do


def test_this_machine_tells(tmp_path: Path) -> None:
    assert is_noexec(tmp_path) in (True, False)


def unknown(_: int) -> None:
    raise KeyError


def test_a_user_without_a_name_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    check_user()
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(SetupError, check=breaks("named user", value=os.getuid())):
        check_user()


def test_a_user_without_a_home_has_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "QOD_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert cache_dir() == Path(tempfile.gettempdir()) / f"qod_magics-{os.getuid()}"
