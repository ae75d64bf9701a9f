"""Running means over the samples of the last span, and the estimate for a sequence (section 3.3). Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Window:
    """Samples of one element by the time of their arrival (N15). Times and spans in ns."""

    __slots__ = ("_samples", "span")

    def __init__(self, span: int) -> None:
        self.span = span  #: samples of this age and older are dropped
        self._samples: deque[tuple[int, float]] = deque()

    def add(self, arrived: int, value: float) -> None:
        """Take in a sample; arrivals do not go back in time."""
        self._samples.append((arrived, value))

    def clear(self) -> None:
        """Forget all samples."""
        self._samples.clear()

    def mean(self, now: int, span: int | None = None) -> float | None:
        """Arithmetic mean of the samples younger than the span, or than a shorter one; None without any."""
        samples = self._samples
        while samples and now - samples[0][0] >= self.span:
            samples.popleft()
        if span is None or span >= self.span:
            return sum(value for _, value in samples) / len(samples) if samples else None
        fresh = [value for arrived, value in samples if now - arrived < span]
        return sum(fresh) / len(fresh) if fresh else None


def estimate(means: Iterable[float | None]) -> float | None:
    """Sum of the means of a sequence's elements; None (unknown) if one of them has none."""
    total = 0.0
    for mean in means:
        if mean is None:
            return None
        total += mean
    return total
