"""The application's DAG over task positions: what depends on the declaration alone, not on the load. Pure.

`Topology` has the DAG as arrays; `Dag` adds order, ancestors and descendants by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from qod_magics.core.plan import Edge
from qod_magics.core.snapshot import Keys, Snapshot, Task, column

Declared = list[Sequence[Any]]  #: the columns that determine a topology


def declared(tasks: Sequence[Task]) -> Declared:
    """Return the declared fields of the tasks, without measurements; fast to compare if the tasks are a `Table`."""
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
        """Return the topology of valid tasks, listed in any order."""
        return cls.following(declared(tasks))

    @classmethod
    def following(cls, found: Declared) -> Topology:
        """Return the topology of tasks with these `declared` fields."""
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
    # By hand: policies break ties by this order, which is that of the declarations; graphlib's is another.
    waiting = [len(sources) for sources in upstream]
    order = [i for i, count in enumerate(waiting) if not count]
    for i in order:  # grows while it is walked
        for consumer in downstream[i]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                order.append(consumer)
    return order


def restrictions(snapshot: Snapshot) -> Mapping[str, tuple[int, float]]:
    """Return (p(t), minAc(t)) of every task (model item 1), from its queries. Warm-up ends at minAc(t)."""
    topology = Topology.of(snapshot.tasks)
    return {
        task.id: restriction
        for task, restriction in zip(
            snapshot.tasks, zip(topology.priority, topology.min_accuracy, strict=True), strict=True
        )
    }


@dataclass(frozen=True)
class Dag:
    """The DAG as declared, whatever is measured. Positions are those in the snapshot."""

    topology: Topology
    tasks: Keys[str]  #: by position
    edges: Keys[Edge]  #: inputs of sources (from None) and streams, in topological order
    reader: Mapping[str, int]  #: consumer, by the names that lags and rates have: a source's id, or "from>to"

    @classmethod
    def of(cls, snapshot: Snapshot) -> Dag:
        """Return the DAG of a valid snapshot. Cached: while the declarations stay the same, the same object is
        returned."""
        global _last
        tasks, last = snapshot.tasks, _last
        if last is not None and last[0] is tasks:
            return last[2]
        found = declared(tasks)
        dag = last[2] if last is not None and last[1] == found else cls._built(tasks)
        _last = (tasks, found, dag)
        return dag

    @classmethod
    def _built(cls, tasks: Sequence[Task]) -> Dag:
        topology = Topology.of(tasks)
        reader = {}
        for position, task in enumerate(tasks):
            for source in task.upstream:
                reader[f"{source}>{task.id}"] = position
            if not task.upstream:
                reader[task.id] = position
        edges = Keys[Edge]((source, tasks[t].id) for t in topology.order for source in tasks[t].upstream or (None,))
        return cls(topology, Keys(task.id for task in tasks), edges, reader)

    @cached_property
    def names(self) -> Sequence[str]:
        """Return the tasks, by position."""
        return self.tasks.all

    @cached_property
    def upstream_first(self) -> Keys[str]:
        """Return the tasks in topological order, sources first."""
        return Keys(self.names[t] for t in self.topology.order)

    @cached_property
    def minimums(self) -> Mapping[str, float]:
        """Return the minimum accuracy minAc of each task (model item 1), 0..1."""
        return dict(zip(self.names, self.topology.min_accuracy, strict=True))

    @cached_property
    def inputs(self) -> Sequence[Sequence[tuple[int, int]]]:
        """Return the inputs of each task, by position: (position of the sender, or -1 outside; index in `edges`)."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.names]
        position = self.topology.position
        for e, (source, target) in enumerate(self.edges.all):
            found[position[target]].append((-1 if source is None else position[source], e))
        return found

    @cached_property
    def _rank(self) -> Mapping[int, int]:
        return {t: rank for rank, t in enumerate(self.topology.order)}

    def around(self, positions: Iterable[int]) -> list[int]:
        """Return these tasks, their descendants, and all ancestors of those, in topological order."""
        below = reachable(positions, self.topology.downstream)
        found = reachable(below, self.topology.upstream)
        if isinstance(self.topology.order, range):
            return sorted(found)
        return sorted(found, key=self._rank.__getitem__)


_last: tuple[Sequence[Task], Declared, Dag] | None = None


def reachable(starts: Iterable[int], neighbours: Sequence[Sequence[int]]) -> set[int]:
    """Return `starts` and all that is reachable from them."""
    found = set(starts)
    waiting = list(found)
    while waiting:
        for each in neighbours[waiting.pop()]:
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


def upstream_first(snapshot: Snapshot) -> tuple[Task, ...]:
    """Return the tasks of a valid snapshot in topological order, sources first."""
    return tuple(snapshot.tasks[position] for position in Dag.of(snapshot).topology.order)


def minimums(snapshot: Snapshot) -> Mapping[str, float]:
    """Return the minimum accuracy minAc of each task (model item 1): the largest of the queries that depend on it,
    0..1."""
    return Dag.of(snapshot).minimums


def queries_of(snapshot: Snapshot, task: str) -> tuple[Task, ...]:
    """Return the queries that depend on `task`, in input order; a query depends on itself."""
    topology = Dag.of(snapshot).topology
    reached = reachable([topology.position[task]], topology.downstream)
    return tuple(snapshot.tasks[t] for t in sorted(reached) if not topology.downstream[t])


def above(snapshot: Snapshot, task: str) -> frozenset[str]:
    """Return `task` and its ancestors."""
    topology = Dag.of(snapshot).topology
    return frozenset(snapshot.tasks[t].id for t in reachable([topology.position[task]], topology.upstream))
