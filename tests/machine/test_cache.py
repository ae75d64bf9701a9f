"""The cache directory, and the lock that its users share."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qod_magics.errors import SetupError
from qod_magics.machine import cache
from qod_magics.machine.cache import cache_dir, locked
from tests.raising import breaks


def test_our_own_variable_goes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("QOD_CACHE", raising=False)
    assert cache_dir() == tmp_path / "xdg" / "qod_magics"
    monkeypatch.setenv("QOD_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QOD_CACHE", "nearby")  # which a server would look for in a directory of its own
    assert cache_dir() == tmp_path / "nearby"


def test_a_second_process_waits_and_says_for_what(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    hold = f"from pathlib import Path; from qod_magics.machine.cache import locked; c = locked(Path({str(lock)!r}))"
    code = f"{hold}\nwith c:\n    print('held', flush=True)\n    input()\n"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SetupError, check=breaks("free lock")), locked(lock, timeout_s=0.05):
            pass
        holder.kill()  # and a killed holder holds it no more
        holder.wait()
    with locked(lock, timeout_s=5.0):
        pass


def test_a_file_system_without_locks_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(cache.fcntl, "flock", refuse)
    with (
        pytest.raises(SetupError, check=breaks("locks")),
        locked(tmp_path / "lock"),
    ):
        pass
