"""The columns of a query's result by what can be drawn of them, and their values as text. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

#: One row of a result, as Spark's JSON has it; a value that is null is left out.
Row = Mapping[str, Any]

WEIGHT = "_weight"
_NUMBERS = ("byte", "short", "integer", "long", "float", "double")
_TIMES = ("timestamp", "timestamp_ntz", "date")


class Kind(StrEnum):
    """What a column holds."""

    WINDOW = "window"  #: a struct of start and end
    TIME = "time"  #: a timestamp or a date
    ESTIMATE = "estimate"  #: a struct of value, low and high, numbers
    NUMBER = "number"
    TEXT = "text"
    OTHER = "other"  #: other structs, arrays and maps: only shown as text


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result."""

    name: str
    kind: Kind

    @property
    def is_measure(self) -> bool:
        """Whether its values can be the height of a bar."""
        return self.kind in (Kind.ESTIMATE, Kind.NUMBER)

    @property
    def is_time(self) -> bool:
        """Whether its values are points in time, as the starts of windows are."""
        return self.kind in (Kind.WINDOW, Kind.TIME)


@dataclass(frozen=True, slots=True)
class Interval:
    """A measured value; of an estimate with the ends of its interval. What is not known is None."""

    value: float | None
    low: float | None = None
    high: float | None = None


def columns_of(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns of a Spark schema in its JSON form, without `_weight`."""
    return tuple(Column(f["name"], _kind_of(f["type"])) for f in schema["fields"] if f["name"] != WEIGHT)


def _kind_of(type_: Any) -> Kind:
    """Return the kind of a Spark type in its JSON form."""
    if isinstance(type_, str):
        if type_ in _TIMES:
            return Kind.TIME
        if type_ in _NUMBERS or type_.startswith("decimal"):
            return Kind.NUMBER
        return Kind.OTHER if type_ in ("binary", "variant") else Kind.TEXT
    if type_.get("type") == "struct":
        fields = {field["name"]: _kind_of(field["type"]) for field in type_["fields"]}
        if fields == {"start": Kind.TIME, "end": Kind.TIME}:
            return Kind.WINDOW
        if fields == dict.fromkeys(("value", "low", "high"), Kind.NUMBER):
            return Kind.ESTIMATE
    return Kind.OTHER


def moment(value: Any) -> datetime | None:
    """Return a time as it reads on the clock of Spark's session, without its zone; of a window, its start. None if it
    is null or no time."""
    if isinstance(value, dict):
        value = value.get("start")
    return _parsed(value) if isinstance(value, str) else None


@lru_cache(maxsize=4096)  # windows come again and again
def _parsed(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:  # years beyond 9999
        return None


def milliseconds(at: datetime) -> float:
    """A moment as a chart has it: milliseconds since 1970 on its own clock."""
    return at.replace(tzinfo=UTC).timestamp() * 1000.0


def measured(value: Any) -> Interval:
    """Return a number, or an estimate with its interval. What is null, or not finite, is None."""
    if isinstance(value, dict):
        return Interval(*(_number(value.get(part)) for part in ("value", "low", "high")))
    return Interval(_number(value))


def height(value: Any) -> float | None:
    """Return the value of `measured` alone."""
    return _number(value.get("value") if isinstance(value, dict) else value)


def _number(value: Any) -> float | None:
    """Spark writes what is not finite as text."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


NOTHING = "-"
LONGEST = 40  #: letters of a cell


def cell(value: Any, kind: Kind) -> str:
    """Return a value in words: of an estimate with its interval, "1,234 [1,100, 1,360]"."""
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
    """Return a number as people read it: whole ones in full, others with four digits or more."""
    if number is None:
        return NOTHING
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def table(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """Return rows under the names of their columns, numbers to the right."""
    cells = [[c.name for c in columns], *([cell(row.get(c.name), c.kind) for c in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if column.is_measure else text.ljust(width)
            for text, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in cells
    )
