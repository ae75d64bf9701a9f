"""The cores that sessions on this machine have pinned processes to, so that a new one chooses others.

A session holds a core by a Unix socket with the core's number in its name, in Linux's abstract namespace: there is one
of a name, no file is left behind, and the system frees it when its holder dies.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager

LINUX = sys.platform == "linux"  #: elsewhere nothing is pinned, and every core is free
#: Of the sockets; the number of the core follows.
NAME = "\0qod_magics-core-"


class CoreClaim:
    """Holds these cores until `release`, or the end of this process.

    Attributes:
        cpus: the cores.
        shared: those of them that were held already; this claim does not hold them.

    """

    def __init__(self, cpus: Collection[int]) -> None:
        self.cpus = frozenset(cpus)
        self._held = ExitStack()
        self.shared = frozenset(cpu for cpu in self.cpus if not self._take(cpu))

    def __repr__(self) -> str:
        return f"claim of cores {sorted(self.cpus - self.shared)}"

    def release(self) -> None:
        """Give the cores back. Idempotent."""
        self._held.close()

    def _take(self, cpu: int) -> bool:
        if not LINUX:
            return True
        holding = _socket()
        try:
            holding.bind(f"{NAME}{cpu}")
        except OSError:
            holding.close()
            return False
        self._held.enter_context(holding)
        return True


@contextmanager
def choosing(timeout_s: float = 10.0) -> Iterator[None]:
    """Between the choice of cores and their claim: one session of the machine at a time, else two that start at once
    take the same. After `timeout_s` without its turn, a session goes on: a shared core is slow, and reported."""
    deadline = time.monotonic() + timeout_s
    with closing(_socket()) as turn:
        while LINUX and time.monotonic() < deadline:
            try:
                turn.bind(f"{NAME}choice")
                break
            except OSError:
                time.sleep(0.02)
        yield


def claimed(cpus: Iterable[int]) -> frozenset[int]:
    """Those of these cores that a session holds, of this process or another. To ask takes none of them."""
    return frozenset(cpu for cpu in cpus if LINUX and _is_held(cpu))


def _is_held(cpu: int) -> bool:
    with _socket() as asking:
        return asking.connect_ex(f"{NAME}{cpu}") == 0


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
