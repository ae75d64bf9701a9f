"""The machine's cores: how many a container's limits allow, which sessions claimed them, who gets which.

A session holds a core by a Unix socket with the core's number in its name, in Linux's abstract namespace: there is one
of a name, no file is left behind, and the system frees it when its holder dies.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path, PurePosixPath

from qod_magics.errors import UsageProblem

#: Bytes from which v1 means no limit: it has the largest number of pages then.
_UNLIMITED = 1 << 60


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the CPU quota of this process's control groups, CPU seconds per second; None: unlimited.

    The smallest quota of all its groups, by cgroup v2 (`cpu.max`) or v1 (`cpu.cfs_quota_us`). `root`: where /proc and
    /sys are.
    """
    found = [quota for group in _groups(root, "cpu") if (quota := _of(group)) is not None]
    return min(found, default=None)


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Memory that a control group may use, in bytes."""

    bytes: int
    free: int  #: of these


def memory_limit(root: Path = Path("/")) -> MemoryLimit | None:
    """Return the memory limit of this process's control groups of which the least is free; None: unlimited.

    By cgroup v2 (`memory.max`) or v1 (`memory.limit_in_bytes`). `root`: where /proc and /sys are.
    """
    found = [limit for group in _groups(root, "memory") if (limit := _memory_of(group)) is not None]
    return min(found, key=lambda limit: limit.free, default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the directories of this process's groups that a controller has, and of all their ancestors."""
    mounted = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            tops = [mounted, mounted / "unified"]
        elif controller in controllers.split(","):
            tops = [mounted / controllers, mounted / controller]
        else:
            continue
        parts = PurePosixPath(path).parts[1:]
        for top in tops:  # in a container the path may be the host's, with only its top mounted
            yield from (top.joinpath(*parts[:depth]) for depth in range(len(parts) + 1))


def _of(group: Path) -> float | None:
    try:
        if (group / "cpu.max").is_file():
            quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text(encoding="utf-8")
            period = (group / "cpu.cfs_period_us").read_text(encoding="utf-8")
        return int(quota) / int(period) if int(quota) > 0 and int(period) > 0 else None
    except (OSError, ValueError):  # no quota, or "max"
        return None


def _memory_of(group: Path) -> MemoryLimit | None:
    for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        try:
            allowed = int((group / limit).read_text(encoding="utf-8"))
            used = int((group / usage).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # no limit, or "max"
            continue
        return MemoryLimit(allowed, max(allowed - used, 0)) if allowed < _UNLIMITED else None
    return None


class Machine:
    """The machine that this process runs on, as far as its system tells."""

    def __repr__(self) -> str:
        return f"machine with the cores {self.cores()}"

    @property
    def pins(self) -> bool:
        """Return whether this system can pin processes to cores. Linux can."""
        return hasattr(os, "sched_setaffinity")

    def cores(self) -> list[int]:
        """Return the numbers of the cores that this process may use."""
        return sorted(os.sched_getaffinity(0)) if self.pins else list(range(self.count()))

    def count(self) -> int:
        """Return the number of cores, whether this process may use them or not."""
        return os.cpu_count() or 1

    def quota(self) -> float | None:
        """Return the CPU quota of this process, CPU seconds per second; None: unlimited."""
        return cpu_quota()

    def memory(self) -> MemoryLimit | None:
        """Return the memory limit of this process; None: unlimited."""
        return memory_limit()


#: Asked by all functions below.
HERE = Machine()
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
    """Hold a lock between the choice of cores and their claim: one session of the machine at a time, else two that
    start at once take the same. After `timeout_s` without its turn, a session goes on: a shared core is slow, and
    reported."""
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
    """Return those of these cores that a session holds, of this process or another. Asking claims none of them."""
    return frozenset(cpu for cpu in cpus if LINUX and _is_held(cpu))


def _is_held(cpu: int) -> bool:
    with _socket() as asking:
        return asking.connect_ex(f"{NAME}{cpu}") == 0


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def can_pin() -> bool:
    """Return whether this system can pin processes to cores. Linux can."""
    return HERE.pins


def every_core() -> list[int]:
    """Return the numbers of the cores that this process may use."""
    return HERE.cores()


def core_count() -> int:
    """Return the number of the machine's cores, whether this process may use them or not."""
    return HERE.count()


def usable_cores() -> list[int]:
    """Return the cores covered by a container's quota, rounded up: with 1.5 CPUs, two."""
    quota = HERE.quota()
    return every_core() if quota is None else every_core()[: max(ceil(quota), 1)]


def is_limited() -> bool:
    """Return whether a quota allows fewer CPUs than there are cores.

    It limits CPU on whichever core: pinned to some, a process would share them with those of other containers that
    chose alike, while other cores are idle.
    """
    return len(usable_cores()) < len(every_core())


def planned_cpus(cores: int) -> float:
    """Return the CPU capacity of this number of cores, in cores: less than their number under a quota."""
    quota = HERE.quota()
    return float(cores) if quota is None else min(cores * quota / max(ceil(quota), 1), quota)


def core_sets(count: int, cores: int | None) -> list[frozenset[int] | None]:
    """Return the cores of each of `count` local task managers: disjoint while the machine has enough, else shared;
    those that another session holds last."""
    every = _unclaimed_first()
    if cores is not None and cores < 1:
        raise UsageProblem(f"a task manager needs 1 core or more, not {cores}", value=cores, rule="positive")
    if count == 0:
        return []
    each = cores or max(len(every) // count, 1)
    if each > len(every):
        raise UsageProblem(
            f"{each} cores for each task manager, but {_has(every)}: take fewer",
            value=each,
            rule=f"at most {len(every)}",
        )
    return [frozenset(every[(i * each + j) % len(every)] for j in range(each)) for i in range(count)]


def _unclaimed_first() -> list[int]:
    usable = usable_cores()
    held = claimed(usable)
    return sorted(usable, key=lambda cpu: cpu in held)


def check_cores(cpus: Collection[int] | None) -> None:
    """Raise UsageProblem for cores that this machine lacks, and for none."""
    every = every_core()
    wrong = sorted(set(cpus or ()) - set(every))
    if wrong or (cpus is not None and not cpus):
        named = ", ".join(map(str, wrong)) or "none"
        raise UsageProblem(
            f"cores {named}: this machine has {', '.join(map(str, every))}", value=wrong, rule="cores of this machine"
        )


def free_cores(cores: int | None, taken: Collection[int]) -> frozenset[int] | None:
    """Return `cores` cores for one more task manager, those `taken` or held by another session last, and among these
    the ones `taken` most often; None: all free ones, at least one.

    Raises UsageProblem when the machine has fewer cores.
    """
    every = usable_cores()
    if cores is not None and not 1 <= cores <= len(every):
        raise UsageProblem(
            f"a task manager of {cores} cores: {_has(every)}, take 1 or more of them",
            value=cores,
            rule=f"at most {len(every)}",
        )
    shares = Counter(taken)
    held = claimed(every) | shares.keys()
    free = [cpu for cpu in every if cpu not in held]
    shared = sorted((cpu for cpu in reversed(every) if cpu in held), key=lambda cpu: max(shares[cpu], 1))
    return frozenset((free + shared)[: cores or max(len(free), 1)])


def _has(usable: Collection[int]) -> str:
    """Return the number of cores, and how many of them a quota leaves, as a clause."""
    every = len(every_core())
    return f"this machine has {every}" + (f", and its quota allows {len(usable)}" if len(usable) < every else "")
