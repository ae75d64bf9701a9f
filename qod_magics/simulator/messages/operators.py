"""Operators: the state that messages build up, and the rows that executing one emits.

A message is a batch of rows, and the progress of its channel in event time. The result of a window has the end of the
window as its progress, and the moment just before it as the event time of its rows: it belongs to the windows that
contain that moment.

Several workers can execute the messages of one windowed operator (`PartialWindows`). Clients send markers when they
have passed the end of a window. A dispatcher passes a marker on to each worker that may have executed messages of the
window; executing it hands on the partial result of that worker, and `Merging` combines the partial results. Counts and
maxima stand for all aggregates that can be merged in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from qod_magics.core.engines import CLIENT, Kind, Message, channel_of


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

    def __init__(self, channels: Sequence[int]) -> None:
        self._progress = dict.fromkeys(channels, 0)
        self._heap = [(0, channel) for channel in sorted(channels)]  # current ones, and older

    def advance(self, channel: int, progress: int) -> int:
        """Return the progress that all channels have reached, now that this one has reached `progress`."""
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
        channels: that it reads, as `core.engines.channel_of` numbers them.
        selectivity: rows emitted a row read.

    """

    def __init__(self, channels: Sequence[int], selectivity: float = 1.0) -> None:
        self.selectivity = selectivity
        self.rows = 0  #: read so far
        self.emitted = 0  #: rows so far
        self.waiting = 0  #: rows read that a later result counts
        self._slowest = _Slowest(channels) if len(channels) > 1 else None

    def execute(self, message: Message) -> tuple[Emitted, ...]:
        """Return the output of a message; fractions of a row are carried to the next."""
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
        channels: that it reads, as `core.engines.channel_of` numbers them.
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
        """Return the progress that all channels have reached."""
        return min(self._progress.values())

    @property
    def waiting(self) -> int:
        """Return rows in open windows; sliding ones count each row in each of its windows."""
        return sum(rows for rows, _ in self._open.values())

    def execute(self, message: Message) -> tuple[Emitted, ...]:
        """Return the windows that a message completes."""
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
        """Add a message to the windows that contain its rows: with ends in (event_time, event_time + length]."""
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


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A count of rows, and the largest key among them; -1 for none."""

    rows: int = 0
    largest: int = -1
    observed: int = 0  #: when the newest row arrived at the system, ns

    def merged(self, other: Aggregate) -> Aggregate:
        """Return the aggregate of the rows of both."""
        return Aggregate(self.rows + other.rows, max(self.largest, other.largest), max(self.observed, other.observed))


NOTHING = Aggregate()


@dataclass(frozen=True, slots=True)
class Part:
    """One of the partial results of a window."""

    operator: int
    parts: int  #: number of parts of the operator's window
    aggregate: Aggregate


class EmittedPart(NamedTuple):
    """As `Emitted`, with a part of a window."""

    progress: int
    observed: int
    rows: int
    event_time: int
    key: int
    part: Part


class PartialWindows:
    """Keeps an aggregate for each machine and window.

    Args:
        slide, length, origin: as of `operators.Windowed`.
        channels: senders; each sends one marker a window.

    """

    def __init__(self, slide: int, length: int, origin: int, channels: Sequence[int]) -> None:
        self.slide, self.length, self.origin = slide, length, origin
        self.rows = 0  #: read so far
        self.late = 0  #: rows of windows that their machine had handed on
        self.emitted = 0  #: rows so far
        self._channels = len(channels)
        self._open: dict[tuple[int, int], Aggregate] = {}  # by machine and end
        self._handed_on: dict[int, int] = {}  # the newest end, by machine
        self._markers: dict[int, int] = {}  # executed, by end: where a dispatcher passes them on as they are

    @property
    def waiting(self) -> int:
        """Return rows in open windows."""
        return sum(aggregate.rows for aggregate in self._open.values())

    def execute(self, message: Message) -> tuple[EmittedPart, ...]:
        """Add rows; or hand on the partial result that the message's machine has of a window."""
        if message.kind is Kind.MARKER:
            return self._hand_on(message)
        self.rows += message.rows
        event_time = message.progress if message.event_time < 0 else message.event_time
        more = Aggregate(message.rows, message.key, message.observed)
        after = event_time + 1
        end = after + (self.origin + self.length - after) % self.slide  # the first end after its rows
        while end < after + self.length:
            if end <= self._handed_on.get(message.at, end - 1):
                self.late += message.rows
            else:
                window = (message.at, end)
                self._open[window] = self._open.get(window, NOTHING).merged(more)
            end += self.slide
        return ()

    def _hand_on(self, marker: Message) -> tuple[EmittedPart, ...]:
        end, parts = marker.progress, marker.payload
        if parts is None:
            count = self._markers.get(end, 0) + 1
            if count < self._channels:
                self._markers[end] = count
                return ()
            self._markers.pop(end, None)
            parts = 1
        self._handed_on[marker.at] = end
        found = self._open.pop((marker.at, end), NOTHING)
        self.emitted += found.rows
        part = Part(marker.operator, parts, found)
        return (EmittedPart(end, max(found.observed, marker.observed), found.rows, -1, -1, part),)


class Merging:
    """Emits a window once all its parts have arrived.

    Args:
        operators: number of operators that send parts.
        selectivity: rows emitted a row of a window.

    """

    def __init__(self, operators: int, selectivity: float = 1.0) -> None:
        self.operators, self.selectivity = operators, selectivity
        self.rows = 0  #: read so far
        self.emitted = 0  #: rows so far
        self.merged: dict[int, Aggregate] = {}  #: results, by the window's end
        self._open: dict[int, Aggregate] = {}
        self._missing: dict[int, dict[int, int]] = {}  # parts, by end and operator

    @property
    def waiting(self) -> int:
        """Return rows in windows of which a part is missing."""
        return sum(aggregate.rows for aggregate in self._open.values())

    def execute(self, message: Message) -> tuple[Emitted, ...]:
        """Return the window, if this was its last part."""
        part, end = message.payload, message.progress
        assert isinstance(part, Part), "only partial results can be merged"
        self.rows += message.rows
        missing = self._missing.setdefault(end, {})
        missing[part.operator] = missing.get(part.operator, part.parts) - 1
        together = self._open.get(end, NOTHING).merged(part.aggregate)
        if len(missing) < self.operators or any(missing.values()):
            self._open[end] = together
            return ()
        self._open.pop(end, None)
        del self._missing[end]
        self.merged[end] = together
        rows = int(together.rows * self.selectivity + 1e-9)
        self.emitted += rows
        return (Emitted(end, max(together.observed, message.observed), rows),)


@dataclass(slots=True)
class Ends:
    """The ends of the windows of one partial operator that a client has not yet passed."""

    operator: int
    slide: int
    next: int
    work: int  #: of handing on a partial result, ns


class MarkerSource:
    """The markers of all clients.

    Args:
        ends: by client, those of the operators that it may send to.

    """

    def __init__(self, ends: dict[int, list[Ends]]) -> None:
        self._ends = ends

    def markers(self, client: int, now: int, progress: int, numbers: Iterable[int]) -> Iterator[Message]:
        """Yield a marker for each window that ends with this progress, and operator."""
        number = iter(numbers)
        for each in self._ends.get(client, ()):
            while each.next <= progress:
                yield Message(
                    next(number),
                    each.operator,
                    CLIENT,
                    progress=each.next,
                    observed=now,
                    cost=each.work,
                    rows=0,
                    source=client,
                    kind=Kind.MARKER,
                    work=each.work,
                )
                each.next += each.slide
