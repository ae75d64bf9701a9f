"""The random choices of the policies."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol


class Draws(Protocol):
    """Draws workers."""

    def some(self, workers: Sequence[int], number: int) -> Sequence[int]:
        """Different ones, at most as many as there are."""
        ...


class Seeded:
    """Uniform draws from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def some(self, workers: Sequence[int], number: int) -> Sequence[int]:
        """Different ones, at most as many as there are."""
        if number == 1:
            return (workers[int(self._random.random() * len(workers))],)
        return self._random.sample(workers, min(number, len(workers)))


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
