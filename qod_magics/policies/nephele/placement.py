"""Which workers run managers, and which part of the runtime graph each answers for (Algorithms 1 to 3). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from qod_magics.core.job_graph import Channel, JobConstraint, RuntimeGraph, Task

Path: TypeAlias = tuple[str, ...]  #: job vertices


@dataclass(frozen=True)
class Subgraph:
    """The tasks that an expansion visits, by position on the path; with them go all channels between neighbours."""

    graph: RuntimeGraph
    path: Path
    tasks: tuple[tuple[Task, ...], ...]

    def hop(self, position: int) -> Iterator[Channel]:
        """Yield the channels from the tasks at a position to those at the next one."""
        following = self.path[position + 1]
        for sender in self.tasks[position]:
            for receiver in self.graph.receivers(sender, following):
                if receiver in self._members[position + 1]:
                    yield Channel(sender, receiver)

    @cached_property
    def _members(self) -> tuple[frozenset[Task], ...]:
        return tuple(frozenset(tasks) for tasks in self.tasks)

    def channels(self) -> Iterator[Channel]:
        """Yield all channels, from the start of the path on."""
        for position in range(len(self.path) - 1):
            yield from self.hop(position)

    @property
    def channel_count(self) -> int:
        """The number of channels, without listing them."""
        return sum(
            len(senders) * len(receivers) if self._is_full(i) else len(senders)
            for i, (senders, receivers) in enumerate(zip(self.tasks, self.tasks[1:], strict=False))
        )

    @property
    def sequence_count(self) -> int:
        """The number of runtime sequences, without listing them."""
        ways = dict.fromkeys(self.tasks[0], 1)
        for i, tasks in enumerate(self.tasks[1:]):
            total, before = sum(ways.values()), self.path[i]
            ways = {task: total if self._is_full(i) else ways[Task(before, task.number)] for task in tasks}
        return sum(ways.values())

    def _is_full(self, position: int) -> bool:
        return self.graph.job.edge(self.path[position], self.path[position + 1]).pattern == "all-to-all"


@dataclass(frozen=True)
class Role:
    """A path, the anchor's tasks on a worker, and what follows from them.

    Its manager answers for the sequences that pass one of these tasks, and for no others, whatever else its graph
    contains (N7).
    """

    path: Path
    anchor: str
    tasks: tuple[Task, ...]
    subgraph: Subgraph


@dataclass(frozen=True)
class ManagerSetup:
    """The roles of the manager on one worker."""

    worker: str
    roles: tuple[Role, ...]

    @cached_property
    def vertices(self) -> frozenset[Task]:
        """The tasks of its graph."""
        return frozenset(task for role in self.roles for tasks in role.subgraph.tasks for task in tasks)

    @cached_property
    def channels(self) -> frozenset[Channel]:
        """The channels of its graph."""
        return frozenset(channel for role in self.roles for channel in role.subgraph.channels())

    @property
    def constraints(self) -> int:
        """The number of runtime sequences that it answers for."""
        return sum(role.subgraph.sequence_count for role in self.roles)


def paths(graph: RuntimeGraph, constraints: Iterable[JobConstraint]) -> tuple[Path, ...]:
    """Return the constrained paths, each once. Raises UsageProblem if the job has no such sequence."""
    found: dict[Path, None] = {}
    for constraint in constraints:
        constraint.sequence.check(graph.job)
        found[constraint.sequence.path] = None
    return tuple(found)


def setup(graph: RuntimeGraph, constrained: Iterable[Path]) -> Mapping[str, ManagerSetup]:
    """Return the managers by worker (Algorithm 1)."""
    roles: dict[str, list[Role]] = {}
    for path in constrained:
        for worker, role in _managers_of(graph, path):
            roles.setdefault(worker, []).append(role)
    return {worker: ManagerSetup(worker, tuple(held)) for worker, held in roles.items()}


def _managers_of(graph: RuntimeGraph, path: Path) -> Iterator[tuple[str, Role]]:
    """Yield the manager of each worker of the anchor (Algorithm 2)."""
    vertex = anchor(graph, path)
    by_worker: dict[str, list[Task]] = {}
    for task in graph.tasks(vertex):
        by_worker.setdefault(graph.worker(task), []).append(task)
    for worker, tasks in by_worker.items():
        yield worker, Role(path, vertex, tuple(tasks), expand(graph, path, tasks))


def channel_count(graph: RuntimeGraph, path: Path, position: int) -> int:
    """Return cntChan: the lesser channel count of a vertex' incoming and outgoing edge on the path; 0 on a path of
    one."""
    hops = [i for i in (position - 1, position) if 0 <= i < len(path) - 1]
    return min((graph.channels(path[i], path[i + 1]) for i in hops), default=0)


def anchor(graph: RuntimeGraph, path: Path) -> str:
    """Return the vertex on the most workers; of these one with the smallest cntChan; of these the first (Algorithm 3,
    N9)."""

    def rank(position: int) -> tuple[int, int]:
        return -len(set(graph.workers[path[position]])), channel_count(graph, path, position)

    return path[min(range(len(path)), key=rank)]


def expand(graph: RuntimeGraph, path: Path, tasks: Sequence[Task]) -> Subgraph:
    """Return what is reached from tasks of one vertex, forwards to the end of the path and backwards to its start
    (N6)."""
    at = path.index(tasks[0].vertex)
    ahead: list[tuple[Task, ...]] = []
    reached = tuple(tasks)
    for vertex in path[at + 1 :]:
        reached = _union(graph.receivers(task, vertex) for task in reached)
        ahead.append(reached)
    behind: list[tuple[Task, ...]] = []
    reached = tuple(tasks)
    for vertex in reversed(path[:at]):
        reached = _union(graph.senders(task, vertex) for task in reached)
        behind.append(reached)
    return Subgraph(graph, path, (*reversed(behind), tuple(tasks), *ahead))


def _union(groups: Iterable[tuple[Task, ...]]) -> tuple[Task, ...]:
    """Return each task once, in order; groups that are all the same (all-to-all) are looked at once."""
    distinct = {id(group): group for group in groups}
    return tuple(dict.fromkeys(task for group in distinct.values() for task in group))


def owner(graph: RuntimeGraph, path: Path, sequence: Sequence[Task]) -> str:
    """Return the worker whose manager answers for a runtime sequence, given by its tasks along the path."""
    return graph.worker(sequence[path.index(anchor(graph, path))])


def overlap(setups: Iterable[ManagerSetup]) -> int:
    """Return the sum over ordered pairs of managers of the tasks that both graphs have: the second objective."""
    counts: dict[Task, int] = {}
    for each in setups:
        for task in each.vertices:
            counts[task] = counts.get(task, 0) + 1
    return sum(count * (count - 1) for count in counts.values())
