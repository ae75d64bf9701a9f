"""Processes and directories that end with the kernel, even if the kernel is killed: see `watchdog` for how.

`at_exit` cleans up at an orderly exit, `Child` is a supervised process, `Directory` is removed with its owner.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from qod_magics.errors import SetupError
from qod_magics.machine.cache import cache_dir

_WATCHDOG = Path(__file__).with_name("watchdog.py")
#: Grace period for an orderly end after the kernel's, before a process is killed, seconds.
GRACE_S = 1.0


class Child:
    """A running process, in a session of its own, with its watchdog beside it.

    Ctrl-C in a terminal or an interrupted cell does not reach it. When this Python process ends, in order or by
    `kill -9`, the watchdog ends the process with all its descendants and removes the directories `remove`, within about
    two seconds. When the watchdog itself is killed, the process dies too (Linux: at once; elsewhere: it is killed from
    here).

    Args:
        command: the program and its arguments.
        env: variables set on top of this process's environment; None unsets one.
        log_path: the file that stdout and stderr are appended to.
        cpus: the cores to pin it to, or None for all. `pinned` tells whether the system could.
        remove: directories to remove on `stop` or when this Python process ends.
        cwd: the working directory, default this process's.
        grace_s: time for an orderly end once this Python process has ended, seconds.

    Raises:
        SetupError: the command can't be started.

    """

    def __init__(
        self,
        command: Sequence[str | Path],
        env: Mapping[str, str | None] | None = None,
        *,
        log_path: Path,
        cpus: set[int] | None = None,
        remove: Sequence[Path] = (),
        cwd: Path | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        self.command = tuple(str(word) for word in command)
        self.log_path = log_path
        self.cpus = cpus
        self._remove = tuple(remove)
        self._owner = os.getpid()
        self._ended = threading.Event()
        self._returncode: int | None = None
        self._told_to_end = False  #: whether this process has asked for its end
        try:
            with log_path.open("ab") as log:
                self._watchdog = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_WATCHDOG)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
        except OSError as error:
            raise SetupError(f"Can't start {self.command[0]}: {error}") from error
        assert self._watchdog.stdin is not None
        assert self._watchdog.stdout is not None
        self._orders: IO[str] = self._watchdog.stdin
        try:
            self._say(
                command=self.command,
                env=_environment(env or {}),
                cwd=None if cwd is None else str(cwd),
                log=str(log_path),
                cpus=None if cpus is None else sorted(cpus),
                remove=[str(path) for path in self._remove],
                grace_s=grace_s,
            )
            started = json.loads(self._watchdog.stdout.readline() or '{"error": "its watchdog did not start"}')
        except BaseException:  # an interrupted cell keeps its frames, and with them this pipe open
            self._end_watchdog()
            raise
        if "error" in started:
            self._end_watchdog()
            raise SetupError(f"Can't start {self.command[0]}: {started['error']}")
        #: Process id of the command itself (not of its watchdog).
        self.pid: int = started["pid"]
        #: True if the process is pinned to `cpus`; False if none were given or the system can't pin.
        self.pinned: bool = started["affinity"]
        self._reader = threading.Thread(target=self._listen, name=f"child-{self.pid}", daemon=True)
        self._reader.start()

    def __repr__(self) -> str:
        return f"process {self.pid} of {self.command[0]}: {'runs' if self.alive() else 'has ended'}"

    def alive(self) -> bool:
        """True while the process runs."""
        return not self._ended.is_set()

    @property
    def returncode(self) -> int | None:
        """None while it runs; then its exit code, or minus the number of the signal that ended it."""
        return self._returncode

    @property
    def ending(self) -> str:
        """Return how it ended, as a clause; "" while it runs."""
        code = self._returncode
        if code is None:
            return ""
        if code >= 0:
            return f"its process ended with exit code {code}"
        by_us = " from here" if self._told_to_end else ""
        hint = ", as the system does when memory runs out" if code == -signal.SIGKILL and not by_us else ""
        return f"its process was ended by {_signal_name(-code)}{by_us}{hint}"

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for the end of the process; its return code, or None when `timeout_s` seconds passed first."""
        self._ended.wait(timeout_s)
        return self._returncode

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ask the process to end, kill it and its descendants after `timeout_s` seconds, remove its directories."""
        if self._is_mine():
            self._say(do="stop", timeout_s=timeout_s)
            self._end_watchdog(timeout_s + 5.0)
            for path in self._remove:
                shutil.rmtree(path, ignore_errors=True)

    def end(self, timeout_s: float = 10.0) -> None:
        """Ask the process to end, kill it with its descendants after `timeout_s` seconds; its directories stay."""
        if self._is_mine() and self.alive():
            self._say(do="end", timeout_s=timeout_s)
            self._ended.wait(timeout_s + 5.0)

    def kill(self) -> None:
        """Kill the process and its descendants now and wait for their end; its directories stay until `stop`."""
        if self._is_mine():
            self._say(do="kill")
            self._ended.wait(10.0)

    def release(self) -> None:
        """Kill the process if it still runs, without removing its directories."""
        if self._is_mine():
            self._say(do="release")
            self._end_watchdog()

    def tail(self, lines: int = 20) -> str:
        """Return the last lines of its log; empty where there is none."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - 400 * lines))
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _listen(self) -> None:
        assert self._watchdog.stdout is not None
        for line in self._watchdog.stdout:
            said: dict[str, Any] = json.loads(line)
            self._returncode = said["returncode"]
            self._ended.set()
        if not self._ended.is_set():  # the watchdog was killed
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            self._returncode = -int(signal.SIGKILL)
            self._ended.set()

    def _say(self, **order: Any) -> None:
        self._told_to_end = self._told_to_end or "do" in order
        with suppress(OSError, ValueError):
            self._orders.write(json.dumps(order) + "\n")
            self._orders.flush()

    def _is_mine(self) -> bool:
        """Return False in a fork of the process that started it: only its owner ends it."""
        return os.getpid() == self._owner

    def _end_watchdog(self, timeout_s: float = 10.0) -> None:
        """Wait for the watchdog's end; kill it after the timeout."""
        with suppress(OSError):
            self._orders.close()
        try:
            self._watchdog.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._watchdog.kill()
            self._watchdog.wait()
        if hasattr(self, "_reader"):
            self._reader.join(timeout_s)
        assert self._watchdog.stdout is not None
        self._watchdog.stdout.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one that Python has no name for
        return f"signal {number}"


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**os.environ, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def temporary(prefix: str) -> Path:
    """Return a new temporary directory, in the cache where the usual place is mounted noexec: the JVMs load native
    libraries from there. Raises SetupError: none can be made."""
    try:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=temporary_root()))
    except OSError as error:
        raise SetupError(
            f"No temporary directory can be made: {error.strerror or error}. Make room, or set TMPDIR to another place."
        ) from error


def temporary_root() -> Path:
    """Return where temporary directories are made. Raises OSError."""
    usual = Path(tempfile.gettempdir())
    if not is_noexec(usual):
        return usual
    other = cache_dir() / "tmp"
    other.mkdir(parents=True, exist_ok=True)
    return usual if is_noexec(other) else other


def is_noexec(place: Path) -> bool:
    """Return whether the file system of this directory lets nothing be executed, nor be loaded as a native library."""
    flag: int = getattr(os, "ST_NOEXEC", 0)
    return bool(os.statvfs(place).f_flag & flag) if hasattr(os, "statvfs") else False


def check_user() -> None:
    """Raise SetupError where this user has no name: Hadoop's login, without which Spark does not start, needs one."""
    try:
        import pwd

        pwd.getpwuid(os.getuid())
    except ImportError:
        return  # not on Unix
    except KeyError:
        raise SetupError(
            f"user id {os.getuid()} must have an entry in the passwd database for Spark's login, got none; add a line "
            f"'qod:x:{os.getuid()}:{os.getgid()}::/tmp:/bin/sh' to /etc/passwd, or run as a user that has one",
            value=os.getuid(),
            rule="named user",
        ) from None


class Directory:
    """A new temporary directory.

    An idle janitor process guards it: if the kernel is killed, the janitor's watchdog removes the directory after the
    task managers, which write their checkpoints there, have ended.

    Raises:
        SetupError: it can't be made; or the janitor can't be started, and it is removed.

    """

    def __init__(self, prefix: str) -> None:
        self.path = temporary(prefix)
        program = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(3600)"
        try:
            self._janitor = Child(
                [sys.executable, "-I", "-S", "-c", program],
                log_path=self.path / "janitor.log",
                remove=[self.path],
                grace_s=3.0 * GRACE_S,
            )
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def remove(self) -> None:
        """Remove it with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(Exception):
            self._janitor.release()


def at_exit(end: Callable[[], object]) -> Callable[[], None]:
    """Call `end` when the interpreter exits, and send all its output. Returns a function that cancels this.

    Unlike with `atexit.register`, `end` runs before pyzmq stops the thread that large messages need: pyzmq registers
    that stop when the first one is sent, maybe after now. A kernel that can't send a part of a message sends the next
    message, which page and server take for the missing part.
    """
    with suppress(ImportError):  # no kernel without pyzmq
        import zmq.utils.garbage  # noqa: F401  # registers the stop on import

    def last() -> None:
        try:
            end()
        finally:
            with suppress(AttributeError, OSError, ValueError):  # no stdout, or nobody reads it
                sys.stdout.flush()  # in a kernel: waits until earlier output has been sent

    atexit.register(last)
    return lambda: atexit.unregister(last)
