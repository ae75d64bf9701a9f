"""CPU of cores and of processes, as the operating system counts it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import psutil


@dataclass(slots=True)
class CoreMeter:
    """How busy some cores were since the last call, with all processes; % of one core, summed over the cores.

    Time that a hypervisor took away (steal) counts as busy: the tasks can't have it.
    """

    cpus: tuple[int, ...]
    _last: list[tuple[float, float]] | None = field(default=None, init=False)

    def read(self) -> float | None:
        """None at the first call, which begins the measurement."""
        every = psutil.cpu_times(percpu=True)
        now = []
        for cpu in self.cpus:
            times = every[cpu]
            total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
            now.append((total, total - times.idle - getattr(times, "iowait", 0.0)))
        before, self._last = self._last, now
        if before is None:
            return None
        busy = 0.0
        for (total, used), (total_before, used_before) in zip(now, before, strict=True):
            if total > total_before:
                busy += 100.0 * min(max((used - used_before) / (total - total_before), 0.0), 1.0)
        return busy


@dataclass(slots=True)
class PythonMeter:
    """CPU of the Python workers below a JVM since the last call, % of one core."""

    root: int
    _last: tuple[float, dict[int, float]] | None = field(default=None, init=False)

    def read(self) -> float:
        """0 at the first call."""
        now = time.monotonic()
        used = dict(_python_seconds(self.root))
        before, self._last = self._last, (now, used)
        if before is None or now <= before[0]:
            return 0.0
        seconds = sum(max(spent - before[1].get(pid, 0.0), 0.0) for pid, spent in used.items())
        return 100.0 * seconds / (now - before[0])


def _python_seconds(root: int) -> Iterable[tuple[int, float]]:
    try:
        children = psutil.Process(root).children(recursive=True)
    except psutil.Error:
        return
    for child in children:
        try:
            if "python" in child.name():
                times = child.cpu_times()
                yield child.pid, times.user + times.system
        except psutil.Error:
            continue
