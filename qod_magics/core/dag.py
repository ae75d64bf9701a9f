"""An application's DAG: order, ancestors, descendants. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from qod_magics.core.keyed import Keys
from qod_magics.core.plan import Edge
from qod_magics.core.snapshot import Snapshot, Task
from qod_magics.core.topology import Declared, Topology, declared


@dataclass(frozen=True)
class Dag:
    """The DAG as declared, whatever is measured. Positions are those in the snapshot."""

    topology: Topology
    tasks: Keys[str]  #: by position
    edges: Keys[Edge]  #: inputs of sources (from None) and streams, in topological order
    reader: Mapping[str, int]  #: consumer, by the names that lags and rates have: a source's id, or "from>to"

    @classmethod
    def of(cls, snapshot: Snapshot) -> Dag:
        """The DAG of a valid snapshot. Cached: while the declarations stay the same, the same object is returned."""
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
        """The tasks, by position."""
        return self.tasks.all

    @cached_property
    def upstream_first(self) -> Keys[str]:
        """The tasks in topological order, sources first."""
        return Keys(self.names[t] for t in self.topology.order)

    @cached_property
    def minimums(self) -> Mapping[str, float]:
        """The minimum accuracy minAc of each task (model item 1), 0..1."""
        return dict(zip(self.names, self.topology.min_accuracy, strict=True))

    @cached_property
    def inputs(self) -> Sequence[Sequence[tuple[int, int]]]:
        """The inputs of each task, by position: (position of the sender, or -1 outside; index in `edges`)."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.names]
        position = self.topology.position
        for e, (source, target) in enumerate(self.edges.all):
            found[position[target]].append((-1 if source is None else position[source], e))
        return found

    @cached_property
    def _rank(self) -> Mapping[int, int]:
        return {t: rank for rank, t in enumerate(self.topology.order)}

    def around(self, positions: Iterable[int]) -> list[int]:
        """These tasks, their descendants, and all ancestors of those, in topological order."""
        below = reachable(positions, self.topology.downstream)
        found = reachable(below, self.topology.upstream)
        if isinstance(self.topology.order, range):
            return sorted(found)
        return sorted(found, key=self._rank.__getitem__)


_last: tuple[Sequence[Task], Declared, Dag] | None = None


def reachable(starts: Iterable[int], neighbours: Sequence[Sequence[int]]) -> set[int]:
    """`starts` and all that is reachable from them."""
    found = set(starts)
    waiting = list(found)
    while waiting:
        for each in neighbours[waiting.pop()]:
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


def upstream_first(snapshot: Snapshot) -> tuple[Task, ...]:
    """The tasks of a valid snapshot in topological order, sources first."""
    return tuple(snapshot.tasks[position] for position in Dag.of(snapshot).topology.order)


def minimums(snapshot: Snapshot) -> Mapping[str, float]:
    """The minimum accuracy minAc of each task (model item 1): the largest of the queries that depend on it, 0..1."""
    return Dag.of(snapshot).minimums


def queries_of(snapshot: Snapshot, task: str) -> tuple[Task, ...]:
    """The queries that depend on `task`, in input order; a query depends on itself."""
    topology = Dag.of(snapshot).topology
    reached = reachable([topology.position[task]], topology.downstream)
    return tuple(snapshot.tasks[t] for t in sorted(reached) if not topology.downstream[t])


def above(snapshot: Snapshot, task: str) -> frozenset[str]:
    """`task` and its ancestors."""
    topology = Dag.of(snapshot).topology
    return frozenset(snapshot.tasks[t].id for t in reachable([topology.position[task]], topology.upstream))
