"""The process between the kernel and a child: starts the real command, and ends it when the kernel is gone.

Run as a script, with the standard library only, so that it starts in a few hundredths of a second. Never imported by
the package. It reads JSON lines on stdin and writes JSON lines on stdout:

    in    {"command", "env", "cwd", "log", "cpus", "remove", "grace_s"}   first line: what to start
          {"do": "stop", "timeout_s"}    end the command, remove the directories, exit
          {"do": "end", "timeout_s"}     end the command; stay, to guard the directories
          {"do": "kill"}                 kill the command; stay, to guard the directories
          {"do": "release"}              kill the command if it still runs, leave the directories, exit
          end of file                    the kernel is gone: as stop
    out   {"pid", "affinity"}  or  {"error"}     result of the start
          {"returncode"}                         the command ended

The kernel's end shows as end of file on stdin, and also as a change of the parent's process id: a process forked from
the kernel may hold the pipe open after it. On Linux the command itself asks to be killed when this process dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any

POLL_S = 0.5
PR_SET_PDEATHSIG = 1


def main() -> int:
    """Start the command of the first line, then obey orders until one ends it or the kernel is gone."""
    kernel = os.getppid()
    line = sys.stdin.readline()
    if not line:
        return 0
    order = json.loads(line)
    guard = Guard(order)
    said = guard.start()
    tell(said)
    if "error" in said:
        guard.remove()
        return 1
    events: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=read_orders, args=(events,), daemon=True).start()
    threading.Thread(target=guard.report_end, daemon=True).start()
    while True:
        try:
            event = events.get(timeout=POLL_S)
        except queue.Empty:
            if os.getppid() == kernel:
                continue
            event = {"do": "stop"}
        if event["do"] == "kill":
            guard.kill()
            continue
        if event["do"] == "end":
            guard.stop(event["timeout_s"])
            continue
        if event["do"] == "stop":
            guard.stop(event.get("timeout_s", order["grace_s"]))
            guard.remove()
        else:
            guard.kill()
        guard.ended.wait(POLL_S)
        return 0


class Guard:
    """The real command, its session of processes and its directories."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.process: subprocess.Popen[bytes] | None = None
        self.left = True  #: whether the command, or a member of its session, may still run
        self.ended = threading.Event()

    def start(self) -> dict[str, Any]:
        """Start the command in a session of its own; returns the answer to the kernel."""
        pinned = self.pin()
        try:
            with open(self.order["log"], "ab") as log:
                self.process = subprocess.Popen(
                    self.order["command"],
                    env=self.order["env"],
                    cwd=self.order["cwd"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=die_with_me(os.getpid()) if sys.platform == "linux" else None,
                )
        except (OSError, subprocess.SubprocessError) as error:
            return {"error": str(error)}
        return {"pid": self.process.pid, "affinity": pinned}

    def pin(self) -> bool:
        """Keep this process, and so the command, on its cores; False where the system can't."""
        cpus = self.order["cpus"]
        if cpus is None or not hasattr(os, "sched_setaffinity"):
            return False
        try:
            os.sched_setaffinity(0, cpus)
        except OSError:
            return False
        return True

    def report_end(self) -> None:
        """Wait for the end of the command and tell the kernel; runs in a thread."""
        assert self.process is not None
        returncode = self.process.wait()
        self.left = os.name == "posix" and bool(session_members(self.process.pid))
        tell({"returncode": returncode})
        self.ended.set()

    def stop(self, timeout_s: float) -> None:
        """Ask the command to end, then kill what is left of it."""
        self.signal_all(signal.SIGTERM)
        self.ended.wait(timeout_s)
        self.kill()
        self.ended.wait(POLL_S)  # a dying process may still write into the directories removed next

    def kill(self) -> None:
        """Kill the command and its descendants now."""
        killing = getattr(signal, "SIGKILL", signal.SIGTERM)
        self.signal_all(killing)
        self.signal_all(killing)  # for processes started between the listing and the signal

    def signal_all(self, number: int) -> None:
        """Send a signal to the command's process group and to other members of its session, to none twice.

        Members are listed first: when asked to end, the command may start a cleanup process.
        """
        assert self.process is not None
        if not self.left:  # its id may be another's by now
            return
        pid = self.process.pid
        if os.name != "posix":
            self.process.terminate()
            return
        # Spark's Python workers leave the group but not the session.
        apart = [member for member in session_members(pid) if group_of(member) != pid]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)
        for member in apart:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, number)

    def remove(self) -> None:
        """Remove the directories; retry while something still writes there."""
        for _ in range(5):
            for path in self.order["remove"]:
                shutil.rmtree(path, ignore_errors=True)
            if not any(os.path.lexists(path) for path in self.order["remove"]):
                return
            time.sleep(0.1)


def read_orders(events: queue.Queue[dict[str, Any]]) -> None:
    """Queue the kernel's orders; end of file means stop. Runs in a thread."""
    for line in sys.stdin:
        events.put(json.loads(line))
    events.put({"do": "stop"})


def tell(said: dict[str, Any]) -> None:
    """Write one line to the kernel, if it is still there."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(said).encode() + b"\n")


def session_members(session: int) -> list[int]:
    """Return the processes of this session."""
    members = []
    for pid in every_process():
        with contextlib.suppress(OSError):  # gone meanwhile
            if os.getsid(pid) == session:
                members.append(pid)
    return members


def group_of(pid: int) -> int | None:
    """Return the process group of a process; None once it has ended."""
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def every_process() -> list[int]:
    """Return the processes of this machine: from /proc, or from `ps` where there is no /proc (macOS)."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        names = []
    if not names:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            ps = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, timeout=5.0, check=True)
            names = ps.stdout.decode().split()
    return [int(name) for name in names]


def die_with_me(watchdog: int) -> Any:
    """Return a hook for the command before it starts: have it killed when the watchdog dies (Linux)."""
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != watchdog:
            os._exit(1)

    return ask


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(main())
