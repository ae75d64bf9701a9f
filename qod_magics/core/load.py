"""Which instances run where, the measured load as arrays, and the current accuracy of tasks. Pure."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from math import fsum
from typing import Any

from qod_magics.core.dag import Dag, Topology
from qod_magics.core.snapshot import OUT, Snapshot, column


@dataclass(frozen=True)
class Hosting:
    """Instances, tasks and task managers by their positions in the snapshot. Built in O(n log n) for n instances."""

    topology: Topology  #: of the tasks
    declared: list[Sequence[Any]]  #: the columns that determine it
    task_of: list[int]  #: by instance: its task
    manager_of: list[int]  #: by instance: its task manager
    first: list[int]  #: by task: its first instance
    others: list[int]  #: the instances that are not the first of their task
    width: list[int]  #: by task: how many instances
    needing: Sequence[int]  #: the instances that need CPU: all but those that are out
    by_id: list[int]  #: the same in the order of their ids, which settles ties
    hosted: list[list[int]]  #: by task manager: those that need CPU there, in the order of their ids

    @classmethod
    def of(cls, snapshot: Snapshot, topology: Topology, last: Hosting | None = None) -> Hosting:
        """Return the hosting of a valid snapshot; `last` itself if nothing changed. `topology` is that of its tasks."""
        names = column(snapshot.task_managers, "id")
        ids, tasks, managers = (column(snapshot.instances, name) for name in ("id", "task", "task_manager"))
        states = column(snapshot.instances, "state")
        needing = range(len(ids)) if OUT.isdisjoint(states) else [i for i, s in enumerate(states) if s not in OUT]
        found = [names, ids, tasks, managers, needing]
        if last is not None and last.topology is topology and last.declared == found:
            return last
        task_of = list(map(topology.position.__getitem__, tasks))
        manager_of = list(map({name: m for m, name in enumerate(names)}.__getitem__, managers))
        width = [0] * len(topology.position)
        first = [0] * len(width)
        others = []
        for i, t in enumerate(task_of):
            if width[t]:
                others.append(i)
            else:
                first[t] = i
            width[t] += 1
        by_id = sorted(needing, key=ids.__getitem__)
        hosted: list[list[int]] = [[] for _ in names]
        for i in by_id:
            hosted[manager_of[i]].append(i)
        return cls(topology, found, task_of, manager_of, first, others, width, needing, by_id, hosted)

    @cached_property
    def by_priority(self) -> Mapping[int, Mapping[int, list[int]]]:
        """p(t) -> task manager -> the tasks of its instances with it, in the order of the instances' ids."""
        return self.grouped(self.by_id)

    def grouped(self, instances: Sequence[int]) -> Mapping[int, Mapping[int, list[int]]]:
        """Return p(t) -> task manager -> tasks as `by_priority`, of these instances alone, in their order."""
        groups: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        task_of, manager_of, priority = self.task_of, self.manager_of, self.topology.priority
        for i in instances:
            t = task_of[i]
            groups[priority[t]][manager_of[i]].append(t)
        return groups


@dataclass(frozen=True, slots=True)
class Load:
    """One pass over the instances of a snapshot. CPU in % of one core, rates in rows/s."""

    task_of: list[int]  #: by instance: position of its task
    manager_of: list[int]  #: by instance: position of its task manager
    needing: Sequence[int]  #: the instances that need CPU: all but those that are out
    least_in_rate: list[float]  #: by task: the lowest input rate of its instances
    cpu: list[float]  #: by task: cpu(t), that of the instance with the lowest input rate (model item 4)
    width: list[int]  #: by task: how many instances
    warming: list[bool]  #: by task manager: an instance on it is warming up
    available: list[float]  #: by task manager: aCpu(tm) at the start of the cycle

    @classmethod
    def of(cls, snapshot: Snapshot, hosting: Hosting) -> Load:
        """Return the load of a valid snapshot; `hosting` is that of its instances."""
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
        used: list[list[float]] = [[] for _ in snapshot.task_managers]
        for manager, cpu_there in zip(hosting.manager_of, loads, strict=True):
            used[manager].append(cpu_there)
        available = []
        for host, there in zip(snapshot.task_managers, used, strict=True):
            capacity = whole_cpu(host.cores)
            available.append(min(max(capacity - host.cpu + total(there), 0.0), capacity))
        return cls(task_of, hosting.manager_of, hosting.needing, least_in_rate, cpu, hosting.width, warming, available)

    def of_needing(self) -> Iterator[tuple[int, int]]:
        """Yield task and task manager of each instance that needs CPU."""
        return ((self.task_of[i], self.manager_of[i]) for i in self.needing)


def load_of(snapshot: Snapshot, topology: Topology, hosting: Hosting | None = None) -> Load:
    """Return the load of a valid snapshot, computed once per snapshot; do not change it. `topology` is that of its
    tasks, `hosting` that of its instances where it is known."""
    return snapshot.derived("load", lambda: Load.of(snapshot, hosting or Hosting.of(snapshot, topology)))


def warming_up(snapshot: Snapshot) -> Mapping[str, list[str]]:
    """Return the instances that warm up, by task manager."""
    found: dict[str, list[str]] = {}
    if True not in column(snapshot.instances, "warming_up"):
        return found
    for instance in snapshot.instances:
        if instance.warming_up:
            found.setdefault(instance.task_manager, []).append(instance.id)
    return found


def whole_cpu(cores: float) -> float:
    """Return 100 % for each core; finite, so that differences of CPU are never NaN, whatever `cores` a snapshot
    claims."""
    return min(100.0 * cores, sys.float_info.max)


def total(loads: list[float]) -> float:
    """Return the sum, correctly rounded, or infinity on overflow."""
    try:
        return fsum(loads)
    except OverflowError:
        return float("inf")


FULL_ACCURACY = 0.999  #: measured accuracy that counts as 1


def current_accuracy(snapshot: Snapshot) -> Mapping[str, float]:
    """Return curAc(t) by task of a valid snapshot: the share of its input that it reads, times the lowest curAc
    upstream."""
    dag = Dag.of(snapshot)
    return dag.tasks.mapping(current_accuracies(snapshot, dag.topology))


def current_accuracies(snapshot: Snapshot, topology: Topology) -> Sequence[float]:
    """Return curAc(t) by task position, computed once per snapshot; do not change it. `topology` is that of its tasks.

    Stream Economics, model items 2 and 3, Eqs. 3.4 and 3.5: the instance with the lowest input rate counts for a task.
    """
    return snapshot.derived("current accuracy", lambda: _measured(snapshot, topology))


def _measured(snapshot: Snapshot, topology: Topology) -> list[float]:
    load = load_of(snapshot, topology)
    least_in_rate, width = load.least_in_rate, load.width
    arriving = [rate or 0.0 for rate in column(snapshot.tasks, "external_rate")]
    targets = map(topology.position.__getitem__, column(snapshot.streams, "target"))
    for target, rate in zip(targets, column(snapshot.streams, "out_rate"), strict=True):
        arriving[target] += rate
    upstream = topology.upstream
    due = [rate / n for rate, n in zip(arriving, width, strict=True)]  # rows/s each instance would read if it kept up
    current = [least / rate if least < rate else 1.0 for least, rate in zip(least_in_rate, due, strict=True)]
    for t in topology.order:
        if upstream[t]:
            above = 1.0
            for source in upstream[t]:
                if current[source] < above:
                    above = current[source]
            current[t] *= above
    return current
