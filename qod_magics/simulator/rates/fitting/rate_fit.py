"""Curves fitted to measurements per cycle: input rates with their jumps, and background loads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from qod_magics.kafka.rates import PiecewiseLinear

Point = tuple[float, float]

#: Weight of second differences (smoothness) against residuals.
_SMOOTHING = 0.15

#: Cycles whose mean rates differ by no more than this share form one level.
LEVEL = 0.04
#: Cycles between two levels up to which the change is a step; beyond, it is a ramp.
_JUMP = 2


def rate_curve(ends: Sequence[float], means: Sequence[float]) -> PiecewiseLinear:
    """Return the rate whose means over the cycles that end at these seconds are `means`, rows/s.

    Levels are constant, and between two of them lies a jump that preserves the number of rows, or a ramp.
    """
    if not ends:
        return PiecewiseLinear.constant(0.0)
    starts = [max(ends[0] - (ends[1] - ends[0] if len(ends) > 1 else ends[0]), 0.0), *ends[:-1]]
    points: list[Point] = []
    runs = _levels(means)
    for number, (first, last) in enumerate(runs):
        level = median(means[first : last + 1])
        if not number:
            points += [((starts[i] + ends[i]) / 2, means[i]) for i in range(first)]
        begin, end = starts[first], ends[last]
        if number:
            begin = _join(points, starts, ends, means, (runs[number - 1], (first, last)), level)
        points += [(begin, level), (max(end, begin), level)]
    tail = runs[-1][1] + 1 if runs else 0
    points += [((starts[i] + ends[i]) / 2, means[i]) for i in range(tail, len(ends))]
    return PiecewiseLinear(tuple(_tidy(points)))


def _join(
    points: list[Point],
    starts: Sequence[float],
    ends: Sequence[float],
    means: Sequence[float],
    runs: tuple[tuple[int, int], tuple[int, int]],
    level: float,
) -> float:
    """Return where the next level begins; the points of a ramp to it are appended."""
    (_, last), (first, _) = runs
    between = range(last + 1, first)
    before = points[-1][1]
    if len(between) > _JUMP:
        points += [((starts[i] + ends[i]) / 2, means[i]) for i in between]
        return starts[first]
    begin, end = ends[last], starts[first]
    rows = sum(means[i] * (ends[i] - starts[i]) for i in between)
    share = (level * (end - begin) - rows) / (level - before) if level != before else 0.0
    jump = begin + min(max(share, 0.0), end - begin)
    points[-1] = (jump, before)
    return jump


def _levels(means: Sequence[float]) -> list[tuple[int, int]]:
    """Return (first, last) of each run of at least two cycles at one level."""
    found: list[tuple[int, int]] = []
    first = 0
    for i in range(1, len(means) + 1):
        if i < len(means):
            level = median(means[first:i])
            if abs(means[i] - level) <= max(LEVEL * level, 1.0):
                continue
        if i - first >= 2:
            found.append((first, i - 1))
        first = i
    return found


def _tidy(points: Sequence[Point]) -> list[Point]:
    """Return points in order, without negative rates or repeated points, and at most two at a second."""
    kept: list[Point] = []
    for second, rate in points:
        point = (round(max(second, kept[-1][0] if kept else 0.0), 3), max(rate, 0.0))
        if len(kept) >= 2 and kept[-1][0] == kept[-2][0] == point[0]:
            kept.pop()
        if kept and kept[-1] == point:
            continue
        kept.append(point)
    return kept


def unaveraged(means: Sequence[float], over: int) -> list[float]:
    """Return the values whose running means over the last `over` (at the start: fewer) are `means`, smoothed."""
    count = len(means)
    if count < 2 or over < 2:
        return list(means)
    averaging = np.zeros((count, count))
    for row in range(count):
        first = max(row - over + 1, 0)
        averaging[row, first : row + 1] = 1.0 / (row + 1 - first)
    bends = np.diff(np.eye(count), 2, axis=0) * _SMOOTHING
    found = np.linalg.lstsq(np.vstack((averaging, bends)), np.append(means, np.zeros(len(bends))), rcond=None)[0]
    return [float(value) for value in found]


def load_curve(points: Sequence[Point], tolerance: float) -> PiecewiseLinear:
    """Return a curve through noisy points: their running median of three, with no more corners than `tolerance`
    needs."""
    if not points:
        return PiecewiseLinear.constant(0.0)
    padded = [points[0], *points, points[-1]]
    smooth = [
        (padded[i][0], max(median(value for _, value in padded[i - 1 : i + 2]), 0.0)) for i in range(1, len(padded) - 1)
    ]
    merged: list[Point] = []
    for second, value in smooth:
        if not merged or second > merged[-1][0]:
            merged.append((max(second, 0.0), value))
    return PiecewiseLinear(tuple((round(s, 3), round(v, 6)) for s, v in _thin(merged, tolerance)))


def _thin(points: list[Point], tolerance: float) -> list[Point]:
    """Simplify points (Ramer-Douglas-Peucker), with distances along the y axis."""
    if len(points) < 3:
        return points
    (t0, v0), (t1, v1) = points[0], points[-1]
    off = [abs(v - (v0 + (v1 - v0) * (t - t0) / (t1 - t0))) for t, v in points]
    far = max(range(len(points)), key=off.__getitem__)
    if off[far] <= tolerance:
        return [points[0], points[-1]]
    return [*_thin(points[: far + 1], tolerance)[:-1], *_thin(points[far:], tolerance)]
