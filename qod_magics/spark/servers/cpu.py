"""CPU of cores and of processes, as the operating system counts it; and what a Spark session says of itself."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import psutil

from qod_magics.spark.servers.connection import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Readings over time: monotonic seconds, and cumulative CPU seconds of each core (or of the process tree).
Samples = deque[tuple[float, tuple[float, ...]]]
_CORE = re.compile(r"^cpu(\d+) (.+)$", re.MULTILINE)


class System:
    """The operating system's counters of CPU time, and its clock."""

    #: Linux's counters of each core by its number, in ticks. psutil has them by position: behind a core that is
    #: offline, positions are not numbers.
    stat = Path("/proc/stat")

    def __repr__(self) -> str:
        return f"counters of CPU time in {self.stat}"

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def tick_s(self) -> float:
        """Seconds of a tick in `stat`."""
        return 1.0 / os.sysconf("SC_CLK_TCK")

    def cores(self) -> Sequence[Any]:
        """Psutil's times of each core."""
        found: Sequence[Any] = psutil.cpu_times(percpu=True)
        return found

    def process(self, pid: int) -> psutil.Process:
        """Raises psutil.Error: there is none."""
        return psutil.Process(pid)


SYSTEM = System()


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
    system: System = field(default=SYSTEM, repr=False)
    _samples: Samples = field(default_factory=_two_minutes, init=False)

    @property
    def cores(self) -> int:
        """Number of the cores."""
        return len(self.cpus)

    def sample(self) -> None:
        """Take a sample."""
        counted = core_seconds(self.system)
        used = tuple(counted.get(cpu, 0.0) for cpu in self.cpus)  # one that is offline by now does nothing
        self._samples.append((self.system.now(), used))

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
    system: System = field(default=SYSTEM, repr=False)
    _samples: Samples = field(default_factory=_two_minutes, init=False)
    _last: dict[int, float] = field(default_factory=dict, init=False)
    _used: float = field(default=0.0, init=False)
    _sampling: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def sample(self) -> None:
        """Take a sample."""
        with self._sampling:
            now, seconds = self.system.now(), dict(_cpu_seconds(self.root, system=self.system))
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
    system: System = field(default=SYSTEM, repr=False)
    _last: tuple[float, dict[int, float]] | None = field(default=None, init=False)

    def read(self) -> tuple[float, float]:
        """CPU in % of one core, and over how many seconds; (0, 0) at the first call, which begins the measurement."""
        now = self.system.now()
        python = partial(_is_python_below, self.root)
        used = dict(_cpu_seconds(self.root, python, self.system))
        before, self._last = self._last, (now, used)
        if before is None or now <= before[0]:
            return 0.0, 0.0
        seconds = sum(max(spent - before[1].get(pid, 0.0), 0.0) for pid, spent in used.items())
        return 100.0 * seconds / (now - before[0]), now - before[0]


def _is_python_below(root: int, process: psutil.Process) -> bool:
    return process.pid != root and "python" in process.name().lower()  # on macOS, "Python"


def core_seconds(system: System = SYSTEM) -> dict[int, float]:
    """CPU seconds that each core was busy so far, by its number; one that is offline is missing.

    An LXC container has its cores counted from 0 on, whichever of the machine's they are: their numbers are then not
    those that processes are pinned to.
    """
    try:
        counters = system.stat.read_text("ascii")
    except OSError:  # not Linux
        return {number: sum(times) - times.idle for number, times in enumerate(system.cores())}
    tick_s = system.tick_s()
    found: dict[int, float] = {}
    for number, line in _CORE.findall(counters):
        # user, nice, system, idle, iowait, irq, softirq, steal; guests, which follow, are in the first two
        ticks = [int(each) for each in line.split()[:8]]
        found[int(number)] = (sum(ticks) - sum(ticks[3:5])) * tick_s
    return found


def cpu_seconds(root: int) -> float:
    """CPU seconds so far of a process and its descendants."""
    return sum(seconds for _, seconds in _cpu_seconds(root))


def _cpu_seconds(
    root: int, which: Callable[[psutil.Process], bool] = lambda _: True, system: System = SYSTEM
) -> Iterable[tuple[int, float]]:
    """Process id and CPU seconds so far of a process and its descendants, of those running that `which` selects."""
    try:
        top = system.process(root)
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


class TaskTime(NamedTuple):
    """Time of the tasks of a batch, seconds."""

    cpu_s: float
    run_s: float  #: from begin to end of each task, with what it waited for its core


# --- Settings and address of a session --------------------------------------------------------------------------------


def adopt(spark: SparkSession, conf: Mapping[str, str]) -> dict[str, str | None]:
    """Apply these settings to a session of ours; returns those that the server refuses to change, with the values that
    they keep.

    Raises:
        Exception: whatever Spark raises when the session is gone.

    """
    spark.sql("SELECT 1").collect()
    before = {key: setting(spark, key) for key in conf}
    refused = {}
    for key, value in before.items():
        if value != conf[key]:
            try:
                spark.conf.set(key, conf[key])
            except Exception:
                refused[key] = value
    return refused


#: Rows of a range that is cut into as many parts as tasks run at once, at most.
_RANGE = 100_000
#: Settings that say otherwise into how many.
_PARTS = ("spark.default.parallelism", "spark.sql.leafNodeDefaultParallelism")


def tasks_at_once(spark: SparkSession) -> float | None:
    """Return how many tasks its executors run at the same time, two at least: Spark cuts a range into so many parts.
    It counts twice, since an executor may come only for the first count. None where a setting says into how many, or
    Spark does not answer."""
    if any(setting(spark, key) is not None for key in _PARTS):
        return None
    with suppress(Exception):
        parts = f"SELECT spark_partition_id() AS part FROM range({_RANGE})"
        counts = [spark.sql(f"SELECT max(part) + 1 FROM ({parts})").collect()[0][0] for _ in range(2)]
        return float(counts[-1])
    return None


def setting(spark: SparkSession, key: str) -> str | None:
    """A setting of the session; None if it is not set or the session does not answer."""
    try:
        value: str | None = spark.conf.get(key)
        return value
    except Exception:
        return None


def is_here(spark: SparkSession) -> bool:
    """Return whether the session computes on this machine and nowhere else."""
    if not (setting(spark, "spark.master") or "").startswith("local"):
        return False
    host = (setting(spark, "spark.driver.host") or "localhost").strip("[]")
    own = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
    return host in own or host in ("localhost", socket.gethostname(), socket.getfqdn())


def endpoint(spark: SparkSession) -> str | None:
    """`host:port` of a Connect session's server; None for a classic session."""
    if not is_connect(spark):
        return None
    found: str = spark.client._builder.endpoint
    return found


def refuses(endpoint: str) -> bool:
    """Whether nothing listens at this `host:port`: its process has ended. No answer in time is no proof of that."""
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), 1.0):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
