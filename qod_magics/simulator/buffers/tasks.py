"""Tasks, threads and channels as they run, and what reporters measure on them (section 3.3). Times are ns.

Beside the samples for managers, meters hold the true means of every interval.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from qod_magics.core.engines import MS
from qod_magics.core.job_graph import BufferSize, Channel, ChannelSample, Report, Task
from qod_magics.simulator.buffers.scenario import Item, OutputBuffer, Transit, Vertex, Way


@dataclass(slots=True, eq=False)
class Mailbox:
    """What one worker's reporter has for one manager until it next reports."""

    latencies: list[ChannelSample] = field(default_factory=list)
    life_times: list[ChannelSample] = field(default_factory=list)
    task_latencies: list[tuple[Task, float]] = field(default_factory=list)
    cpu: list[tuple[Task, float]] = field(default_factory=list)
    sizes: dict[Channel, BufferSize] = field(default_factory=dict)
    chains: list[tuple[Task, ...]] = field(default_factory=list)

    def take(self) -> Report | None:
        """Return the report, if there is anything to report."""
        if not (self.latencies or self.life_times or self.task_latencies or self.cpu or self.sizes or self.chains):
            return None
        found = Report(self.latencies, self.life_times, self.task_latencies, self.cpu, self.sizes, self.chains)
        self.latencies, self.life_times, self.task_latencies, self.cpu = [], [], [], []
        self.sizes, self.chains = {}, []
        return found


@dataclass(slots=True, eq=False)
class ChannelMeter:
    """Measures one channel."""

    at_sender: list[Mailbox] = field(default_factory=list)  #: get life times and sizes
    at_receiver: list[Mailbox] = field(default_factory=list)  #: get latencies
    tag_due: bool = True  #: whether the next item gets the tag of this interval
    #: of all items that entered the receiver's user code in this interval: number, latency, and the part of it before
    #: the buffer was shipped
    count: int = 0
    latency: int = 0
    buffered: int = 0

    def enter(self, channel: Channel, exits: int, ships: int, tag: int, now: int) -> None:
        """Count an item that enters the receiver's user code."""
        self.count += 1
        self.latency += now - exits
        self.buffered += ships - exits
        if tag >= 0:
            sample = ChannelSample(channel, (now - exits) / MS, tag)
            for mailbox in self.at_receiver:
                mailbox.latencies.append(sample)

    def take(self) -> tuple[float, float] | None:
        """Return the mean latency of the interval and its part before shipping, ms; None without an item."""
        if not self.count:
            return None
        found = self.latency / self.count / MS, self.buffered / self.count / MS
        self.count = self.latency = self.buffered = 0
        return found


@dataclass(slots=True, eq=False)
class TaskMeter:
    """Measures one task: from when an item enters to when the next one leaves.

    The first item that enters in an interval is remembered, and sampled when the next one leaves, in whatever interval
    that is: the source does not say that it is forgotten, and its tags on channels are not either. So a task that is
    slower than an interval gives a sample for each interval, and gives them late.
    """

    mailboxes: list[Mailbox] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)  #: when the items entered that are remembered
    sample_due: bool = True  #: whether the next item is remembered for this interval
    count: int = 0
    latency: int = 0
    _since: int = 0  #: items that entered since the last one left, and the sum of the times
    _since_sum: int = 0
    _busy: int = 0  #: time at work since the last look, with all of the work that has begun
    _ends: int = 0  #: when that work ends

    def enter(self, now: int) -> None:
        """Count an item that enters user code."""
        self._since += 1
        self._since_sum += now
        if self.sample_due:
            self.sample_due = False
            self.sampled.append(now)

    def work(self, now: int, takes: int) -> None:
        """Count the work that the thread begins for the task."""
        self._busy += takes
        self._ends = now + takes

    def leave(self, task: Task, now: int) -> None:
        """Count an item that leaves user code."""
        self.count += self._since
        self.latency += self._since * now - self._since_sum
        self._since = self._since_sum = 0
        if self.sampled:
            for mailbox in self.mailboxes:
                mailbox.task_latencies += [(task, (now - entered) / MS) for entered in self.sampled]
            self.sampled.clear()

    def take(self) -> float | None:
        """Return the mean latency of the interval, ms; None if no item left."""
        if not self.count:
            return None
        found = self.latency / self.count / MS
        self.count = self.latency = 0
        return found

    def take_busy(self, now: int) -> int:
        """Return the time at work since the last look, ns; work that goes on counts for the next one from now on."""
        left = max(self._ends - now, 0)
        found = self._busy - left
        self._busy = left
        return found


@dataclass(slots=True, eq=False)
class ChannelRun:
    """A channel: the output buffer at its sender, its way, and its books."""

    channel: Channel
    output: OutputBuffer
    way: Way
    size: BufferSize
    meter: ChannelMeter = field(default_factory=ChannelMeter)
    is_chained: bool = False
    cut: int = 0  #: how often what was on the way has been dropped
    #: items: written to it; on their way after their buffer was shipped; arrived in the receiver's queue; entered into
    #: the receiver's user code; dropped anywhere between
    written: int = 0
    in_flight: int = 0
    arrived: int = 0
    entered: int = 0
    dropped: int = 0
    queued: int = 0  #: in the receiver's queue


@dataclass(slots=True, eq=False)
class Thread:
    """What runs one task, or the tasks of a chain; one item at a time, in the order of arrival."""

    queue: deque[tuple[TaskRun, ChannelRun, Transit]] = field(default_factory=deque)
    is_busy: bool = False
    is_halted: bool = False


@dataclass(slots=True, eq=False)
class TaskRun:
    """A task."""

    task: Task
    vertex: Vertex
    worker: str
    thread: Thread
    #: by the number of a group of streams (of a stream, at a source), or under -1 for all
    outputs: Mapping[int, ChannelRun] = field(default_factory=dict)
    following: TaskRun | None = None  #: the next one of its chain
    meter: TaskMeter = field(default_factory=TaskMeter)
    entered: int = 0  #: items
    emitted: int = 0
    in_service: int = 0  #: items that it will have emitted when its thread is done with the one at hand
    #: at a merger: what waits for the other streams of its group
    held: dict[int, dict[int, deque[Item]]] = field(default_factory=dict)
    #: source items that entered since the last emission
    _origins: int = 0
    _origin_sum: int = 0

    def output(self, item: Item) -> ChannelRun:
        """Return the channel that an item leaves by."""
        found = self.outputs.get(item.group)
        return self.outputs[-1] if found is None else found

    def enter(self, item: Item, now: int) -> Item | None:
        """Take an item into user code; what is emitted when the work on it is done."""
        self.entered += 1
        vertex = self.vertex
        if vertex.kind == "sink":
            return None  # it has no task latency
        self.meter.enter(now)
        if vertex.kind == "map":
            bytes = self._bytes_out(item.coded)
            return Item(item.stream, item.group, bytes, item.coded, item.origins, item.origin_sum)
        self._origins += item.origins
        self._origin_sum += item.origin_sum
        streams = self.held.setdefault(item.group, {})
        streams.setdefault(item.stream, deque()).append(item)
        if len(streams) < vertex.inputs:
            return None
        merged = []
        for stream, queue in list(streams.items()):
            merged.append(queue.popleft())
            if not queue:
                del streams[stream]
        coded = sum(part.coded for part in merged) / len(merged)
        found = Item(-1, item.group, self._bytes_out(coded), coded, self._origins, self._origin_sum)
        self._origins = self._origin_sum = 0
        return found

    def _bytes_out(self, coded: float) -> int:
        vertex = self.vertex
        return vertex.bytes or max(1, round(coded * vertex.bytes_ratio))

    @property
    def holds(self) -> int:
        """Items that wait in a merger."""
        return sum(len(queue) for streams in self.held.values() for queue in streams.values())
