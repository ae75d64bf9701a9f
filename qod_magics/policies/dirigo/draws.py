"""The random choices of the policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_ALL = (1 << 64) - 1


class Draws(Protocol):
    """Draws workers."""

    def some(self, workers: Sequence[int], number: int) -> Sequence[int]:
        """Different ones, at most as many as there are."""
        ...


class Seeded:
    """Uniform draws from a seed, by SplitMix64: the same on every platform, and without a state outside of it."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _ALL

    def below(self, number: int) -> int:
        """One of 0 to number - 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _ALL
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _ALL
        return ((mixed ^ (mixed >> 31)) * number) >> 64

    def some(self, workers: Sequence[int], number: int) -> Sequence[int]:
        """Different ones, at most as many as there are."""
        count = len(workers)
        if number == 1:
            return (workers[self.below(count)],)
        if number == 2 and count > 1:
            first, second = self.below(count), self.below(count - 1)
            return (workers[first], workers[second + (second >= first)])
        left = list(workers)
        for at in range(min(number, count)):
            other = at + self.below(count - at)
            left[at], left[other] = left[other], left[at]
        return left[:number]


class Listed:
    """Draws that were written down, consumed in order: for exact cases."""

    def __init__(self, draws: Sequence[Sequence[int]]) -> None:
        self._left = list(draws)

    def some(self, workers: Sequence[int], number: int) -> Sequence[int]:
        """The next one. ValueError if it isn't among the workers, or has more than asked for."""
        drawn = self._left.pop(0)
        if not set(drawn) <= set(workers) or len(drawn) > number:
            raise ValueError(f"the draw {drawn} is not {number} of {workers}")
        return drawn
