"""The leak check around live tests: what a test starts must be gone when the test is over.

A `Holdings` is what this pytest process holds at one instant; `leaks(before)` is what it holds now beyond `before`.
Four kinds are seen:

- processes: descendants, and orphans that were once descendants (found by a mark in their environment). What lies
  below a process that was there before belongs to that process, e.g. Spark's Python workers below its server;
- listening sockets of this process (those of a child go with the child);
- threads that are not daemons: they would keep the kernel from ending;
- temporary directories named `qod-...`, in the private temporary directory that `private_temp_dir` makes, so that
  other runs on the same machine are not seen.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

import psutil

MARK = "QOD_TEST_RUN"
GRACE_S = 30.0  #: time that what was told to stop has to be gone

#: Helpers of the interpreter that live until it ends.
_OF_THE_INTERPRETER = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


@dataclass(frozen=True, slots=True)
class Holdings:
    """What this process holds; each a mapping from an identity that is never used twice to a text for the message."""

    processes: Mapping[tuple[int, float], str] = field(default_factory=dict)  #: by (pid, creation time)
    sockets: Mapping[tuple[str, int], str] = field(default_factory=dict)  #: by (address, port)
    threads: Mapping[threading.Thread, str] = field(default_factory=dict)
    directories: Mapping[str, str] = field(default_factory=dict)  #: by path

    def __or__(self, other: Holdings) -> Holdings:
        """What either holds."""
        return Holdings(
            {**self.processes, **other.processes},
            {**self.sockets, **other.sockets},
            {**self.threads, **other.threads},
            {**self.directories, **other.directories},
        )

    def beyond(self, before: Holdings) -> Holdings:
        """What is here and was not in `before`; processes below one that was are not counted."""
        return Holdings(
            {key: text for key, text in self.processes.items() if not _is_below(key, before)},
            {key: text for key, text in self.sockets.items() if key not in before.sockets},
            {key: text for key, text in self.threads.items() if key not in before.threads},
            {key: text for key, text in self.directories.items() if key not in before.directories},
        )

    def lines(self) -> list[str]:
        """One line for each thing held."""
        kinds = (self.processes, self.sockets, self.threads, self.directories)
        return [text for kind in kinds for text in kind.values()]


def look() -> Holdings:
    """What this process holds now."""
    return Holdings(_processes(), _sockets(), _threads(), _directories())


def leaks(before: Holdings, grace_s: float = GRACE_S) -> Holdings:
    """What is held beyond `before` and does not go away by itself within `grace_s` seconds."""
    deadline = time.monotonic() + grace_s
    while True:
        left = look().beyond(before)
        if not left.lines() or time.monotonic() > deadline:
            return left
        gc.collect()  # an error that nobody holds any more keeps frames of Spark's client, and they keep its threads
        time.sleep(0.1)


def mark_environment() -> None:
    """Mark this process's environment, which its descendants inherit, so that orphans are still found."""
    os.environ[MARK] = uuid.uuid4().hex


@contextmanager
def private_temp_dir() -> Iterator[Path]:
    """A temporary directory of this run's own, for this process and its descendants; removed at the end.

    The name is short: Unix sockets in it may not have more than 107 characters in all.
    """
    before, variable = tempfile.gettempdir(), os.environ.get("TMPDIR")
    own = tempfile.mkdtemp(prefix="qt-")
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", before)  # what tmp_path keeps after a failure is outside of it
    os.environ["TMPDIR"] = tempfile.tempdir = own
    try:
        yield Path(own)
    finally:
        tempfile.tempdir = before
        if variable is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = variable
        rmtree(own, ignore_errors=True)


def _processes() -> dict[tuple[int, float], str]:
    found: dict[tuple[int, float], str] = {}
    mark = os.environ.get(MARK)
    descendants = {process.pid for process in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # gone meanwhile, or another user's
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.pid not in descendants and (mark is None or process.environ().get(MARK) != mark):
                continue
            words = process.cmdline()
            if any(name in word for word in words for name in _OF_THE_INTERPRETER):
                continue
            kind = "process" if process.pid in descendants else "orphaned process"
            command = " ".join(words) or process.name()
            found[process.pid, process.create_time()] = f"{kind} {process.pid}: {_shortened(command)}"
    return found


def _is_below(key: tuple[int, float], before: Holdings) -> bool:
    """True of a process in `before`, and of the descendants of one that is still alive."""
    if key in before.processes:
        return True
    with suppress(psutil.Error):
        above = psutil.Process(key[0]).parents()
        return any((parent.pid, parent.create_time()) in before.processes for parent in above)
    return False


def _sockets() -> dict[tuple[str, int], str]:
    listening = [c for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    return {(c.laddr.ip, c.laddr.port): f"listening socket {c.laddr.ip}:{c.laddr.port}" for c in listening}


def _threads() -> dict[threading.Thread, str]:
    exempt = {threading.main_thread(), *_spark_client_threads()}
    return {
        thread: f"thread {thread.name!r}, not a daemon"
        for thread in threading.enumerate()
        if not thread.daemon and thread not in exempt
    }


def _spark_client_threads() -> set[threading.Thread]:
    """The threads of the pool that Spark's Connect client keeps for all of its sessions, if it has one."""
    module = sys.modules.get("pyspark.sql.connect.client.reattach")
    iterator = getattr(module, "ExecutePlanResponseReattachableIterator", None)
    pool = getattr(iterator, "_release_thread_pool_instance", None)
    return set(getattr(pool, "_threads", ()))


def _directories() -> dict[str, str]:
    paths = [str(path) for path in Path(tempfile.gettempdir()).glob("qod-*")]
    return {path: f"temporary directory {path}" for path in paths}


def _shortened(command: str, length: int = 200) -> str:
    return command if len(command) <= length else f"{command[: length // 2]} ... {command[-length // 2 :]}"
