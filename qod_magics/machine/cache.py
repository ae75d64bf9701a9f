"""The user's cache directory, and a lock between processes that share it."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from platformdirs import user_cache_dir

from qod_magics.errors import SetupError


def cache_dir() -> Path:
    """Return where downloads are kept: `$QOD_CACHE`, else `qod_magics` in the user's cache directory. May not exist
    yet.

    Absolute, since the servers that read it work in directories of their own.
    """
    try:
        named = os.environ.get("QOD_CACHE") or user_cache_dir("qod_magics", appauthor=False)
        return Path(named).expanduser().absolute()
    except RuntimeError:  # a user without a home directory
        return Path(tempfile.gettempdir()).absolute() / f"qod_magics-{os.getuid()}"


@contextmanager
def locked(path: Path, timeout_s: float = 900.0) -> Iterator[None]:
    """Hold an exclusive lock on the file `path` (created if missing) against other processes and threads.

    The operating system drops the lock when its holder dies, so a killed process leaves none behind.

    Raises:
        SetupError: another process held it for all of `timeout_s` seconds, or the directory can't be written, or is on
            a file system without locks.

    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise SetupError(
            f"Can't write to the cache {path.parent}: {error.strerror}. Set QOD_CACHE to a directory that you own.",
            rule="writable",
        ) from error
    with file:
        deadline = time.monotonic() + timeout_s
        while not _taken(file, path):
            if time.monotonic() > deadline:
                raise SetupError(
                    f"Another process has held {path} for {timeout_s:.0f} s: end it, or set QOD_CACHE to another "
                    "place.",
                    rule="free lock",
                )
            time.sleep(0.1)
        yield


def _taken(file: IO[bytes], path: Path) -> bool:
    # By hand: filelock falls back to marker files where locks are missing, and these outlive a killed holder.
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise SetupError(
            f"Can't lock {path}: {error.strerror}. Set QOD_CACHE to a directory on a file system with locks.",
            rule="locks",
        ) from error
    return True
