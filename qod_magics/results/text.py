"""A result as text: cells of a table, and a whole one for terminals. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from qod_magics.results.columns import Column, Kind, Row, measured, moment

NOTHING = "-"
LONGEST = 40  #: letters of a cell


def cell(value: Any, kind: Kind) -> str:
    """A value in words: of an estimate with its interval, "1,234 [1,100, 1,360]"."""
    if value is None:
        return NOTHING
    if kind is Kind.ESTIMATE:
        found = measured(value)
        return f"{figure(found.value)} [{figure(found.low)}, {figure(found.high)}]"
    if kind is Kind.NUMBER:
        return figure(value) if measured(value).value is not None else str(value)
    if kind is Kind.TIME:
        return str(moment(value) or value)
    if kind is Kind.WINDOW and isinstance(value, Mapping):
        start, end = (moment(value.get(part)) for part in ("start", "end"))
        if start is not None and end is not None:
            return f"{start} to {end.time() if start.date() == end.date() else end}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def figure(number: float | None) -> str:
    """A number as people read it: whole ones in full, others with four digits or more."""
    if number is None:
        return NOTHING
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def table(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """Rows under the names of their columns, numbers to the right."""
    cells = [[c.name for c in columns], *([cell(row.get(c.name), c.kind) for c in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if column.is_measure else text.ljust(width)
            for text, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in cells
    )
