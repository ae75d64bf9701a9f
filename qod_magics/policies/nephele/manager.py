"""A QoS manager, and the policies: what a manager knows of its part of the graph and does about violations. Pure.

Section 3.5. `Nephele` runs managers; the policies that it is compared with keep the size of buffers fixed, or ship a
buffer after each item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from math import floor, fsum, isfinite
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from qod_magics.core.engines import S
from qod_magics.core.job_graph import (
    BufferSize,
    CannotBeMet,
    Chain,
    Channel,
    Instruction,
    JobConstraint,
    Manager,
    Queued,
    Report,
    Resize,
    RuntimeGraph,
    Task,
)
from qod_magics.errors import UsageProblem, hint, show
from qod_magics.policies.nephele.latency import ManagerSetup, Role, Weighed, Window, paths, setup

# --- Countermeasures --------------------------------------------------------------------------------------------------
# Parameters of Nephele, and its two countermeasures: smaller output buffers, and chained tasks (section 3.5).
#
# `step` sizes the output buffers of one channel (Eq. 2 and 3). `longest_chain` finds consecutive tasks that can share a
# thread. Pure.

Chaining = Literal["after_buffers", "together", "never"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Raises UsageProblem, one line, for values out of range."""

    initial_bytes: int = 32768  #: buffer size at the start
    epsilon: int = 200  #: lower limit of a buffer size, bytes
    omega: int = 0  #: upper limit, bytes; 0: the initial size, as the source gives none (N10)
    r: float = 0.98  #: base of the factor by which a buffer shrinks
    s: float = 1.1  #: factor by which it grows
    min_obl_ms: float = 5.0  #: buffers in which items wait no longer are not shrunk
    zero_obl_ms: float = 1.0  #: buffers in which items wait no longer grow (N10)
    min_factor: float = 0.0  #: lower bound of the factor of one step; 0: none, as in the source
    cap_cores: float = 0.9  #: the tasks of a chain use less CPU than this in all
    #: whether a chain is tried once buffers can give no more (N17), in each pass, or never
    chaining: Chaining = "after_buffers"
    queued: Queued = "drop"  #: items queued between tasks that are chained: lost, or processed first
    never_chain: frozenset[str] = frozenset()  #: job vertices that are annotated, for recovery from logged buffers

    @classmethod
    def of(cls, given: Parameters | Mapping[str, Any] | None) -> Parameters:
        """Return parameters from JSON: an object with some of the names above; None: the defaults."""
        if isinstance(given, Parameters):
            return given
        values: dict[str, Any] = dict(given or {})
        known = {each.name: each.default for each in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise UsageProblem(f"parameters: {show(name)} is unknown.{hint(name, known)}")
            default = known[name]
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if isinstance(default, int | float) and not (is_number and isinstance(value, int | type(default))):
                raise UsageProblem(f"{name}: {show(value)} is not such a number as {default}; give one")
        if "never_chain" in values:
            values["never_chain"] = frozenset(values["never_chain"])
        return cls(**values)

    def __post_init__(self) -> None:
        if self.omega == 0:
            object.__setattr__(self, "omega", max(self.initial_bytes, self.epsilon))
        checks = (
            ("epsilon", self.epsilon, self.epsilon >= 1, "a size from 1 byte on, such as 200"),
            ("omega", self.omega, self.omega >= self.epsilon, "a size from epsilon on, such as 32768"),
            ("initial_bytes", self.initial_bytes, self.initial_bytes >= 1, "a size from 1 byte on, such as 32768"),
            ("r", self.r, 0 < self.r < 1, "a number between 0 and 1, such as 0.98"),
            ("s", self.s, self.s > 1 and isfinite(self.s), "a number above 1, such as 1.1"),
            ("min_factor", self.min_factor, 0 <= self.min_factor <= 1, "a number from 0 to 1, such as 0.1"),
            ("zero_obl_ms", self.zero_obl_ms, 0 <= self.zero_obl_ms <= self.min_obl_ms, "from 0 to min_obl_ms"),
            ("cap_cores", self.cap_cores, 0 < self.cap_cores <= 1, "a share of a core, such as 0.9"),
        )
        for name, value, holds, advice in checks:
            if not holds:
                raise UsageProblem(f"{name}: {show(value)} is out of range; give {advice}")
        for name, word, known in (
            ("chaining", self.chaining, get_args(Chaining)),
            ("queued", self.queued, get_args(Queued)),
        ):
            if word not in known:
                raise UsageProblem(f"{name}: {show(word)} is unknown; give one of {', '.join(known)}")


DEFAULTS = Parameters()


Verdict = Literal["shrink", "at-floor", "grow", "at-ceiling", "keep", "no-data"]


@dataclass(frozen=True, slots=True)
class Step:
    """A buffer size in bytes, and why it is that."""

    bytes: int
    verdict: Verdict


def step(bytes: int, life_ms: float | None, sender_ms: float | None, parameters: Parameters = DEFAULTS) -> Step:
    """Return the next size of a channel's output buffers, which lies on a violated sequence.

    Args:
        bytes: the size now.
        life_ms: mean life time of its buffers, opening to shipping (oblt); None without a fresh sample.
        sender_ms: mean task latency of the sending task; None if it is unknown or undefined, as a source's (N11).
        parameters: limits and factors.

    """
    if life_ms is None:
        return Step(bytes, "no-data")
    waits_ms = life_ms / 2  # obl: items arrive evenly while a buffer is open
    if waits_ms > parameters.min_obl_ms and waits_ms > (sender_ms or 0.0):
        factor = max(parameters.r**waits_ms, parameters.min_factor)
        smaller = max(parameters.epsilon, floor(bytes * factor))
        return Step(smaller, "shrink") if smaller < bytes else Step(bytes, "at-floor")
    if waits_ms <= parameters.zero_obl_ms:
        larger = min(parameters.omega, floor(parameters.s * bytes))
        return Step(larger, "grow") if larger > bytes else Step(bytes, "at-ceiling")
    return Step(bytes, "keep")


T = TypeVar("T")

#: Sums of CPU use that are nearer to the cap than this are at it: 0.35 + 0.05 + 0.15 + 0.35 is 0.9.
_SAME_CORES = 1e-9


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What decides whether a task may be chained."""

    process: str  #: that it is a thread of
    cpu_cores: float | None  #: use of its thread; None: not known yet, and then it is not chained
    incoming: int  #: channels in the whole runtime graph
    outgoing: int
    is_chained: bool = False
    may_chain: bool = True  #: False: annotated, so that its output stays complete for recovery


def longest_chain(tasks: Sequence[T], facts: Callable[[T], TaskFacts], cap_cores: float) -> tuple[T, ...]:
    """Return the longest run of two or more tasks that can be chained; of equal ones the first; () without any.

    Args:
        tasks: consecutive tasks of a sequence, each joined to the next by a channel.
        facts: of each task.
        cap_cores: the CPU use of a run is less than this in all.

    """
    known = [facts(task) for task in tasks]
    best: tuple[T, ...] = ()
    for first in range(len(tasks)):
        last = _end_of_run(known, first, cap_cores)
        if last - first >= 1 and last - first + 1 > len(best):
            best = tuple(tasks[first : last + 1])
    return best


def _end_of_run(known: Sequence[TaskFacts], first: int, cap_cores: float) -> int:
    """Return the index of the last task of the longest run from `first`: `first` itself if it cannot even be joined to
    one."""
    used: list[float] = []
    for i in range(first, len(known)):
        task = known[i]
        joins = i == first or (
            task.process == known[i - 1].process
            and task.incoming == 1  # inner tasks have one channel in and one out (N13)
            and known[i - 1].outgoing == 1
        )
        if task.is_chained or not task.may_chain or task.cpu_cores is None or not joins:
            return i - 1
        used.append(task.cpu_cores)
        if fsum(used) > cap_cores - _SAME_CORES:
            return i - 1
    return len(known) - 1


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
        """Return where it runs."""
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
