"""CPU of cores and of processes, as the operating system counts it."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import psutil


@dataclass(slots=True)
class CoreMeter:
    """How busy some cores are, with all processes; % of one core, summed over the cores.

    `sample` is called about once a second; `mean` answers for any stretch of the last minute, so that the CPU of the
    cores and that of the tasks on them, whose batches end when they end, can be compared over the same time.
    Time that a hypervisor took away (steal) counts as busy: the tasks can't have it.
    """

    cpus: tuple[int, ...]
    _samples: deque[tuple[float, tuple[float, ...]]] = field(default_factory=lambda: deque(maxlen=128), init=False)

    def sample(self) -> None:
        """Look now."""
        every = psutil.cpu_times(percpu=True)
        used = []
        for cpu in self.cpus:
            times = every[cpu]
            guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
            used.append(sum(times) - guests - times.idle - getattr(times, "iowait", 0.0))
        self._samples.append((time.monotonic(), tuple(used)))

    def mean(self, start: float, end: float) -> float | None:
        """From `start` to `end` (monotonic seconds), as far as samples reach; None before there are two."""
        samples = list(self._samples)
        if len(samples) < 2:
            return None
        times = [at for at, _ in samples]
        end = min(max(end, times[1]), times[-1])
        start = min(max(start, times[0]), end - 0.5 * (times[1] - times[0]))
        busy = 0.0
        for index in range(len(self.cpus)):
            used = [values[index] for _, values in samples]
            share = (_at(times, used, end) - _at(times, used, start)) / (end - start)
            busy += 100.0 * min(max(share, 0.0), 1.0)
        return busy


def _at(times: list[float], values: list[float], time: float) -> float:
    """Linear between samples, flat outside."""
    after = bisect_right(times, time)
    if after == 0:
        return values[0]
    if after == len(times):
        return values[-1]
    share = (time - times[after - 1]) / (times[after] - times[after - 1])
    return values[after - 1] + share * (values[after] - values[after - 1])


@dataclass(slots=True)
class PythonMeter:
    """CPU of the Python workers below a JVM since the last call."""

    root: int
    _last: tuple[float, dict[int, float]] | None = field(default=None, init=False)

    def read(self) -> tuple[float, float]:
        """CPU in % of one core, and over how many seconds; (0, 0) at the first call, which begins the measurement."""
        now = time.monotonic()
        used = dict(_python_seconds(self.root))
        before, self._last = self._last, (now, used)
        if before is None or now <= before[0]:
            return 0.0, 0.0
        seconds = sum(max(spent - before[1].get(pid, 0.0), 0.0) for pid, spent in used.items())
        return 100.0 * seconds / (now - before[0]), now - before[0]


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
