"""Robust non-negative least squares: costs from noisy readings. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

#: Huber's constant: standard deviations beyond which residuals count less.
HUBER = 1.345
ROUNDS = 20
#: Median absolute deviation of a normal distribution, in standard deviations.
MAD = 0.6745
#: A column whose relative residual on the columns before it is below this is collinear with them.
APART = 0.05


@dataclass(frozen=True, slots=True)
class Line:
    """`y = sum of coefficient * column`, as fitted."""

    coefficients: tuple[float, ...]  #: by column, 0 or more
    errors: tuple[float, ...]  #: standard error, by column; inf where the column was left out
    spread: float  #: standard deviation of the residuals, robust, in the unit of y
    relative: float  #: the same of residual / fitted value
    count: int  #: rows of data


def fit_line(columns: Sequence[Array], y: Array) -> Line:
    """Fit `y` with the columns, all of the same length. Every coefficient is 0 without data.

    A column that is collinear with those before it gets 0: its cost is in theirs.
    """
    count, width = len(y), len(columns)
    if not count:
        return Line((0.0,) * width, (float("inf"),) * width, 0.0, 0.0, 0)
    used = _independent(columns)
    x = np.stack([columns[k] for k in used], axis=1)
    weights = np.ones(count)
    found = np.zeros(len(used))
    for _ in range(ROUNDS):
        before, found = found, _nonnegative(x, y, weights)
        residual = y - x @ found
        spread = _spread(residual)
        if spread <= 1e-12 or np.allclose(before, found, rtol=1e-9, atol=1e-12):
            break
        weights = np.minimum(1.0, HUBER * spread / np.maximum(np.abs(residual), 1e-300))
    fitted = x @ found
    spread = _spread(y - fitted)
    relative = _spread((y - fitted)[fitted > 0] / fitted[fitted > 0]) if (fitted > 0).any() else 0.0
    inverse = np.linalg.pinv((x * weights[:, None]).T @ x)
    errors = spread * np.sqrt(np.maximum(np.diag(inverse), 0.0))
    values, every = [0.0] * width, [float("inf")] * width
    for position, k in enumerate(used):
        values[k], every[k] = float(found[position]), float(errors[position])
    return Line(tuple(values), tuple(every), spread, relative, count)


def _independent(columns: Sequence[Array]) -> list[int]:
    """The columns that are not collinear with those before them."""
    used: list[int] = []
    for k, column in enumerate(columns):
        norm = float(np.linalg.norm(column))
        if norm == 0.0:
            continue
        if used:
            basis = np.stack([columns[j] for j in used], axis=1)
            rest = column - basis @ np.linalg.lstsq(basis, column, rcond=None)[0]
            if float(np.linalg.norm(rest)) < APART * norm:
                continue
        used.append(k)
    return used or [0]


def _nonnegative(x: Array, y: Array, weights: Array) -> Array:
    """Weighted least squares over the subset of columns that is best with no negative coefficient."""
    root = np.sqrt(weights)
    a, b = x * root[:, None], y * root
    best, least = np.zeros(x.shape[1]), float(b @ b)
    for size in range(1, x.shape[1] + 1):
        for subset in combinations(range(x.shape[1]), size):
            part = np.linalg.lstsq(a[:, subset], b, rcond=None)[0]
            if (part < 0).any():
                continue
            rest = b - a[:, subset] @ part
            if float(rest @ rest) < least - 1e-12:
                best, least = np.zeros(x.shape[1]), float(rest @ rest)
                best[list(subset)] = part
    return best


def _spread(residual: Array) -> float:
    """Robust standard deviation, from the median absolute residual."""
    return float(np.median(np.abs(residual)) / MAD) if len(residual) else 0.0
