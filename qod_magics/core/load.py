"""The measured load as arrays: instances by position, CPU of tasks, CPU available on task managers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from math import fsum

from qod_magics.core.hosting import Hosting
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
    def of(cls, snapshot: Snapshot, hosting: Hosting) -> Load:
        """The load of a valid snapshot; `hosting` is that of its instances."""
        in_rates, loads = column(snapshot.instances, "in_rate"), column(snapshot.instances, "cpu")
        least_in_rate = [in_rates[i] for i in hosting.first]
        cpu = [loads[i] for i in hosting.first]
        task_of = hosting.task_of
        for i in hosting.others:
            t, in_rate = task_of[i], in_rates[i]
            if in_rate < least_in_rate[t]:
                least_in_rate[t] = in_rate
                cpu[t] = loads[i]
            elif in_rate == least_in_rate[t] and loads[i] > cpu[t]:
                cpu[t] = loads[i]
        warming = [False] * len(snapshot.task_managers)
        for manager in compress(hosting.manager_of, column(snapshot.instances, "warming_up")):
            warming[manager] = True
        available = []
        for host, instances in zip(snapshot.task_managers, hosting.hosted, strict=True):
            capacity = whole_cpu(host.cores)
            used = total([loads[i] for i in instances])
            available.append(min(max(capacity - host.cpu + used, 0.0), capacity))
        return cls(task_of, hosting.manager_of, least_in_rate, cpu, hosting.width, warming, available)


def load_of(snapshot: Snapshot, topology: Topology, hosting: Hosting | None = None) -> Load:
    """The load of a valid snapshot, computed once per snapshot; do not change it. `topology` is that of its tasks,
    `hosting` that of its instances where it is known."""
    return snapshot.derived("load", lambda: Load.of(snapshot, hosting or Hosting.of(snapshot, topology)))


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
