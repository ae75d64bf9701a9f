"""What reporters sample for managers (section 3.3), and beside it the true means of every interval. Times are ns."""

from __future__ import annotations

from dataclasses import dataclass, field

from qod_magics.core.channel_qos import BufferSize, ChannelSample, Report
from qod_magics.core.job_graph import Channel, Task
from qod_magics.core.nanoseconds import MS


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
        """The report, if there is anything to report."""
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
        """An item enters the receiver's user code."""
        self.count += 1
        self.latency += now - exits
        self.buffered += ships - exits
        if tag >= 0:
            sample = ChannelSample(channel, (now - exits) / MS, tag)
            for mailbox in self.at_receiver:
                mailbox.latencies.append(sample)

    def take(self) -> tuple[float, float] | None:
        """Mean latency of the interval and its part before shipping, ms; None without an item."""
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
        """An item enters user code."""
        self._since += 1
        self._since_sum += now
        if self.sample_due:
            self.sample_due = False
            self.sampled.append(now)

    def work(self, now: int, takes: int) -> None:
        """The thread begins to work for the task."""
        self._busy += takes
        self._ends = now + takes

    def leave(self, task: Task, now: int) -> None:
        """An item leaves user code."""
        self.count += self._since
        self.latency += self._since * now - self._since_sum
        self._since = self._since_sum = 0
        if self.sampled:
            for mailbox in self.mailboxes:
                mailbox.task_latencies += [(task, (now - entered) / MS) for entered in self.sampled]
            self.sampled.clear()

    def take(self) -> float | None:
        """Mean latency of the interval, ms; None if no item left."""
        if not self.count:
            return None
        found = self.latency / self.count / MS
        self.count = self.latency = 0
        return found

    def take_busy(self, now: int) -> int:
        """Time at work since the last look, ns; work that goes on counts for the next one from now on."""
        left = max(self._ends - now, 0)
        found = self._busy - left
        self._busy = left
        return found
