"""The lease of a named session: one kernel at a time writes its checkpoints.

A file beside the manifest says who holds the session and since when. Each holder has an epoch, one above that of the
holder before; a holder checks before each start of a query that the file still has its own. On the same machine a
holder is alive while its process is; on another one while it has renewed the lease within `DEAD_S`.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec
import psutil

from qod_magics.errors import SetupError, TaskManagerError, UsageProblem
from qod_magics.named.manifest import replace_file

FILE, LOCK = "lease.json", "lease.lock"
#: Seconds without a renewal after which a holder on another machine is dead.
DEAD_S = 30.0
#: How long a session that takes over waits for the holder to end, seconds.
HANDOVER_S = 20.0


class Holder(msgspec.Struct, omit_defaults=True):
    """Who holds a session."""

    epoch: int
    host: str
    pid: int
    process_began: float  #: seconds since the epoch: process ids are used again
    user: str
    since: float  #: when the session began, seconds since the epoch
    renewed: float  #: seconds since the epoch
    ended: bool = False  #: whether it has let go

    @property
    def words(self) -> str:
        """Such as: process 4711 of ann on lab3, since 12:00:05 (epoch 2)."""
        since = datetime.fromtimestamp(self.since).astimezone()
        return f"process {self.pid} of {self.user} on {self.host}, since {since:%Y-%m-%d %H:%M:%S} (epoch {self.epoch})"

    def lives(self, now: float, host: str) -> bool:
        """Return whether it may still write, as seen from a machine at a time (seconds since the epoch)."""
        if self.ended:
            return False
        if self.host != host:
            return now - self.renewed < DEAD_S
        try:
            process = psutil.Process(self.pid)
            began: float = process.create_time()
            return abs(began - self.process_began) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


class Lease:
    """The right to write a session's checkpoints. Any thread may call it.

    Args:
        directory: of the session.
        name: of the session, for messages.

    """

    def __init__(
        self, directory: Path, name: str, *, wall: Callable[[], float] = time.time, host: str | None = None
    ) -> None:
        self.directory, self.name = directory, name
        self._wall, self._host = wall, host or socket.gethostname()
        self._mine: Holder | None = None

    def __repr__(self) -> str:
        return f"lease of session {self.name}: {'not held' if self._mine is None else self._mine.words}"

    @property
    def epoch(self) -> int:
        """Return the epoch of this holder; 0 before `take`."""
        return self._mine.epoch if self._mine is not None else 0

    def take(self, take_over: bool = False, wait_s: float = HANDOVER_S) -> str:
        """Become the holder; with `take_over` also in the place of one that is alive, which ends its queries as soon as
        it notices. Returns what the user should know, "" for nothing. Raises UsageProblem: another one holds it;
        SetupError: the directory can't be written."""
        with self._locked():
            before = self._read()
            alive = before is not None and before.lives(self._wall(), self._host)
            if before is not None and alive and not take_over:
                raise UsageProblem(
                    f"session {self.name!r} must have one kernel at a time, got a second: {before.words} holds it; "
                    "end it there (%qod down), or add --take-over here",
                    name=self.name,
                    value=before.pid,
                    rule="one holder",
                )
            now = self._wall()
            began = psutil.Process().create_time()
            epoch = 1 if before is None else before.epoch + 1
            self._mine = Holder(epoch, self._host, os.getpid(), began, getpass.getuser(), now, now)
            self._write(self._mine)
        if before is None or not alive:
            return ""
        ended = self._await_end(before, wait_s)
        left = "it has ended" if ended else f"it has not ended within {wait_s:g} s, and its queries may still write"
        return f"taken over from {before.words}: {left}"

    def _await_end(self, before: Holder, wait_s: float) -> bool:
        """Wait until the earlier holder says that its queries have ended, or its process is gone."""
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            gone = before.host == self._host and not before.lives(self._wall(), self._host)  # another host can't renew
            if gone or self._farewell(before.epoch).exists():
                with suppress(OSError):
                    self._farewell(before.epoch).unlink()
                return True
            time.sleep(0.2)
        return False

    def check(self) -> None:
        """Raise TaskManagerError unless this is still the holder."""
        taker = self.taker()
        if taker is not None:
            raise TaskManagerError(
                f"session {self.name!r} must be held to start a query, got: {taker.words} has taken it over; take it "
                "back with %qod up --take-over",
                name=self.name,
                value=taker.pid,
                rule="held",
            )

    def taker(self) -> Holder | None:
        """Who holds it in the place of this one; None: nobody."""
        found = self._read()
        return None if found is None or self._mine is None or found.epoch <= self._mine.epoch else found

    def renew(self) -> None:
        """Say that this holder is alive. Does nothing once it has been taken over. Raises SetupError."""
        with self._locked():
            if self._mine is not None and not self._mine.ended and self.taker() is None:
                self._mine = msgspec.structs.replace(self._mine, renewed=self._wall())
                self._write(self._mine)

    def release(self) -> None:
        """Let go. Raises SetupError."""
        if self._mine is None or self._mine.ended:
            return
        with self._locked():
            self._mine = msgspec.structs.replace(self._mine, ended=True)
            if self.taker() is None:
                self._write(self._mine)
            else:
                with suppress(OSError):
                    self._farewell(self._mine.epoch).touch()

    def _farewell(self, epoch: int) -> Path:
        return self.directory / f"lease.{epoch}.ended"

    def _read(self) -> Holder | None:
        path = self.directory / FILE
        try:
            return msgspec.json.decode(path.read_bytes(), type=Holder)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise SetupError(
                f"the lease {path} must be a file that this package wrote, got: {error}; remove it if no kernel runs "
                f"the session {self.name!r}",
                name=str(path),
            ) from error

    def _write(self, holder: Holder) -> None:
        path = self.directory / FILE
        try:
            replace_file(path, msgspec.json.format(msgspec.json.encode(holder), indent=1) + b"\n")
        except OSError as error:
            raise SetupError(f"the lease {path} must be writable, got: {error.strerror}", name=str(path)) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold a lock between processes, for the moment of a change."""
        path = self.directory / LOCK
        try:
            with path.open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise SetupError(f"{path} must be a file that can be locked, got: {error.strerror}") from error
