"""A start of a process that is interrupted. What else holds of them: tests/live/test_children.py."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.machine import child
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
