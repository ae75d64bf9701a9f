"""The CPUs and the memory that a container's limits allow: on a machine of 64 cores a pod may have 2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

#: Bytes from which v1 means no limit: it has the largest number of pages then.
UNLIMITED = 1 << 60


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The CPU quota of this process's control groups, CPU seconds per second; None: unlimited.

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
    """The memory limit of this process's control groups of which the least is free; None: unlimited.

    By cgroup v2 (`memory.max`) or v1 (`memory.limit_in_bytes`). `root`: where /proc and /sys are.
    """
    found = [limit for group in _groups(root, "memory") if (limit := _memory_of(group)) is not None]
    return min(found, key=lambda limit: limit.free, default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The directories of this process's groups that a controller has, and of all their ancestors."""
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
        return MemoryLimit(allowed, max(allowed - used, 0)) if allowed < UNLIMITED else None
    return None
