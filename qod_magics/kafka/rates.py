"""Rates that change in time: piecewise linear functions with an exact integral. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import floor, isfinite

#: float rounding error, in rows, that must not make a count one row short
ROUNDING = 1e-6


@dataclass(frozen=True)
class PiecewiseLinear:
    """A rate, rows/s, over time, seconds.

    `points` are (second, rate) in order of time, at least one. Between two points the rate is linear; before the
    first it is the first rate, after the last the last one. Two points at the same second are a jump: from that
    second on the later one holds.

    Raises ValueError when there are no points, or they are out of order, negative, not finite, or three at one second.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("a rate needs at least one point [second, rows/s]")
        for second, rate in self.points:
            if not (isfinite(second) and isfinite(rate)) or second < 0 or rate < 0:
                raise ValueError(
                    f"point [{second:g}, {rate:g}] must have a second and a rate of 0 or more, both finite"
                )
        for (before, _), (after, _) in pairwise(self.points):
            if after < before:
                raise ValueError(f"second {after:g} comes after second {before:g}: put the points in order of time")
        for (first, _), (third, _) in zip(self.points, self.points[2:], strict=False):
            if first == third:
                raise ValueError(f"more than two points at second {first:g}: a jump has two")

    @classmethod
    def constant(cls, rate: float) -> PiecewiseLinear:
        """The same rate, rows/s, at all times."""
        return cls(((0.0, float(rate)),))

    @classmethod
    def through(cls, points: Iterable[Iterable[float]]) -> PiecewiseLinear:
        """The rate through these (second, rows/s) pairs."""
        return cls(tuple((float(second), float(rate)) for second, rate in points))

    def rate(self, t: float) -> float:
        """The rate at second `t`, rows/s; at a jump the later of the two."""
        index = bisect_right(self._seconds, t)
        if index == 0:
            return self.points[0][1]
        if index == len(self.points):
            return self.points[-1][1]
        (t0, r0), (t1, r1) = self.points[index - 1], self.points[index]
        return r0 + (r1 - r0) * ((t - t0) / (t1 - t0))

    def rows(self, t0: float, t1: float) -> float:
        """The integral of the rate from second `t0` to second `t1`: rows, fractional.

        Negative when `t1` lies before `t0`.
        """
        return self._from_first(t1) - self._from_first(t0)

    def due(self, t: float) -> int:
        """Whole rows due from second 0 up to second `t`: the integral, rounded down. 0 before the start."""
        return floor(self.rows(0.0, t) + ROUNDING) if t > 0 else 0

    def peak(self, t0: float, t1: float) -> float:
        """The highest rate within seconds `t0` to `t1`, inclusive; the rate before a jump at `t0` does not count."""
        inside = (rate for second, rate in self.points if t0 < second <= t1)
        return max(self.rate(t0), self.rate(t1), *inside)

    @cached_property
    def _seconds(self) -> tuple[float, ...]:
        return tuple(second for second, _ in self.points)

    @cached_property
    def _areas(self) -> tuple[float, ...]:
        """Rows from the first point up to each point."""
        trapezes = ((t1 - t0) * (r0 + r1) / 2 for (t0, r0), (t1, r1) in pairwise(self.points))
        return tuple(accumulate(trapezes, initial=0.0))

    def _from_first(self, t: float) -> float:
        """Rows from the first point up to second `t`; negative before it."""
        index = bisect_right(self._seconds, t)
        if index == 0:
            return (t - self.points[0][0]) * self.points[0][1]
        second, rate = self.points[index - 1]
        return self._areas[index - 1] + (t - second) * (rate + self.rate(t)) / 2
