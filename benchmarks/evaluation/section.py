"""A part of the evaluation as the document shows it: its goals, and its table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.row import Row

Runs = Sequence[Figures]
Values = list[float | None]
Table = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Section:
    """One part: what was measured, its figures with their goals, and the table of all that it measured."""

    title: str
    what: str  #: what was measured, a clause
    rows: Callable[[Runs], list[Row]]
    table: Callable[[Runs], Table]
    shown: tuple[str, ...]  #: the beginnings of the figures that the summary shows


def at(runs: Runs, *path: str) -> Values:
    """Return a figure of each run by its keys; None where a run lacks it."""
    found: Values = []
    for run in runs:
        value: Any = run
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        found.append(None if value is None else float(value))
    return found


def middle(values: Sequence[float | None], digits: int = 4) -> float | None:
    """Return the median of the runs that have a value, rounded; None where none has."""
    known = [value for value in values if value is not None]
    return round(median(known), digits) if known else None


def each(function: Callable[..., float], *columns: Values) -> Values:
    """Apply a function run by run; None where one of the values is unknown."""
    return [
        None if any(value is None for value in values) else function(*values) for values in zip(*columns, strict=True)
    ]


def ratio(a: float, b: float) -> float:
    """Return a / b; 0 for 0 / 0, infinity where only b is 0."""
    if not a:
        return 0.0
    return a / b if b else float("inf")


def names(runs: Runs, key: str) -> list[str]:
    """Return the keys of a mapping over all runs, in order."""
    return [*dict.fromkeys(name for run in runs for name in run[key])]


def alike(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield the rows of one measure together: those of several subjects (recipes, loads, policies)."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.what, []).append(row)
    yield from found.values()


def shown(rows: Sequence[Row]) -> str:
    """Write the median of one subject with its range, or the range of several medians."""
    if len(rows) == 1:
        return rows[0].shown()
    known = sorted(row.middle for row in rows if row.middle is not None)
    if not known:
        return "never"
    ends = dict.fromkeys(f"{end:.3g}" for end in (known[0], known[-1]))
    return f"{' to '.join(ends)}{rows[0].unit}" + ("; for some never" if len(known) < len(rows) else "")
