"""The CPUs that a container's quota allows: on a machine of 64 cores a pod may have 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The CPU time that this process and all others of its control groups may use a second; None: as much as there is.

    The least of all groups that it is in, by cgroup v2 (`cpu.max`) or v1 (`cpu.cfs_quota_us`). `root`: where /proc and
    /sys are.
    """
    found = [quota for group in _groups(root) if (quota := _of(group)) is not None]
    return min(found, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """The directories of the groups of this process, and of all those above them."""
    mounted = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
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
        for top in tops:  # in a container the path may be the host's, of which only the top is here
            yield from (top.joinpath(*parts[:depth]) for depth in range(len(parts) + 1))


def _of(group: Path) -> float | None:
    try:
        if (group / "cpu.max").is_file():
            quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text(encoding="utf-8")
            period = (group / "cpu.cfs_period_us").read_text(encoding="utf-8")
        return int(quota) / int(period) if int(quota) > 0 and int(period) > 0 else None
    except (OSError, ValueError):  # there is none, or it is "max"
        return None
