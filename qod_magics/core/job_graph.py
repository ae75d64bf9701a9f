"""A job of tasks that are joined by channels, latency constraints on parts of it, and their managers' protocol. Pure.

A job vertex stands for its tasks, a job edge for the channels between the tasks of two vertices. Source of the terms:
Lohrmann, Warneke, Kao, "Nephele Streaming", section 3.

The reporters of an engine whose channels have output buffers measure (`Report`); a manager answers with instructions: a
new buffer size for a channel, a chain of tasks, or that a constraint cannot be met. Neither knows a clock: times are
arguments, in whole nanoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from math import isfinite
from typing import Literal, NamedTuple, Protocol, TypeAlias, get_args

from qod_magics.errors import UsageProblem, hint, show

#: "all-to-all": a channel from each sender to each receiver; "pointwise": from task i to task i
Pattern = Literal["all-to-all", "pointwise"]

_EDGE = re.compile(r"e\((.+),\s*(.+)\)")


class Task(NamedTuple):
    """A task: an instance of a job vertex, in a thread of its own unless it is chained."""

    vertex: str
    number: int  #: from 0

    def __str__(self) -> str:
        return f"{self.vertex}{self.number + 1}"


class Channel(NamedTuple):
    """The way of items from one task to another, with an output buffer at the sender."""

    sender: Task
    receiver: Task

    def __str__(self) -> str:
        return f"{self.sender}-{self.receiver}"


@dataclass(frozen=True, slots=True)
class JobEdge:
    """The channels between the tasks of two job vertices."""

    sender: str
    receiver: str
    pattern: Pattern

    def __post_init__(self) -> None:
        if self.pattern not in get_args(Pattern):
            raise UsageProblem(
                f"edge {self.sender} to {self.receiver}: pattern {show(self.pattern)} is unknown; give one of "
                f"{', '.join(get_args(Pattern))}"
            )


@dataclass(frozen=True)
class JobGraph:
    """A directed acyclic graph of job vertices.

    Raises UsageProblem for an edge of an unknown vertex, two edges between the same vertices, or a cycle.
    """

    vertices: tuple[str, ...]
    edges: tuple[JobEdge, ...]

    def __post_init__(self) -> None:
        for edge in self.edges:
            for vertex in (edge.sender, edge.receiver):
                if vertex not in self.vertices:
                    raise UsageProblem(f"an edge names the job vertex {show(vertex)}.{hint(vertex, self.vertices)}")
        if len(self._by_ends) < len(self.edges):
            raise UsageProblem("two edges join the same job vertices: give one edge for each pair")
        try:
            TopologicalSorter({v: [e.sender for e in self.edges if e.receiver == v] for v in self.vertices}).prepare()
        except CycleError as error:
            raise UsageProblem(f"the job graph has a cycle: {' > '.join(error.args[1])}; remove an edge") from None

    @cached_property
    def _by_ends(self) -> Mapping[tuple[str, str], JobEdge]:
        return {(edge.sender, edge.receiver): edge for edge in self.edges}

    def edge(self, sender: str, receiver: str) -> JobEdge:
        """Return the edge between two vertices. Raises UsageProblem if there is none."""
        found = self._by_ends.get((sender, receiver))
        if found is None:
            raise UsageProblem(f"no edge leads from {show(sender)} to {show(receiver)}: name consecutive job vertices")
        return found

    def is_source(self, vertex: str) -> bool:
        """Return whether no edge leads to the vertex."""
        return all(edge.receiver != vertex for edge in self.edges)

    def is_sink(self, vertex: str) -> bool:
        """Return whether no edge leaves the vertex."""
        return all(edge.sender != vertex for edge in self.edges)


@dataclass(frozen=True)
class RuntimeGraph:
    """Tasks and channels of a job, and the worker of each task. Channels follow from the edges' patterns.

    Raises UsageProblem for a vertex without tasks, or a pointwise edge between vertices of unequal parallelism.
    """

    job: JobGraph
    workers: Mapping[str, tuple[str, ...]]  #: job vertex -> the worker of each of its tasks

    def __post_init__(self) -> None:
        for vertex in self.job.vertices:
            if not self.workers.get(vertex):
                raise UsageProblem(f"job vertex {show(vertex)} has no task: give the worker of at least one")
        for edge in self.job.edges:
            counts = len(self.workers[edge.sender]), len(self.workers[edge.receiver])
            if edge.pattern == "pointwise" and counts[0] != counts[1]:
                raise UsageProblem(
                    f"edge {edge.sender} to {edge.receiver} is pointwise between {counts[0]} and {counts[1]} tasks: "
                    "give both vertices the same number"
                )

    @cached_property
    def _tasks(self) -> Mapping[str, tuple[Task, ...]]:
        return {v: tuple(Task(v, i) for i in range(len(self.workers[v]))) for v in self.job.vertices}

    def tasks(self, vertex: str) -> tuple[Task, ...]:
        """Return the tasks of a job vertex."""
        return self._tasks[vertex]

    def worker(self, task: Task) -> str:
        """Return the worker that a task runs on."""
        return self.workers[task.vertex][task.number]

    def receivers(self, task: Task, vertex: str) -> tuple[Task, ...]:
        """Return the tasks of `vertex` that a channel leads to from `task`."""
        tasks = self._tasks[vertex]
        return tasks if self.job.edge(task.vertex, vertex).pattern == "all-to-all" else (tasks[task.number],)

    def senders(self, task: Task, vertex: str) -> tuple[Task, ...]:
        """Return the tasks of `vertex` that a channel leads from to `task`."""
        tasks = self._tasks[vertex]
        return tasks if self.job.edge(vertex, task.vertex).pattern == "all-to-all" else (tasks[task.number],)

    def channels(self, sender: str, receiver: str) -> int:
        """Return the number of channels of a job edge."""
        edge, count = self.job.edge(sender, receiver), len(self.workers[sender])
        return count * len(self.workers[receiver]) if edge.pattern == "all-to-all" else count

    def incoming(self, task: Task) -> int:
        """Return the number of channels that lead to a task, of all job edges."""
        return sum(len(self.senders(task, e.sender)) for e in self.job.edges if e.receiver == task.vertex)

    def outgoing(self, task: Task) -> int:
        """Return the number of channels that leave a task, of all job edges."""
        return sum(len(self.receivers(task, e.receiver)) for e in self.job.edges if e.sender == task.vertex)

    def all_channels(self) -> Iterator[Channel]:
        """Yield every channel."""
        for edge in self.job.edges:
            for sender in self._tasks[edge.sender]:
                for receiver in self.receivers(sender, edge.receiver):
                    yield Channel(sender, receiver)


@dataclass(frozen=True, slots=True)
class JobSequence:
    """Connected job vertices and edges, alternating; stands for all runtime sequences through them.

    `path` has the vertices, with the sender of a leading edge and the receiver of a trailing one (N8). The two flags
    tell whether the sequence begins and ends with a task or with a channel.
    """

    path: tuple[str, ...]
    begins_with_task: bool = False
    ends_with_task: bool = False

    @classmethod
    def parse(cls, elements: Sequence[str]) -> JobSequence:
        """Return the sequence of names such as ["e(P,D)", "D", "e(D,E)"]. Raises UsageProblem where they do not
        alternate or connect."""
        path: list[str] = []
        was_edge: bool | None = None
        for element in elements:
            match = _EDGE.fullmatch(element)
            ends = (match[1], match[2]) if match else (element,)
            if was_edge == bool(match) or (path and path[-1] != ends[0]):
                raise UsageProblem(
                    f"sequence {show(list(elements))}: {show(element)} does not follow what is before it; alternate "
                    "vertices and edges, such as e(P,D), D, e(D,E)"
                )
            path += ends[1:] if path else ends
            was_edge = bool(match)
        if not path:
            raise UsageProblem("an empty sequence: name at least one vertex or edge")
        return cls(tuple(path), not _EDGE.fullmatch(elements[0]), not was_edge)

    def is_element(self, position: int) -> bool:
        """Return whether the vertex at a position of the path is an element, and not only an end of an edge."""
        if position == 0 and not self.begins_with_task:
            return False
        return self.ends_with_task or position != len(self.path) - 1

    def check(self, job: JobGraph) -> None:
        """Raise UsageProblem if the job has no such sequence, or it has a source or sink as an element (N12)."""
        for vertex in self.path:
            if vertex not in job.vertices:
                raise UsageProblem(
                    f"a sequence names the job vertex {show(vertex)}.{hint(vertex, job.vertices)}",
                    name=vertex,
                    rule="exists",
                )
        for sender, receiver in zip(self.path, self.path[1:], strict=False):
            job.edge(sender, receiver)
        for i, vertex in enumerate(self.path):
            if self.is_element(i) and (job.is_source(vertex) or job.is_sink(vertex)):
                what = "source" if job.is_source(vertex) else "sink"
                raise UsageProblem(
                    f"job vertex {show(vertex)} is a {what}, whose latency is undefined: begin or end the sequence "
                    "with its edge",
                    name=vertex,
                    rule="has a latency",
                )


@dataclass(frozen=True, slots=True)
class JobConstraint:
    """Limit on the mean latency of a job sequence within any span of `span_s` seconds (Eq. 1)."""

    sequence: JobSequence
    limit_ms: float
    span_s: float = 15.0

    def __post_init__(self) -> None:
        for name, value in (("limit_ms", self.limit_ms), ("span_s", self.span_s)):
            if not isfinite(value) or value <= 0:
                raise UsageProblem(f"{name}: {show(value)} is not a finite number > 0; give one, such as 300")


#: Items that are queued between tasks when these are chained are lost, or processed before the chain begins.
Queued = Literal["drop", "drain"]


class BufferSize(NamedTuple):
    """Size of a channel's output buffers at its sender, and how often it has been changed."""

    bytes: int
    epoch: int = 0

    def updated(self, bytes: int, epoch: int) -> BufferSize:
        """Return the size after an update. It is applied if it was decided on at the present epoch: of several, the
        first one is."""
        return BufferSize(bytes, self.epoch + 1) if epoch == self.epoch else self


class ChannelSample(NamedTuple):
    """A measurement at a channel while it had the buffer size of an epoch."""

    channel: Channel
    ms: float
    epoch: int


@dataclass(frozen=True, slots=True)
class Report:
    """The measurements of a worker's reporter for one manager since its last report. Sent only if there are any."""

    latencies: Sequence[ChannelSample] = ()  #: of tagged items: out of the sender's to into the receiver's user code
    life_times: Sequence[ChannelSample] = ()  #: means over the buffers that were shipped, opening to shipping
    task_latencies: Sequence[tuple[Task, float]] = ()  #: ms
    cpu: Sequence[tuple[Task, float]] = ()  #: use of the task's thread, cores
    sizes: Mapping[Channel, BufferSize] = field(default_factory=dict)
    chains: Sequence[tuple[Task, ...]] = ()  #: that run on the worker


@dataclass(frozen=True, slots=True)
class Resize:
    """Give a channel's output buffers another size, if its epoch is still the one that this was decided on."""

    channel: Channel
    bytes: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Chain:
    """Run consecutive tasks in one thread, without queues and buffers between them."""

    tasks: tuple[Task, ...]
    queued: Queued


@dataclass(frozen=True, slots=True)
class CannotBeMet:
    """For the master: nothing more can be done for a constraint, whose worst sequence has this latency."""

    constraint: JobConstraint
    tasks: tuple[Task, ...]  #: of the worst sequence
    latency_ms: float


Instruction: TypeAlias = Resize | Chain | CannotBeMet


class Manager(Protocol):
    """Answers for the constraints of some sequences, on one worker."""

    @property
    def worker(self) -> str:
        """Return where it runs."""

    def interests(self) -> tuple[Iterable[Task], Iterable[Channel]]:
        """Return the tasks and channels that it needs to be measured."""

    def receive(self, report: Report, now: int) -> None:
        """Take in a report at its arrival."""

    def check(self, now: int) -> Sequence[Instruction]:
        """Return the changes to make; called once an interval."""


class ChannelPolicy(Protocol):
    """How output buffers are sized at first, and who manages them."""

    @property
    def name(self) -> str:
        """Return what `--policy` selects."""

    @property
    def flushes(self) -> bool:
        """Return whether a buffer is shipped after each item."""

    @property
    def initial_bytes(self) -> int:
        """Size of all buffers at the start."""

    def managers(self, graph: RuntimeGraph, constraints: Sequence[JobConstraint]) -> Sequence[Manager]:
        """Return the managers, placed; none: nothing is changed while the job runs.

        Raises:
            UsageProblem: a constraint that the job graph cannot have.

        """
