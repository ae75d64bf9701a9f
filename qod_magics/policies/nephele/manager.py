"""A QoS manager, and the policies: what a manager knows of its part of the graph and does about violations. Pure.

Section 3.5. `Nephele` runs managers; the policies that it is compared with keep the size of buffers fixed, or ship a
buffer after each item.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

from qod_magics.core.engines import S
from qod_magics.core.job_graph import (
    BufferSize,
    CannotBeMet,
    Chain,
    Channel,
    Instruction,
    JobConstraint,
    Manager,
    Report,
    Resize,
    RuntimeGraph,
    Task,
)
from qod_magics.policies.nephele.countermeasures import DEFAULTS, Parameters, TaskFacts, longest_chain, step
from qod_magics.policies.nephele.latency import Weighed, Window
from qod_magics.policies.nephele.placement import ManagerSetup, Role, paths, setup

K = TypeVar("K")


@dataclass(slots=True)
class _ChannelState:
    """What is known of a channel."""

    latency: Window
    life: Window
    size: BufferSize
    changed: int | None = None  #: when its size or its chain was changed last, as far as known; ns
    is_chained: bool = False

    def renew(self, size: BufferSize, now: int) -> None:
        """Set another size, and drop the samples of the old one."""
        self.size, self.changed = size, now
        self.latency.clear()
        self.life.clear()


class QosManager:
    """The manager on one worker. Times are ns.

    A constraint is frozen while one of its channels was changed less than its span ago, or has no sample since (N25):
    its other channels may be looked at for other sequences.
    """

    def __init__(
        self,
        graph: RuntimeGraph,
        setup: ManagerSetup,
        constraints: Sequence[JobConstraint],
        parameters: Parameters,
    ) -> None:
        self._graph, self._setup, self._parameters = graph, setup, parameters
        self._duties: list[tuple[Role, JobConstraint]] = [
            (role, constraint)
            for role in setup.roles
            for constraint in constraints
            if constraint.sequence.path == role.path
        ]
        span = max((_span(constraint) for _, constraint in self._duties), default=0)
        start = BufferSize(parameters.initial_bytes)
        self._channels = {c: _ChannelState(Window(span), Window(span), start) for c in self._every_channel()}
        self._tasks = {task: Window(span) for task in self._every_task()}
        self._cpu: dict[Task, float] = {}
        self._chained: set[Task] = set()
        self._asked: set[tuple[Task, ...]] = set()  # chains that this manager has asked for
        self._reported: set[int] = set()  #: duties that were said to be impossible, until they are met again

    @property
    def worker(self) -> str:
        """Where it runs."""
        return self._setup.worker

    def interests(self) -> tuple[Iterable[Task], Iterable[Channel]]:
        """Return the tasks and channels that it needs to be measured."""
        return self._tasks, self._channels

    def _every_channel(self) -> Iterator[Channel]:
        for role in self._setup.roles:
            yield from role.subgraph.channels()

    def _every_task(self) -> Iterator[Task]:
        for role in self._setup.roles:
            for tasks in role.subgraph.tasks:
                yield from tasks

    def receive(self, report: Report, now: int) -> None:
        """Take in a report at its arrival. Samples of older buffer sizes are dropped (N16)."""
        for channel, size in report.sizes.items():
            state = self._channels.get(channel)
            if state is None or size == state.size:
                continue
            if size.epoch > state.size.epoch:
                state.renew(size, now)
            elif size.epoch == state.size.epoch:  # another manager's update came first
                state.size = size
        for chain in report.chains:
            self._take_chain(chain, now)
        for kind, samples in (("latency", report.latencies), ("life", report.life_times)):
            for channel, ms, epoch in samples:
                state = self._channels.get(channel)
                if state is not None and epoch >= state.size.epoch:
                    (state.latency if kind == "latency" else state.life).add(now, ms)
        for task, ms in report.task_latencies:
            if task in self._tasks:
                self._tasks[task].add(now, ms)
        self._cpu.update(report.cpu)

    def _take_chain(self, chain: tuple[Task, ...], now: int) -> None:
        if self._chained.issuperset(chain):
            return
        self._chained.update(chain)
        for channel in _inside(chain):
            state = self._channels.get(channel)
            if state is not None:
                state.is_chained = True
                if chain not in self._asked:  # another manager's
                    state.changed = now

    def check(self, now: int) -> list[Instruction]:
        """Resize the buffers on violated sequences; once they can give no more, chain tasks; then report (N17)."""
        found: list[Instruction] = []
        for number, (role, constraint) in enumerate(self._duties):
            weighed = self._weighed(role, constraint, now)
            worst = weighed.worst()
            if worst is None:
                continue
            if worst[0] <= constraint.limit_ms:
                self._reported.discard(number)
                continue
            resized = self._resized(weighed, constraint, now)
            chain = self._chain(weighed, constraint, now, resized)
            found += resized
            found += chain
            if not resized and not chain and number not in self._reported:
                self._reported.add(number)
                found.append(CannotBeMet(constraint, worst[1], worst[0]))
        return found

    def estimates(self, now: int) -> Iterator[tuple[JobConstraint, float | None]]:
        """Yield the worst known and unfrozen sequence's latency of each constraint, ms."""
        for role, constraint in self._duties:
            worst = self._weighed(role, constraint, now).worst()
            yield constraint, None if worst is None else worst[0]

    def _weighed(self, role: Role, constraint: JobConstraint, now: int) -> Weighed:
        span = _span(constraint)
        tasks = {t: self._tasks[t].mean(now, span) for tasks in role.subgraph.tasks for t in tasks}
        channels = {c: self._channel_ms(self._channels[c], now, span) for c in role.subgraph.channels()}
        return Weighed(constraint.sequence, role.subgraph, _known(tasks), _known(channels))

    def _channel_ms(self, state: _ChannelState, now: int, span: int) -> float | None:
        if state.changed is not None and now - state.changed < span:
            return None  # frozen
        return 0.0 if state.is_chained else state.latency.mean(now, span)

    def _resized(self, weighed: Weighed, constraint: JobConstraint, now: int) -> list[Resize]:
        found = []
        span = _span(constraint)
        for channel in weighed.violated(constraint.limit_ms):
            state = self._channels[channel]
            if state.is_chained:
                continue
            sender = self._tasks[channel.sender].mean(now, span)
            size = step(state.size.bytes, state.life.mean(now, span), sender, self._parameters).bytes
            if size != state.size.bytes:
                found.append(Resize(channel, size, state.size.epoch))
                state.renew(BufferSize(size, state.size.epoch + 1), now)
        return found

    def _chain(self, weighed: Weighed, constraint: JobConstraint, now: int, resized: Sequence[Resize]) -> list[Chain]:
        parameters, path = self._parameters, constraint.sequence.path
        if parameters.chaining == "never" or (resized and parameters.chaining == "after_buffers"):
            return []
        elements = {vertex for i, vertex in enumerate(path) if constraint.sequence.is_element(i)}

        def can_join(channel: Channel) -> bool:  # a sequence has a chain if and only if it has one of two tasks
            return elements.issuperset((channel.sender.vertex, channel.receiver.vertex)) and bool(
                longest_chain(channel, self._facts, parameters.cap_cores)
            )

        worst = weighed.worst_with(constraint.limit_ms, can_join)
        if worst is None:
            return []
        tasks = [task for task in worst[1] if task.vertex in elements]
        chain = longest_chain(tasks, self._facts, parameters.cap_cores)
        for channel in _inside(chain):
            self._channels[channel].changed = now
        self._asked.add(chain)
        return [Chain(chain, parameters.queued)]

    def _facts(self, task: Task) -> TaskFacts:
        return TaskFacts(
            process=self._graph.worker(task),
            cpu_cores=self._cpu.get(task),
            incoming=self._graph.incoming(task),
            outgoing=self._graph.outgoing(task),
            is_chained=task in self._chained,
            may_chain=task.vertex not in self._parameters.never_chain,
        )


def _span(constraint: JobConstraint) -> int:
    return round(constraint.span_s * S)


def _inside(chain: Sequence[Task]) -> Iterator[Channel]:
    """Yield the channels between the tasks of a chain."""
    for sender, receiver in pairwise(chain):
        yield Channel(sender, receiver)


def _known(values: Mapping[K, float | None]) -> dict[K, float]:
    return {key: value for key, value in values.items() if value is not None}


Given: TypeAlias = Parameters | Mapping[str, Any] | None  #: parameters, or those of JSON; None: the defaults


@dataclass(frozen=True, slots=True)
class Nephele:
    """Adapts buffer sizes and chains tasks while constraints are violated."""

    parameters: Parameters = DEFAULTS
    name: str = "nephele"
    flushes: bool = False

    @property
    def initial_bytes(self) -> int:
        """Size of all buffers at the start."""
        return self.parameters.initial_bytes

    def managers(self, graph: RuntimeGraph, constraints: Sequence[JobConstraint]) -> list[Manager]:
        """Return a manager on each worker of an anchor. Raises UsageProblem for a constraint that the job cannot
        have."""
        placed = setup(graph, paths(graph, constraints))
        return [QosManager(graph, each, constraints, self.parameters) for each in placed.values()]


@dataclass(frozen=True, slots=True)
class Unmanaged:
    """Nothing is changed while the job runs."""

    name: str
    flushes: bool
    initial_bytes: int = DEFAULTS.initial_bytes

    def managers(self, graph: RuntimeGraph, constraints: Sequence[JobConstraint]) -> list[Manager]:
        """Return no manager. Raises UsageProblem for a constraint that the job cannot have, as Nephele does."""
        paths(graph, constraints)
        return []


def nephele(parameters: Given = None) -> Nephele:
    """Return the policy Nephele Streaming."""
    return Nephele(Parameters.of(parameters))


def fixed_buffers(parameters: Given = None) -> Unmanaged:
    """Return the policy whose buffers keep their initial size and are shipped when they are full."""
    return Unmanaged("nephele-fixed-buffers", False, Parameters.of(parameters).initial_bytes)


def flush(parameters: Given = None) -> Unmanaged:
    """Return the policy that ships a buffer after each item."""
    return Unmanaged("nephele-flush", True, Parameters.of(parameters).initial_bytes)
