"""The cores that sessions on this machine have pinned processes to, so that a new one chooses others.

Each core has a lock file in the temporary directory, which all users of the machine share. The operating system drops
a lock when its holder dies.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from qod_magics.machine.cache import try_lock


class CoreClaim:
    """Holds these cores until `release`, or the end of this process.

    Attributes:
        cpus: the cores.
        shared: those of them that were held already; this claim does not hold them.

    """

    def __init__(self, cpus: Collection[int]) -> None:
        self.cpus = frozenset(cpus)
        self._locks = ExitStack()
        self.shared = frozenset(cpu for cpu in self.cpus if not self._take(cpu))

    def __repr__(self) -> str:
        return f"claim of cores {sorted(self.cpus - self.shared)}"

    def release(self) -> None:
        """Give the cores back. Idempotent."""
        self._locks.close()

    def _take(self, cpu: int) -> bool:
        file = _open(cpu)
        if file is None:
            return True
        if not try_lock(file):
            file.close()
            return False
        self._locks.enter_context(file)
        return True


def claimed(cpus: Iterable[int]) -> frozenset[int]:
    """Those of these cores that a session holds, of this process or another."""
    return frozenset(cpu for cpu in cpus if _is_held(cpu))


def _is_held(cpu: int) -> bool:
    file = _open(cpu)
    if file is None:
        return False
    with file:
        return not try_lock(file)


def _open(cpu: int) -> IO[bytes] | None:
    """The lock file of a core; None where it can't be opened: then nobody's claims are seen."""
    directory = Path(tempfile.gettempdir()) / "qod_magics-cores"
    try:
        if not directory.is_dir():
            directory.mkdir(exist_ok=True)
            directory.chmod(0o1777)
        path = directory / str(cpu)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError:
        return None
    with suppress(OSError):  # another user's file
        path.chmod(0o666)
    return os.fdopen(descriptor, "r+b")
