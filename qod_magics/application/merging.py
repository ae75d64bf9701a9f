"""Groups whose rows several instances have read: how the parts of a group become its row. Pure.

Where rows of one key are lent to other instances, each instance counts its own part of a group. Counts, sums, least and
greatest values of parts make those of the whole; so does a mean that has the count of its values beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Any, Literal, TypeAlias

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Merge:
    """How the values of a column are merged."""

    kind: Literal["sum", "min", "max", "mean"]
    count: str = ""  #: of a mean: the column that counts its values


#: By column outside of the group.
Merges: TypeAlias = Mapping[str, Merge]


def merged(parts: Sequence[Row], merges: Merges) -> Row:
    """Return the row of a group from those of its parts, at least one, as Spark's JSON has them: what is null is left
    out, and numbers that are not finite are texts."""
    found = dict(parts[0])
    if len(parts) == 1:
        return found
    for name, merge in merges.items():
        values = [_number(part[name]) for part in parts if part.get(name) is not None]
        found.pop(name, None)
        if merge.kind == "mean":
            weights = [_number(part[merge.count]) for part in parts if part.get(name) is not None]
            values = [value * weight for value, weight in zip(values, weights, strict=True)]
            if values:
                found[name] = _text(sum(values) / sum(weights))
        elif values:
            found[name] = _text(_MERGES[merge.kind](values))
    return found


def merged_groups(rows: Iterable[Row], keys: Sequence[str], merges: Merges) -> list[Row]:
    """Return a row for each group, in the order in which the last of its parts came.

    Args:
        rows: one of each part of a group.
        keys: the columns of a group.
        merges: those of the others.

    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        id = json.dumps([row.get(key) for key in keys], sort_keys=True)
        groups[id] = [*groups.pop(id, []), row]
    kept = {*keys, *merges}
    return [{name: v for name, v in merged(parts, merges).items() if name in kept} for parts in groups.values()]


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


def _text(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _greatest(values: Sequence[Any]) -> Any:
    return max(values, key=lambda value: (isnan(value), value))  # to Spark, NaN is above all numbers


def _least(values: Sequence[Any]) -> Any:
    return min(values, key=lambda value: (isnan(value), value))


_MERGES: Mapping[str, Callable[[Sequence[Any]], Any]] = {"sum": sum, "min": _least, "max": _greatest}
