"""The protocol between managers of latency constraints and an engine whose channels have output buffers. Pure.

The engine's reporters measure (`Report`); a manager answers with instructions: a new buffer size for a channel, a chain
of tasks, or that a constraint cannot be met. Neither knows a clock: times are arguments, in whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

from qod_magics.core.job_graph import Channel, JobConstraint, RuntimeGraph, Task

#: Items that are queued between tasks when these are chained are lost, or processed before the chain begins.
Queued = Literal["drop", "drain"]


class BufferSize(NamedTuple):
    """Size of a channel's output buffers at its sender, and how often it has been changed."""

    bytes: int
    epoch: int = 0

    def updated(self, bytes: int, epoch: int) -> BufferSize:
        """After an update. It is applied if it was decided on at the present epoch: of several, the first one is."""
        return BufferSize(bytes, self.epoch + 1) if epoch == self.epoch else self


class ChannelSample(NamedTuple):
    """A measurement at a channel while it had the buffer size of an epoch."""

    channel: Channel
    ms: float
    epoch: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker's reporter measured for one manager since its last report. Sent only if there is anything."""

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
        """Where it runs."""

    def interests(self) -> tuple[Iterable[Task], Iterable[Channel]]:
        """Return the tasks and channels that it needs to be measured."""

    def receive(self, report: Report, now: int) -> None:
        """Take in a report at its arrival."""

    def check(self, now: int) -> Sequence[Instruction]:
        """What is to be changed; called once an interval."""


class ChannelPolicy(Protocol):
    """How output buffers are sized at first, and who manages them."""

    @property
    def name(self) -> str:
        """What `--policy` selects."""

    @property
    def flushes(self) -> bool:
        """Whether a buffer is shipped after each item."""

    @property
    def initial_bytes(self) -> int:
        """Size of all buffers at the start."""

    def managers(self, graph: RuntimeGraph, constraints: Sequence[JobConstraint]) -> Sequence[Manager]:
        """Return the managers, placed; none: nothing is changed while the job runs.

        Raises:
            UsageProblem: a constraint that the job graph cannot have.

        """
