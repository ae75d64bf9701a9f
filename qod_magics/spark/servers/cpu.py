"""CPU of cores and of processes, as the operating system counts it."""

from __future__ import annotations

import os
import re
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

#: Readings over time: monotonic seconds, and cumulative CPU seconds of each core (or of the process tree).
Samples = deque[tuple[float, tuple[float, ...]]]
#: Linux's counters of each core by its number, in ticks. psutil has them by position: behind a core that is offline,
#: positions are not numbers.
_STAT = Path("/proc/stat")
_CORE = re.compile(r"^cpu(\d+) (.+)$", re.MULTILINE)


def _two_minutes() -> Samples:
    return deque(maxlen=128)


class CpuMeter(Protocol):
    """CPU of a task manager, % of one core.

    `sample` is called about once a second, by any thread; `mean` covers any interval of the last minute, so that this
    CPU can be compared with that of the tasks, which is known per batch, over the same time.
    """

    @property
    def cores(self) -> int:
        """Number of cores of the task manager."""

    def sample(self) -> None:
        """Take a sample."""

    def mean(self, start: float, end: float) -> float | None:
        """The mean from `start` to `end` (monotonic seconds), within the samples; None before there are two."""


@dataclass(slots=True)
class CoreMeter:
    """Utilization of some cores by all processes; % of one core, summed over the cores. For processes pinned to them.

    Time taken by the hypervisor (steal) counts as busy: the tasks can't use it.
    """

    cpus: tuple[int, ...]
    _samples: Samples = field(default_factory=_two_minutes, init=False)

    @property
    def cores(self) -> int:
        """Number of the cores."""
        return len(self.cpus)

    def sample(self) -> None:
        """Take a sample."""
        counted = core_seconds()
        used = tuple(counted.get(cpu, 0.0) for cpu in self.cpus)  # one that is offline by now does nothing
        self._samples.append((time.monotonic(), used))

    def mean(self, start: float, end: float) -> float | None:
        """The mean from `start` to `end` (monotonic seconds), within the samples; None before there are two."""
        rates = _rates(list(self._samples), start, end)
        return None if rates is None else 100.0 * sum(min(max(rate, 0.0), 1.0) for rate in rates)


@dataclass(slots=True)
class ProcessMeter:
    """CPU of a process and its descendants; % of one core. For unpinned processes, which share cores with others.

    Nothing limits these to their `cores`, so the mean may exceed them. CPU that a process uses between the last sample
    and its end is missed.
    """

    root: int  #: process id
    cores: int  #: its share of the machine
    _samples: Samples = field(default_factory=_two_minutes, init=False)
    _last: dict[int, float] = field(default_factory=dict, init=False)
    _used: float = field(default=0.0, init=False)
    _sampling: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def sample(self) -> None:
        """Take a sample."""
        with self._sampling:
            now, seconds = time.monotonic(), dict(_cpu_seconds(self.root))
            self._used += sum(max(spent - self._last.get(pid, 0.0), 0.0) for pid, spent in seconds.items())
            self._last |= seconds  # one missed in a sample must not count as new
            self._samples.append((now, (self._used,)))

    def mean(self, start: float, end: float) -> float | None:
        """The mean from `start` to `end` (monotonic seconds), within the samples; None before there are two."""
        rates = _rates(list(self._samples), start, end)
        return None if rates is None else 100.0 * sum(rates)


def _rates(samples: Sequence[tuple[float, tuple[float, ...]]], start: float, end: float) -> list[float] | None:
    """CPU seconds per second, of each value sampled; None with fewer than two samples."""
    if len(samples) < 2:
        return None
    times = [at for at, _ in samples]
    end = min(max(end, times[1]), times[-1])
    start = min(max(start, times[0]), end - 0.5 * (times[1] - times[0]))
    series = zip(*(values for _, values in samples), strict=True)
    return [(_at(times, used, end) - _at(times, used, start)) / (end - start) for used in series]


def _at(times: Sequence[float], values: Sequence[float], time: float) -> float:
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
    """CPU of a JVM's Python workers since the last call."""

    root: int
    _last: tuple[float, dict[int, float]] | None = field(default=None, init=False)

    def read(self) -> tuple[float, float]:
        """CPU in % of one core, and over how many seconds; (0, 0) at the first call, which begins the measurement."""
        now = time.monotonic()
        used = dict(_cpu_seconds(self.root, lambda process: process.pid != self.root and _is_python(process)))
        before, self._last = self._last, (now, used)
        if before is None or now <= before[0]:
            return 0.0, 0.0
        seconds = sum(max(spent - before[1].get(pid, 0.0), 0.0) for pid, spent in used.items())
        return 100.0 * seconds / (now - before[0]), now - before[0]


def _is_python(process: psutil.Process) -> bool:
    return "python" in process.name().lower()  # on macOS, "Python"


def core_seconds() -> dict[int, float]:
    """CPU seconds that each core was busy so far, by its number; one that is offline is missing.

    An LXC container has its cores counted from 0 on, whichever of the machine's they are: their numbers are then not
    those that processes are pinned to.
    """
    try:
        counters = _STAT.read_text("ascii")
    except OSError:  # not Linux
        return {number: sum(times) - times.idle for number, times in enumerate(psutil.cpu_times(percpu=True))}
    tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
    found: dict[int, float] = {}
    for number, line in _CORE.findall(counters):
        # user, nice, system, idle, iowait, irq, softirq, steal; guests, which follow, are in the first two
        ticks = [int(each) for each in line.split()[:8]]
        found[int(number)] = (sum(ticks) - sum(ticks[3:5])) * tick_s
    return found


def cpu_seconds(root: int) -> float:
    """CPU seconds so far of a process and its descendants."""
    return sum(seconds for _, seconds in _cpu_seconds(root))


def _cpu_seconds(root: int, which: Callable[[psutil.Process], bool] = lambda _: True) -> Iterable[tuple[int, float]]:
    """Process id and CPU seconds so far of a process and its descendants, of those running that `which` selects."""
    try:
        top = psutil.Process(root)
        processes = [top, *top.children(recursive=True)]
    except psutil.Error:
        return
    for process in processes:
        try:
            if which(process):
                times = process.cpu_times()
                yield process.pid, times.user + times.system
        except psutil.Error:
            continue
