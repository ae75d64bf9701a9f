"""Which instances run where, as arrays: the same from cycle to cycle while no instance comes, goes or moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from qod_magics.core.snapshot import Snapshot
from qod_magics.core.table import column
from qod_magics.core.topology import Topology


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
    by_id: list[int]  #: the instances in the order of their ids, which settles ties
    hosted: list[list[int]]  #: by task manager: its instances, in the order of their ids

    @classmethod
    def of(cls, snapshot: Snapshot, topology: Topology, last: Hosting | None = None) -> Hosting:
        """That of a valid snapshot; `last` itself if it is the same. `topology` is that of the snapshot's tasks."""
        names = column(snapshot.task_managers, "id")
        ids, tasks, managers = (column(snapshot.instances, name) for name in ("id", "task", "task_manager"))
        found = [names, ids, tasks, managers]
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
        by_id = sorted(range(len(ids)), key=ids.__getitem__)
        hosted: list[list[int]] = [[] for _ in names]
        for i in by_id:
            hosted[manager_of[i]].append(i)
        return cls(topology, found, task_of, manager_of, first, others, width, by_id, hosted)

    @cached_property
    def by_priority(self) -> Mapping[int, Mapping[int, list[int]]]:
        """p(t) -> task manager -> the tasks of its instances with it, in the order of the instances' ids."""
        return self.grouped(self.by_id)

    def grouped(self, instances: Sequence[int]) -> Mapping[int, Mapping[int, list[int]]]:
        """The same for these instances alone, in their order."""
        groups: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        task_of, manager_of, priority = self.task_of, self.manager_of, self.topology.priority
        for i in instances:
            t = task_of[i]
            groups[priority[t]][manager_of[i]].append(t)
        return groups
