"""Latencies of items, their running means, and the worst sequences of a subgraph (sections 3.2 and 3.3). Pure.

A constraint limits the mean sequence latency (Eq. 1). A manager estimates it by the sum of running means (`Window`,
`estimate`) and finds violated sequences without listing them (`Weighed`): one pass forwards and one backwards over its
subgraph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from qod_magics.core.job_graph import Channel, JobConstraint, JobSequence, RuntimeGraph, Task

# --- Placement of managers --------------------------------------------------------------------------------------------
# Which workers run managers, and which part of the runtime graph each answers for (Algorithms 1 to 3). Pure.

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
        """Return the number of channels, without listing them."""
        return sum(
            len(senders) * len(receivers) if self._is_full(i) else len(senders)
            for i, (senders, receivers) in enumerate(zip(self.tasks, self.tasks[1:], strict=False))
        )

    @property
    def sequence_count(self) -> int:
        """Return the number of runtime sequences, without listing them."""
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
        """Return the tasks of its graph."""
        return frozenset(task for role in self.roles for tasks in role.subgraph.tasks for task in tasks)

    @cached_property
    def channels(self) -> frozenset[Channel]:
        """Return the channels of its graph."""
        return frozenset(channel for role in self.roles for channel in role.subgraph.channels())

    @property
    def constraints(self) -> int:
        """Return the number of runtime sequences that it answers for."""
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


class Window:
    """Samples of one element by the time of their arrival (N15). Times and spans in ns."""

    __slots__ = ("_samples", "span")

    def __init__(self, span: int) -> None:
        self.span = span  #: samples of this age and older are dropped
        self._samples: deque[tuple[int, float]] = deque()

    def add(self, arrived: int, value: float) -> None:
        """Take in a sample; arrivals do not go back in time."""
        self._samples.append((arrived, value))

    def clear(self) -> None:
        """Forget all samples."""
        self._samples.clear()

    def mean(self, now: int, span: int | None = None) -> float | None:
        """Return the arithmetic mean of the samples younger than the span, or than a shorter one; None without any."""
        samples = self._samples
        while samples and now - samples[0][0] >= self.span:
            samples.popleft()
        if span is None or span >= self.span:
            return sum(value for _, value in samples) / len(samples) if samples else None
        fresh = [value for arrived, value in samples if now - arrived < span]
        return sum(fresh) / len(fresh) if fresh else None


def estimate(means: Iterable[float | None]) -> float | None:
    """Return the sum of the means of a sequence's elements; None (unknown) if one of them has none."""
    total = 0.0
    for mean in means:
        if mean is None:
            return None
        total += mean
    return total


class Weighed:
    """The runtime sequences of a subgraph whose elements are all known, by their latencies. O(channels).

    Args:
        sequence: tells which ends of the path are elements.
        subgraph: the tasks and channels.
        task_ms: latency of the known tasks, ms.
        channel_ms: latency of the known channels that are not frozen, ms.

    """

    def __init__(
        self,
        sequence: JobSequence,
        subgraph: Subgraph,
        task_ms: Mapping[Task, float],
        channel_ms: Mapping[Channel, float],
    ) -> None:
        self._last = len(sequence.path) - 1
        self._channels = [
            {channel: channel_ms[channel] for channel in subgraph.hop(i) if channel in channel_ms}
            for i in range(self._last)
        ]
        own = [
            {task: task_ms[task] for task in tasks if task in task_ms}
            if sequence.is_element(i)
            else dict.fromkeys(tasks, 0.0)
            for i, tasks in enumerate(subgraph.tasks)
        ]
        self._ends = own[-1]
        #: task -> largest latency from the start to the end of the task (pre), and by which task before it
        self._until: dict[Task, float] = dict(own[0])
        self._before: dict[Task, Task] = {}
        for i, channels in enumerate(self._channels):
            for channel, ms in channels.items():
                if channel.sender in self._until and channel.receiver in own[i + 1]:
                    total = self._until[channel.sender] + ms + own[i + 1][channel.receiver]
                    if total > self._until.get(channel.receiver, -1.0):
                        self._until[channel.receiver] = total
                        self._before[channel.receiver] = channel.sender
        #: task -> largest latency from the start of the task to the end (suf), and by which task after it
        self._from: dict[Task, float] = dict(own[-1])
        self._after: dict[Task, Task] = {}
        for i in range(self._last - 1, -1, -1):
            for channel, ms in self._channels[i].items():
                if channel.receiver in self._from and channel.sender in own[i]:
                    total = own[i][channel.sender] + ms + self._from[channel.receiver]
                    if total > self._from.get(channel.sender, -1.0):
                        self._from[channel.sender] = total
                        self._after[channel.sender] = channel.receiver

    def worst_through(self, channel: Channel, ms: float) -> float | None:
        """Return the latency of the worst known sequence through a channel of latency `ms`; None without any."""
        if channel.sender not in self._until or channel.receiver not in self._from:
            return None
        return self._until[channel.sender] + ms + self._from[channel.receiver]

    def _through(self) -> Iterator[tuple[Channel, float]]:
        for channels in self._channels:
            for channel, ms in channels.items():
                worst = self.worst_through(channel, ms)
                if worst is not None:
                    yield channel, worst

    def violated(self, limit_ms: float) -> list[Channel]:
        """Return the channels that lie on a known sequence above the limit, from the start of the path on."""
        return [channel for channel, worst in self._through() if worst > limit_ms]

    def worst(self) -> tuple[float, tuple[Task, ...]] | None:
        """Return the latency of the worst known sequence and its tasks along the path; None without any."""
        known = {task: ms for task, ms in self._until.items() if task in self._ends}
        if not known:
            return None
        task = max(known, key=known.__getitem__)
        return known[task], self._back_from(task)

    def worst_with(self, limit_ms: float, wanted: Callable[[Channel], bool]) -> tuple[float, tuple[Task, ...]] | None:
        """Return the worst sequence above the limit among those with a channel that is wanted; None without any."""
        found = [(worst, channel) for channel, worst in self._through() if worst > limit_ms and wanted(channel)]
        if not found:
            return None
        worst, channel = max(found, key=lambda each: each[0])
        ahead = [channel.receiver]
        while ahead[-1] in self._after:
            ahead.append(self._after[ahead[-1]])
        return worst, (*self._back_from(channel.sender), *ahead)

    def _back_from(self, task: Task) -> tuple[Task, ...]:
        back = [task]
        while back[-1] in self._before:
            back.append(self._before[back[-1]])
        return tuple(reversed(back))
