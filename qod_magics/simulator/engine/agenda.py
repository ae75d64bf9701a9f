"""Calls that are due at later instants of virtual time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


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
