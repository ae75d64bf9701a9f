"""The application's DAG as arrays over task positions: what depends on the declaration alone, not on the load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qod_magics.core.snapshot import Snapshot, Task
from qod_magics.core.table import column

Declared = list[Sequence[Any]]  #: the columns that determine a topology


def declared(tasks: Sequence[Task]) -> Declared:
    """The declared fields of the tasks, without measurements; fast to compare if the tasks are a `Table`."""
    return [column(tasks, name) for name in ("id", "upstream", "priority", "min_accuracy")]


@dataclass(frozen=True, slots=True)
class Topology:
    """Tasks by position in the snapshot; lists of positions instead of names. Built in O(tasks + streams)."""

    position: Mapping[str, int]  #: task id -> position
    order: Sequence[int]  #: sources before their consumers
    upstream: Sequence[Sequence[int]]
    downstream: Sequence[Sequence[int]]  #: empty: a query
    priority: list[int]  #: p(t), the highest of its queries (model item 1)
    min_accuracy: list[float]  #: minAc(t), the highest of its queries (model item 1), fraction of 1

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> Topology:
        """The topology of valid tasks, listed in any order."""
        return cls.following(declared(tasks))

    @classmethod
    def following(cls, found: Declared) -> Topology:
        """The same from the tasks' `declared` fields."""
        ids, upstream_ids, priorities, minimums = found
        position = {name: i for i, name in enumerate(ids)}
        none: list[int] = []  # shared: a list per task would mostly burden the garbage collector
        upstream = [none] * len(ids)
        downstream = [none] * len(ids)
        sorted_already = True
        last: Sequence[str] = ()
        sources = none
        for i, names in enumerate(upstream_ids):
            if names:
                if names != last:  # neighbours often read the same tasks
                    last, sources = names, [position[name] for name in names]
                upstream[i] = sources
                for source in sources:
                    if downstream[source] is none:
                        downstream[source] = [i]
                    else:
                        downstream[source].append(i)
                    if source > i:
                        sorted_already = False
        order = range(len(ids)) if sorted_already else _topological_order(upstream, downstream)
        # a task that feeds others starts at the lowest, and is raised to the highest of its queries
        lowest = min([given for given in priorities if given is not None], default=0)
        priority = [lowest if given is None else given for given in priorities]
        min_accuracy = [given or 0.0 for given in minimums]
        for i in reversed(order):
            if upstream[i]:
                highest, most_accurate = priority[i], min_accuracy[i]
                for source in upstream[i]:
                    if highest > priority[source]:
                        priority[source] = highest
                    if most_accurate > min_accuracy[source]:
                        min_accuracy[source] = most_accurate
        return cls(position, order, upstream, downstream, priority, min_accuracy)


def _topological_order(upstream: Sequence[Sequence[int]], downstream: Sequence[Sequence[int]]) -> list[int]:
    waiting = [len(sources) for sources in upstream]
    order = [i for i, count in enumerate(waiting) if not count]
    for i in order:  # grows while it is walked
        for consumer in downstream[i]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                order.append(consumer)
    return order


def restrictions(snapshot: Snapshot) -> Mapping[str, tuple[int, float]]:
    """(p(t), minAc(t)) of every task (model item 1), from its queries. Warm-up ends at minAc(t)."""
    topology = Topology.of(snapshot.tasks)
    return {
        task.id: restriction
        for task, restriction in zip(
            snapshot.tasks, zip(topology.priority, topology.min_accuracy, strict=True), strict=True
        )
    }
