"""Violated sequences without listing them: one pass forwards and one backwards over a subgraph. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from qod_magics.core.job_graph import Channel, JobSequence, Task
from qod_magics.policies.nephele.placement import Subgraph


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
        """Latency of the worst known sequence through a channel of latency `ms`; None without any."""
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
        """The channels that lie on a known sequence above the limit, from the start of the path on."""
        return [channel for channel, worst in self._through() if worst > limit_ms]

    def worst(self) -> tuple[float, tuple[Task, ...]] | None:
        """Latency of the worst known sequence and its tasks along the path; None without any."""
        known = {task: ms for task, ms in self._until.items() if task in self._ends}
        if not known:
            return None
        task = max(known, key=known.__getitem__)
        return known[task], self._back_from(task)

    def worst_with(self, limit_ms: float, wanted: Callable[[Channel], bool]) -> tuple[float, tuple[Task, ...]] | None:
        """The worst sequence above the limit among those with a channel that is wanted; None without any."""
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
