"""What happens in a simulated cluster, collected until the next observation."""

from __future__ import annotations

from typing import Any

from qod_magics.core.runtime import Event


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
        """The events so far; the next call gives those after them."""
        events, self._events = tuple(self._events), []
        return events
