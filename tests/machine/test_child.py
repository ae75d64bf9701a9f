"""A start of a process that is interrupted. What else holds of them: tests/live/test_children.py."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.machine import child, watchdog
from qod_magics.machine.child import Child


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
