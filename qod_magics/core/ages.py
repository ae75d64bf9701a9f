"""Distributions of ages: points of an age in seconds, each with the number of rows that it stands for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

#: An age, seconds, and the rows of it.
Points = Sequence[tuple[float, float]]
#: Shares at which a distribution is sampled: closer where latency targets are, and where a pause between batches makes
#: it steep.
LEVELS = (*(i / 10 for i in range(10)), 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 1.0)
PARTS = 4


def slices(quantiles: Sequence[float], rows: float) -> list[tuple[float, float]]:
    """Return slices of a distribution by its quantiles at `LEVELS`, `PARTS` between two levels, values being spread
    evenly there: middle of the value, rows.

    Raises ValueError unless there is one quantile for each level.
    """
    found = []
    for (s, t), (low, high) in zip(pairwise(LEVELS), pairwise(quantiles), strict=True):
        for part in range(PARTS):
            middle = (part + 0.5) / PARTS
            found.append((low + (high - low) * middle, (t - s) * rows / PARTS))
    return found


def quantile(points: Iterable[tuple[float, float]], share: float) -> float | None:
    """Return the least age of a point that this share of the rows does not exceed; None without rows."""
    ordered = sorted((age, rows) for age, rows in points if rows > 0)
    wanted, done = share * sum(rows for _, rows in ordered) * (1 - 1e-9), 0.0
    for age, rows in ordered:
        done += rows
        if done >= wanted:
            return age
    return ordered[-1][0] if ordered else None


def condensed(points: Iterable[tuple[float, float]], count: int) -> list[tuple[float, float]]:
    """Return at most `count` points of equal rows with the same total and the same mean."""
    ordered = sorted((age, rows) for age, rows in points if rows > 0)
    if len(ordered) <= count:
        return ordered
    each = sum(rows for _, rows in ordered) / count
    found: list[tuple[float, float]] = []
    weighted = held = 0.0
    for age, rows in ordered:
        left = rows
        while held + left >= each * (1 - 1e-9) and len(found) < count - 1:
            taken = each - held
            found.append(((weighted + age * taken) / each, each))
            weighted, held, left = 0.0, 0.0, max(left - taken, 0.0)
        weighted, held = weighted + age * left, held + left
    if held > each * 1e-9:
        found.append((weighted / held, held))
    return found
