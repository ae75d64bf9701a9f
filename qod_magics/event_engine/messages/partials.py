"""Windows of one operator whose messages several workers execute: partial results, and their merging.

Clients say by markers that they have passed the end of a window. A dispatcher passes these on as it likes, and has one
executed on each worker that may have executed messages of the window, after these: this hands on the partial result of
that worker. Counts and maxima stand for all aggregates that can be merged in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from qod_magics.core.dispatch import CLIENT, Kind, Message
from qod_magics.event_engine.messages.operators import Emitted


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A count of rows, and the largest key among them; -1 for none."""

    rows: int = 0
    largest: int = -1
    observed: int = 0  #: when the newest row arrived at the system, ns

    def merged(self, other: Aggregate) -> Aggregate:
        """Of the rows of both."""
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
        """Rows in open windows."""
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
        """Rows in windows of which a part is missing."""
        return sum(aggregate.rows for aggregate in self._open.values())

    def execute(self, message: Message) -> tuple[Emitted, ...]:
        """The window, if this was its last part."""
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
        """One for each window that ends with this progress, and operator."""
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
