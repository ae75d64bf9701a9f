"""Operators: the state that messages build up, and the rows that executing one emits.

A message is a batch of rows, and the progress of its channel in event time. The result of a window has the end of the
window as its progress, and the moment just before it as the event time of its rows: it belongs to the windows that
contain that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from qod_magics.core.dispatch import Message, channel_of


class Emitted(NamedTuple):
    """Rows that an operator emits to each of its target stages."""

    progress: int
    observed: int
    rows: int
    event_time: int = -1  #: event time of the rows; -1: the progress
    key: int = -1


class _Slowest:
    """The progress of the slowest of several channels."""

    __slots__ = ("_heap", "_progress")

    def __init__(self, channels: Sequence[int], origin: int) -> None:
        self._progress = dict.fromkeys(channels, origin)
        self._heap = [(origin, channel) for channel in sorted(channels)]  # current ones, and older

    def advance(self, channel: int, progress: int) -> int:
        """The progress that all channels have reached, now that this one has reached `progress`."""
        known, heap = self._progress, self._heap
        if progress > known[channel]:
            known[channel] = progress
            heappush(heap, (progress, channel))
            while known[heap[0][1]] != heap[0][0]:
                heappop(heap)
        return heap[0][0]


class Regular:
    """Emits rows for each message at once. A union of its channels: its progress is that of the slowest.

    Args:
        channels: that it reads, as `core.dispatch.channel_of` numbers them.
        selectivity: rows emitted a row read.

    """

    def __init__(self, channels: Sequence[int], selectivity: float = 1.0) -> None:
        self.selectivity = selectivity
        self.rows = 0  #: read so far
        self.emitted = 0  #: rows so far
        self.waiting = 0  #: rows read that a later result counts
        self._slowest = _Slowest(channels, 0) if len(channels) > 1 else None

    def execute(self, message: Message) -> tuple[Emitted, ...]:
        """The output of a message; fractions of a row are carried to the next."""
        self.rows += message.rows
        rows = int(self.rows * self.selectivity + 1e-9) - self.emitted
        self.emitted += rows
        progress, event_time = message.progress, message.event_time
        if self._slowest is not None:
            event_time = progress if event_time < 0 else event_time
            progress = self._slowest.advance(channel_of(message), progress)
        return (Emitted(progress, message.observed, rows, event_time, message.key),)


class Windowed:
    """Emits a window once all its channels have passed the window's end: one result each, the oldest first.

    With the channels of two streams it is a join of their windows. Sliding windows share rows.

    Args:
        slide, length, origin: of the windows, ns of event time; ends lie at origin + length + k slide.
        channels: that it reads, as `core.dispatch.channel_of` numbers them.
        selectivity: rows emitted a row of a window.

    """

    def __init__(self, slide: int, length: int, origin: int, channels: Sequence[int], selectivity: float = 1.0) -> None:
        if slide <= 0 or length <= 0:
            raise ValueError(f"a window needs a slide and a length above 0: {slide}, {length}")
        self.slide, self.length = slide, length
        self.selectivity = selectivity
        self.rows = 0  #: read so far
        self.late = 0  #: rows of which a window had been emitted
        self.emitted = 0  #: rows so far
        self._progress = dict.fromkeys(channels, origin)
        self._behind = len(self._progress)  # channels that have not passed the end of the oldest open window
        self._open: dict[int, list[int]] = {}  # [rows, newest observed] by the window's end
        self._next = origin + (length % slide or slide)  # end of the oldest window that was not emitted

    @property
    def low(self) -> int:
        """The progress that all channels have reached."""
        return min(self._progress.values())

    @property
    def waiting(self) -> int:
        """Rows in open windows; sliding ones count each row in each of its windows."""
        return sum(rows for rows, _ in self._open.values())

    def execute(self, message: Message) -> tuple[Emitted, ...]:
        """The windows that a message completes."""
        self.rows += message.rows
        self._add(message)
        channel, progress = channel_of(message), message.progress
        before = self._progress[channel]
        if progress <= before:
            return ()
        self._progress[channel] = progress
        if before < self._next <= progress:
            self._behind -= 1
            if not self._behind:
                return self._complete(message)
        return ()

    def _add(self, message: Message) -> None:
        """Into the windows that contain its rows: with ends in (event_time, event_time + length]."""
        after = 1 + (message.progress if message.event_time < 0 else message.event_time)
        end = after + (self._next - after) % self.slide  # the first end after its rows
        beyond = after + self.length
        if end < self._next:
            self.late += message.rows
            end = self._next
            beyond = max(beyond, end + 1)
        while end < beyond:
            window = self._open.get(end)
            if window is None:
                window = self._open[end] = [0, 0]
            window[0] += message.rows
            if message.observed > window[1]:
                window[1] = message.observed
            end += self.slide

    def _complete(self, message: Message) -> tuple[Emitted, ...]:
        done = []
        low = self.low
        while self._next <= low:
            read, observed = self._open.pop(self._next, (0, 0))
            rows = int(read * self.selectivity + 1e-9)
            done.append(Emitted(self._next, max(observed, message.observed), rows, self._next - 1))
            self.emitted += rows
            self._next += self.slide
        self._behind = sum(progress < self._next for progress in self._progress.values())
        return tuple(done)
