"""The measured load as arrays: instances by position, CPU of tasks, CPU available on task managers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from math import fsum

from qod_magics.core.snapshot import Snapshot
from qod_magics.core.table import column
from qod_magics.core.topology import Topology


@dataclass(frozen=True, slots=True)
class Load:
    """One pass over the instances of a snapshot. CPU in % of one core, rates in rows/s."""

    task_of: list[int]  #: by instance: position of its task
    manager_of: list[int]  #: by instance: position of its task manager
    least_in_rate: list[float]  #: by task: the lowest input rate of its instances
    cpu: list[float]  #: by task: cpu(t), that of the instance with the lowest input rate (model item 4)
    width: list[int]  #: by task: how many instances
    warming: list[bool]  #: by task manager: an instance on it is warming up
    available: list[float]  #: by task manager: aCpu(tm) at the start of the cycle

    @classmethod
    def of(cls, snapshot: Snapshot, topology: Topology) -> Load:
        """The load of a valid snapshot."""
        managers = {manager.id: i for i, manager in enumerate(snapshot.task_managers)}
        tasks = len(snapshot.tasks)
        task_of = list(map(topology.position.__getitem__, column(snapshot.instances, "task")))
        manager_of = list(map(managers.__getitem__, column(snapshot.instances, "task_manager")))
        least_in_rate = [0.0] * tasks
        cpu = [0.0] * tasks
        width = [0] * tasks
        warming = [False] * len(managers)
        used: list[list[float]] = [[] for _ in managers]
        measured = column(snapshot.instances, "in_rate"), column(snapshot.instances, "cpu")
        for t, manager, in_rate, load in zip(task_of, manager_of, *measured, strict=True):
            used[manager].append(load)
            if not width[t] or in_rate < least_in_rate[t]:
                least_in_rate[t] = in_rate
                cpu[t] = load
            elif in_rate == least_in_rate[t] and load > cpu[t]:
                cpu[t] = load
            width[t] += 1
        for manager in compress(manager_of, column(snapshot.instances, "warming_up")):
            warming[manager] = True
        available = []
        for host, loads in zip(snapshot.task_managers, used, strict=True):
            capacity = whole_cpu(host.cores)
            available.append(min(max(capacity - host.cpu + total(loads), 0.0), capacity))
        return cls(task_of, manager_of, least_in_rate, cpu, width, warming, available)


def load_of(snapshot: Snapshot, topology: Topology) -> Load:
    """The load of a valid snapshot, computed once per snapshot; do not change it. `topology` is that of its tasks."""
    return snapshot.derived("load", lambda: Load.of(snapshot, topology))


def warming_up(snapshot: Snapshot) -> Mapping[str, list[str]]:
    """The instances that warm up, by task manager."""
    found: dict[str, list[str]] = {}
    if True not in column(snapshot.instances, "warming_up"):
        return found
    for instance in snapshot.instances:
        if instance.warming_up:
            found.setdefault(instance.task_manager, []).append(instance.id)
    return found


def whole_cpu(cores: float) -> float:
    """100 % for each core; finite, so that differences of CPU are never NaN, whatever `cores` a snapshot claims."""
    return min(100.0 * cores, sys.float_info.max)


def total(loads: list[float]) -> float:
    """The sum, correctly rounded, or infinity on overflow."""
    try:
        return fsum(loads)
    except OverflowError:
        return float("inf")
