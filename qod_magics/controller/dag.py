"""What the controller asks of an application's DAG. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from qod_magics.core.snapshot import Snapshot, Task
from qod_magics.policies.stream_economics import restrictions
from qod_magics.policies.stream_economics.topology import Topology


def upstream_first(snapshot: Snapshot) -> tuple[Task, ...]:
    """The tasks of a valid snapshot, each one after all that it reads from."""
    return tuple(snapshot.tasks[position] for position in Topology.of(snapshot.tasks).order)


def minimums(snapshot: Snapshot) -> Mapping[str, float]:
    """The minimum accuracy minAc of each task (model item 1): the largest of the queries that depend on it, 0..1."""
    return {task: minimum for task, (_, minimum) in restrictions(snapshot).items()}


def queries_of(snapshot: Snapshot, task: str) -> tuple[Task, ...]:
    """The queries that depend on `task`, in input order; a query depends on itself."""
    reached = _closure(task, snapshot.downstream)
    return tuple(each for each in snapshot.tasks if each.id in reached and not snapshot.downstream[each.id])


def above(snapshot: Snapshot, task: str) -> frozenset[str]:
    """`task` and all that it reads from, directly or not."""
    return _closure(task, {each.id: each.upstream for each in snapshot.tasks})


def _closure(start: str, neighbours: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(neighbours[name])
    return frozenset(found)
