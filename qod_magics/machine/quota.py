"""The CPUs that a container's quota allows: on a machine of 64 cores a pod may have 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The CPU quota of this process's control groups, CPU seconds per second; None: unlimited.

    The smallest quota of all its groups, by cgroup v2 (`cpu.max`) or v1 (`cpu.cfs_quota_us`). `root`: where /proc and
    /sys are.
    """
    found = [quota for group in _groups(root) if (quota := _of(group)) is not None]
    return min(found, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """The directories of this process's groups and of all their ancestors."""
    mounted = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            tops = [mounted, mounted / "unified"]
        elif "cpu" in controllers.split(","):
            tops = [mounted / controllers, mounted / "cpu"]
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
