"""Tasks, their threads and their channels, as they run. Times are ns."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from qod_magics.core.channel_qos import BufferSize
from qod_magics.core.job_graph import Channel, Task
from qod_magics.event_engine.buffers.items import Item, Transit
from qod_magics.event_engine.buffers.measuring import ChannelMeter, TaskMeter
from qod_magics.event_engine.buffers.network import Way
from qod_magics.event_engine.buffers.output import OutputBuffer
from qod_magics.event_engine.buffers.scenario import Vertex


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
        """The channel that an item leaves by."""
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
