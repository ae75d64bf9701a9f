"""The cores that sessions on this machine have pinned processes to, so that a new one chooses others.

A session holds a core by a Unix socket with the core's number in its name, in Linux's abstract namespace: there is one
of a name, no file is left behind, and the system frees it when its holder dies.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Collection, Iterable
from contextlib import ExitStack

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
        holding = _hold(cpu)
        if holding is not None:
            self._held.enter_context(holding)
        return holding is not None


def claimed(cpus: Iterable[int]) -> frozenset[int]:
    """Those of these cores that a session holds, of this process or another."""
    found = set()
    for cpu in cpus:
        holding = _hold(cpu)
        if holding is None:
            found.add(cpu)
        else:
            holding.close()
    return frozenset(found)


def _hold(cpu: int) -> socket.socket | None:
    """The socket that holds a core; None if another one does. Elsewhere than on Linux, where nothing is pinned, every
    core is free."""
    holding = socket.socket(socket.AF_UNIX if sys.platform == "linux" else socket.AF_INET, socket.SOCK_DGRAM)
    if sys.platform == "linux":
        try:
            holding.bind(f"{NAME}{cpu}")
        except OSError:
            holding.close()
            return None
    return holding
