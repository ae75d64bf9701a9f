"""Spark's columns and functions over arrays in memory, as far as the formulas of estimates need them: without Spark.

`ArrayFunctions` stands for pyspark.sql.functions over the rows of one group, `Values` for its columns. A formula then
gives figures: `formulas.count(ArrayFunctions({"_weight": weights}), None, 0.95).of` is a dict of value, low and high.
A null is NaN in a row, and None elsewhere.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import cached_property, reduce
from typing import Any

import numpy as np


class Values:
    """A column: an array with a value for each row, or one value for all of them; with its `name` in a struct."""

    __hash__ = None  # type: ignore[assignment]  # == compares each value, as that of a column does

    def __init__(self, of: Any, name: str = "") -> None:
        self.of, self.name = of, name

    def __add__(self, other: Any) -> Values:
        return _both(operator.add, self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Values:
        return _both(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Values:
        return _both(operator.sub, other, self)

    def __mul__(self, other: Any) -> Values:
        return _both(operator.mul, self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Values:
        return _both(_quotient, self, other)

    def __rtruediv__(self, other: Any) -> Values:
        return _both(_quotient, other, self)

    def __lt__(self, other: Any) -> Values:
        return _both(operator.lt, self, other)

    def __le__(self, other: Any) -> Values:
        return _both(operator.le, self, other)

    def __gt__(self, other: Any) -> Values:
        return _both(operator.gt, self, other)

    def __ge__(self, other: Any) -> Values:
        return _both(operator.ge, self, other)

    def __eq__(self, other: object) -> Values:  # type: ignore[override]
        return _both(operator.eq, self, other)

    def __ne__(self, other: object) -> Values:  # type: ignore[override]
        return _both(operator.ne, self, other)

    def __and__(self, other: Any) -> Values:
        return _both(operator.and_, self, other)

    def __getitem__(self, field: str) -> Values:
        return Values(self.of[field])

    def isNull(self) -> Values:
        """Return whether it is null."""
        return Values(_is_null(self.of))

    def isNotNull(self) -> Values:
        """Return whether it is not null."""
        return Values(np.logical_not(_is_null(self.of)))

    def cast(self, kind: str) -> Values:
        """Return the value as it is: all numbers are of one kind here. Texts become numbers."""
        if kind == "array<double>":
            return Values([float(each) for each in self.of])
        return Values(None if self.of is None else int(self.of) if kind == "int" else self.of)

    def alias(self, name: str) -> Values:
        """Under another name."""
        return Values(self.of, name)


class Case(Values):
    """The first value whose condition holds."""

    def __init__(self, branches: tuple[tuple[Values, Any], ...]) -> None:
        self._branches = branches
        self.name = ""

    @cached_property
    def of(self) -> Any:
        """Return values of the first branch that applies, null if none does."""
        return _choice(self._branches, None)

    def when(self, condition: Values, value: Any) -> Case:
        """Return the CASE with another branch."""
        return Case((*self._branches, (condition, value)))

    def otherwise(self, value: Any) -> Values:
        """Return the values, with `value` where no branch applies."""
        return Values(_choice(self._branches, value))


class ArrayFunctions:
    """The functions, over these columns of a group's rows, arrays of one length."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        self._columns = columns
        self._rows = len(next(iter(columns.values())))

    def col(self, name: str) -> Values:
        return Values(np.asarray(self._columns[name], float))

    def lit(self, value: Any) -> Values:
        return Values(value)

    def when(self, condition: Values, value: Any) -> Case:
        return Case(((condition, value),))

    def coalesce(self, *given: Values) -> Values:
        return Case(tuple((each.isNotNull(), each) for each in given))

    def sum(self, x: Values) -> Values:
        return self._over(np.sum, x)

    def max(self, x: Values) -> Values:
        return self._over(np.max, x)

    def min(self, x: Values) -> Values:
        return self._over(np.min, x)

    def bit_or(self, x: Values) -> Values:
        there = self._there(x).astype(int)
        return Values(int(np.bitwise_or.reduce(there)) if len(there) else None)

    def split(self, text: Values, separator: str) -> Values:
        return Values(text.of.split(separator))

    def count(self, x: Values) -> Values:
        return Values(len(self._there(x)))

    def collect_set(self, x: Values) -> Values:
        """Return the different values; those of structs by their fields, without rows in which one of these is null."""
        if not isinstance(x.of, dict):
            return Values([float(each) for each in np.unique(self._there(x))])
        fields = np.array([self._spread(Values(each)) for each in x.of.values()])
        rows = np.unique(fields[:, ~np.isnan(fields).any(axis=0)], axis=1).T
        return Values([dict(zip(x.of, map(float, row), strict=True)) for row in rows])

    def sort_array(self, array: Values) -> Values:
        return Values(sorted(array.of, key=lambda each: tuple(each.values()) if isinstance(each, dict) else each))

    def size(self, array: Values) -> Values:
        return Values(len(array.of))

    def xxhash64(self, *columns: Values) -> Values:
        """Return a number for each of the different rows of these columns."""
        rows = np.array([self._spread(each) for each in columns])
        return Values(np.unique(rows, axis=1, return_inverse=True)[1].reshape(-1))

    def percentile(self, x: Values, shares: Values, times: Values | None = None) -> Values:
        there = ~np.isnan(self._spread(x)) if times is None else ~np.isnan(self._spread(x)) & ~np.isnan(times.of)
        if not there.any():
            return Values(None)
        counted = np.ones(there.sum(), int) if times is None else times.of[there].astype(int)
        order = np.argsort(self._spread(x)[there], kind="stable")
        values, ends = self._spread(x)[there][order], np.cumsum(counted[order])

        def at(share: float) -> float:
            position = (ends[-1] - 1) * share
            low, high = (values[np.searchsorted(ends, end(position), side="right")] for end in (math.floor, math.ceil))
            return float(low + (high - low) * (position - math.floor(position)))

        return Values([at(each.of) for each in shares.of] if isinstance(shares.of, list) else at(shares.of))

    def sqrt(self, x: Values) -> Values:
        return _apply(lambda a: np.sqrt(a) if np.ndim(a) or a >= 0 else math.nan, x)

    def log2(self, x: Values) -> Values:
        return _apply(lambda a: math.log2(a) if a > 0 else None, x)

    def abs(self, x: Values) -> Values:
        return _apply(np.abs, x)

    def floor(self, x: Values) -> Values:
        return _apply(math.floor, x)

    def round(self, x: Values) -> Values:
        return _apply(np.round, x)

    def greatest(self, *given: Values) -> Values:
        if any(np.ndim(each.of) for each in given):
            return Values(np.fmax.reduce([np.asarray(_of(each), float) * np.ones(self._rows) for each in given]))
        return Values(max([each.of for each in given if each.of is not None], default=None))

    def least(self, *given: Values) -> Values:
        return Values(min((each.of for each in given if each.of is not None), default=None))

    def array(self, *given: Values) -> Values:
        return Values(list(given))

    def element_at(self, array: Values, position: Any) -> Values:
        position = position.of if isinstance(position, Values) else position
        if array.of is None or position is None:
            return Values(None)
        found = array.of[position - 1]
        return found if isinstance(found, Values) else Values(found)

    def struct(self, *given: Values) -> Values:
        return Values({each.name: each.of for each in given})

    def transform(self, array: Values, body: Callable[[Values], Values]) -> Values:
        return Values([body(each) for each in array.of])

    def aggregate(self, array: Values, start: Values, merge: Callable[[Values, Values], Values]) -> Values:
        return reduce(merge, (each if isinstance(each, Values) else Values(each) for each in array.of), start)

    def _spread(self, x: Values) -> np.ndarray:
        """Return a value for each row."""
        of = np.asarray(math.nan if x.of is None else x.of, float)
        return of if of.ndim else np.broadcast_to(of, (self._rows,))

    def _there(self, x: Values) -> np.ndarray:
        spread = self._spread(x)
        there: np.ndarray = spread[~np.isnan(spread)]
        return there

    def _over(self, reduce: Callable[[np.ndarray], Any], x: Values) -> Values:
        there = self._there(x)
        return Values(float(reduce(there)) if len(there) else None)


def _of(value: Any) -> Any:
    return value.of if isinstance(value, Values) else value


def _is_null(of: Any) -> Any:
    return np.isnan(of) if isinstance(of, np.ndarray) and of.dtype == float else of is None


def _apply(function: Callable[[Any], Any], x: Values) -> Values:
    return Values(None if x.of is None else function(x.of))


def _both(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Values:
    if isinstance(a, Values):
        a = a.of
    if isinstance(b, Values):
        b = b.of
    return Values(None if a is None or b is None else function(a, b))


def _choice(branches: tuple[tuple[Values, Any], ...], otherwise: Any) -> Any:
    """Return the value of the first condition that is true: by row where one is by row, and by fields of structs."""
    conditions = [_of(condition) for condition, _ in branches]
    for each in conditions:
        if isinstance(each, np.ndarray) and each.ndim:
            break
    else:
        for condition, (_, value) in zip(conditions, branches, strict=True):
            if condition:
                return _of(value)
        return _of(otherwise)
    if isinstance(fields := _of(branches[0][1]), dict):
        return {name: _choice(tuple((each, value[name]) for each, value in branches), None) for name in fields}
    chosen = math.nan if _of(otherwise) is None else _of(otherwise)
    for condition, (_, value) in zip(reversed(conditions), reversed(branches), strict=True):
        chosen = np.where(
            False if condition is None else condition, math.nan if _of(value) is None else _of(value), chosen
        )
    return chosen


def _quotient(a: Any, b: Any) -> Any:
    return a / b if np.ndim(b) or b else None  # null, as in Spark
