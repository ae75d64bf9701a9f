"""When a progress is seen: a least-squares line through recent pairs of progress and time (9)."""

from __future__ import annotations

from collections import deque
from fractions import Fraction


class ProgressMap:
    """The line of one source stream, over its newest pairs. Exact: all sums are whole numbers, kept as they change."""

    __slots__ = ("_p", "_pairs", "_pp", "_pt", "_t", "history", "newest")

    def __init__(self, history: int = 64) -> None:
        self.history = history
        self.newest: tuple[int, int] | None = None
        self._pairs: deque[tuple[int, int]] = deque()
        self._p = self._t = self._pp = self._pt = 0

    def update(self, progress: int, time: int) -> None:
        """Add an observed pair, and forget the oldest one beyond the history. The newest one counts once."""
        pair = (progress, time)
        if pair == self.newest:
            return  # an event for several targets
        self.newest = pair
        pairs = self._pairs
        pairs.append(pair)
        self._p += progress
        self._t += time
        self._pp += progress * progress
        self._pt += progress * time
        if len(pairs) > self.history:
            progress, time = pairs.popleft()
            self._p -= progress
            self._t -= time
            self._pp -= progress * progress
            self._pt -= progress * time

    def _slope(self) -> tuple[int, int]:
        """Numerator and denominator of alpha; the latter is 0 where it falls back to 1."""
        n = len(self._pairs)
        above = n * self._pt - self._p * self._t
        below = n * self._pp - self._p * self._p
        return (above, below) if below > 0 and above > 0 else (1, 0)

    def time(self, progress: int) -> int | None:
        """When `progress` is seen, rounded down; None before the first pair."""
        if self.newest is None:
            return None
        above, below = self._slope()
        if not below:
            return progress + self.newest[1] - self.newest[0]
        n = len(self._pairs)
        return (self._t * below + (n * progress - self._p) * above) // (n * below)

    def line(self) -> tuple[Fraction, Fraction] | None:
        """Alpha and gamma of (9), exact. Alpha is 1 for one pair, equal progress, or time that does not grow."""
        if self.newest is None:
            return None
        above, below = self._slope()
        if not below:
            return Fraction(1), Fraction(self.newest[1] - self.newest[0])
        alpha = Fraction(above, below)
        return alpha, (self._t - alpha * self._p) / len(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)
