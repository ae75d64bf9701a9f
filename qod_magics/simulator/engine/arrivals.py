"""Rows that the injector sends, step by step: whole rows, exactly as many as are due. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qod_magics.kafka.rates import ROUNDING, PiecewiseLinear

Array = np.ndarray[Any, np.dtype[Any]]
AHEAD = 256  #: steps computed at once


def due(rate: PiecewiseLinear, times: Array) -> Array:
    """`rate.due` of many instants at once."""
    seconds, rates = (np.array(column) for column in zip(*rate.points, strict=True))
    area = np.concatenate(([0.0], np.cumsum(np.diff(seconds) * (rates[1:] + rates[:-1]) / 2)))
    index = np.searchsorted(seconds, times, "right") - 1
    before = index < 0
    index = np.maximum(index, 0)
    after = np.minimum(index + 1, len(seconds) - 1)
    width = seconds[after] - seconds[index]
    slope = np.where(width > 0, (rates[after] - rates[index]) / np.where(width > 0, width, 1.0), 0.0)
    elapsed = times - seconds[index]
    rows = np.where(before, times * rates[0] - seconds[0] * rates[0], area[index] + elapsed * rates[index])
    rows = np.where(before, rows, rows + slope * elapsed * elapsed / 2)
    return np.asarray(np.floor(np.maximum(rows - rate.rows(seconds[0], 0.0), 0.0) + ROUNDING), np.int64)


class Arrivals:
    """Rows arriving on each topic in each step of `step_s` seconds, until second `end_s`."""

    def __init__(self, rates: Sequence[PiecewiseLinear], step_s: float, end_s: float) -> None:
        self._curves = list(dict.fromkeys(rates))
        number = {rate: n for n, rate in enumerate(self._curves)}
        self._of = np.fromiter((number[rate] for rate in rates), np.int64)
        self._step_s, self._end_s = step_s, end_s
        self._first = 0
        self._table = np.zeros((0, len(self._curves)), np.int64)

    def __repr__(self) -> str:
        return f"arrivals on {len(self._of)} topics until {self._end_s:g} s"

    def step(self, number: int) -> Array:
        """Rows by topic in step `number` (0 is the first); call in order."""
        if not self._first <= number < self._first + len(self._table):
            self._first = number
            times = np.minimum(np.arange(number, number + AHEAD + 1) * self._step_s, self._end_s)
            columns = [np.diff(due(curve, times)) for curve in self._curves]
            self._table = np.stack(columns, axis=1) if columns else np.zeros((AHEAD, 0), np.int64)
        row: Array = self._table[number - self._first][self._of]
        return row
