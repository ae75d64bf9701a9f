"""The difference between two plans. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def plan_difference(expected: Mapping[str, Any], recorded: Mapping[str, Any]) -> tuple[float, str]:
    """The largest numeric difference and its key; infinite where the plans differ in more than a number.

    Additional keys of the recording are not the policy's and are ignored.
    """
    worst = (0.0, "")
    for key, value in expected.items():
        if key not in recorded:
            return float("inf"), key
        other = recorded[key]
        if key == "non_drop":
            value, other = _by_edge(value), _by_edge(other)
        difference = _difference(value, other)
        if difference > worst[0]:
            worst = (difference, key)
    return worst


def _by_edge(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{row['from'] or ''}>{row['to']}": row["d"] for row in rows}


def _difference(one: Any, other: Any) -> float:
    if isinstance(one, bool) or isinstance(other, bool):
        return 0.0 if one is other else float("inf")
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other)
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
        return max((_difference(one[key], other[key]) for key in one), default=0.0)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return max((_difference(a, b) for a, b in zip(one, other, strict=True)), default=0.0)
    return 0.0 if one == other else float("inf")
