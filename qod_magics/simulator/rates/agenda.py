"""What is due later in a simulated cluster (`Agenda`), and what happened since the last observation (`Events`)."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from qod_magics.core.runtime import Event


class Agenda:
    """Calls by the second they are due; those of the same second in the order in which they were added."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, int, Callable[[], object]]] = []  #: (second, order, call), a heap
        self._order = count()

    def __repr__(self) -> str:
        return f"agenda of {len(self._calls)} calls"

    def at(self, second: float, call: Callable[[], object]) -> None:
        """Add a call."""
        heappush(self._calls, (second, next(self._order), call))

    def run(self, now: float) -> None:
        """Make the calls that are due."""
        while self._calls and self._calls[0][0] <= now + 1e-9:
            heappop(self._calls)[2]()


class Events:
    """Events since the last observation."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def __repr__(self) -> str:
        return f"{len(self._events)} events"

    def tell(self, kind: str, **detail: Any) -> None:
        """Add an event."""
        self._events.append(Event(kind, detail))

    def add(self, event: Event) -> None:
        """Add an event."""
        self._events.append(event)

    def take(self) -> tuple[Event, ...]:
        """Return the events so far; the next call gives those after them."""
        events, self._events = tuple(self._events), []
        return events
