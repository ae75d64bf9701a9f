"""A query's result at one instant: its newest rows, and what is known of how right they are. Pure.

A query in update mode writes a group again each time that it has changed; `Newest` keeps the newest row of each key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any

# --- Columns and values -----------------------------------------------------------------------------------------------

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
        """Return whether its values can be the height of a bar."""
        return self.kind in (Kind.ESTIMATE, Kind.NUMBER)

    @property
    def is_time(self) -> bool:
        """Return whether its values are points in time, as the starts of windows are."""
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
    """Return a moment as a chart has it: milliseconds since 1970 on its own clock."""
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


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Accuracies of a query in the last cycle, fractions of 1; None: not known."""

    measured: float | None = None
    desired: float | None = None
    minimum: float | None = None

    def __str__(self) -> str:
        known = (("measured", self.measured), ("planned", self.desired), ("minimum", self.minimum))
        parts = [f"{what} {share:.1%}" for what, share in known if share is not None]
        return f"accuracy: {', '.join(parts)}" if parts else "accuracy: not known yet"


@dataclass(frozen=True, slots=True)
class Result:
    """The newest rows of a query."""

    query: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...] | None  #: the columns by which a row replaces an earlier one; None: each stands for itself
    rows: Mapping[str, Row]  #: by an id, the one written last at the end
    at: datetime  #: when it was read
    accuracy: Accuracy = Accuracy()
    labels: Mapping[str, str] = field(default_factory=dict)  #: what shedding does to a column, in words, where known
    missing: str | None = None  #: what shedding does to whole rows, in words
    unread: int = 0  #: rows of the topic that were not read, or forgotten for others
    whole: bool = False  #: whether the rows are all of the newest batch, in the order of the query
    incomplete: tuple[str, ...] = ()  #: what it lacks though no shedder dropped it, a sentence each
    state: str = ""  #: why no rows are written for the moment, in words; not saved

    def effects_of_shedding(self, columns: Sequence[str]) -> str | None:
        """Return what shedding does to these columns, and to whole rows, in words; None: not known."""
        by_words: dict[str, list[str]] = {}
        for column in columns:
            if column in self.labels:
                by_words.setdefault(self.labels[column], []).append(column)
        parts = [f"{', '.join(names)} {words}" for words, names in by_words.items()]
        return "; ".join([*parts, *([self.missing] if self.missing else [])]) if parts else None


def to_json(result: Result, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return JSON objects of a result with only these rows: first what is known of it, then each row."""
    head = {
        "query": result.query,
        "columns": {column.name: column.kind.value for column in result.columns},
        "keys": None if result.keys is None else list(result.keys),
        "at": result.at.isoformat(),
        "accuracy": {name: getattr(result.accuracy, name) for name in Accuracy.__slots__},
        "labels": dict(result.labels),
        "missing": result.missing,
        "unread": result.unread,
        "whole": result.whole,
        "incomplete": list(result.incomplete),
    }
    return [head, *map(dict, rows)]


def from_json(lines: Sequence[Mapping[str, Any]]) -> Result:
    """Return the result that `to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
    head, *rows = lines
    return Result(
        str(head["query"]),
        tuple(Column(name, Kind(kind)) for name, kind in dict(head["columns"]).items()),
        None if head["keys"] is None else tuple(head["keys"]),
        {str(number): dict(row) for number, row in enumerate(rows)},
        datetime.fromisoformat(head["at"]),
        Accuracy(**head["accuracy"]),
        dict(head["labels"]),
        head["missing"],
        int(head["unread"]),
        bool(head.get("whole", False)),
        tuple(map(str, head.get("incomplete", ()))),
    )


#: Rows kept, those written longest ago forgotten first.
MOST_ROWS = 20_000


class Newest:
    """The newest row of each key, or the newest rows where each stands for itself.

    Attributes:
        keys: the columns by whose values a row replaces an earlier one; None: none does.
        rows: the rows by an id, the one written last at the end.
        forgotten: how many were left out for others.

    """

    def __init__(self, keys: Sequence[str] | None, most: int = MOST_ROWS) -> None:
        self.keys = None if keys is None else tuple(keys)
        self.rows: dict[str, Row] = {}
        self.forgotten = 0
        self._most = most
        self._snapshot: Mapping[str, Row] | None = None
        self._count = 0

    def __repr__(self) -> str:
        by = "each for itself" if self.keys is None else f"by {', '.join(self.keys) or 'nothing: there is one'}"
        return f"{len(self.rows)} newest rows, {by}"

    def add(self, rows: Iterable[Row]) -> None:
        """Take up rows in the order in which they were written."""
        for row in rows:
            self._count += 1
            id = str(self._count) if self.keys is None else key_of(row, self.keys)
            self.rows.pop(id, None)  # it goes to the end
            self.rows[id] = row
            self._snapshot = None
        while len(self.rows) > self._most:
            del self.rows[next(iter(self.rows))]
            self.forgotten += 1

    def snapshot(self) -> Mapping[str, Row]:
        """Return the rows now, which later ones leave as they are; the same object until there are others."""
        if self._snapshot is None:
            self._snapshot = MappingProxyType(dict(self.rows))
        return self._snapshot


class NewestBatch:
    """The rows of the newest batch: a query in complete mode writes its whole result in each.

    Attributes:
        keys: the columns that tell its rows apart; None: not known.
        forgotten: how many were left out for others: none.

    """

    def __init__(self, keys: Sequence[str] | None) -> None:
        self.keys = None if keys is None else tuple(keys)
        self.forgotten = 0
        self._attempt = (0, "")  #: the time of the batch, ms, and the run that wrote it
        self._rows: dict[str, tuple[int, Row]] = {}  #: by id, with their numbers
        self._snapshot: Mapping[str, Row] | None = None

    def __repr__(self) -> str:
        return f"{len(self)} rows of the newest batch"

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> dict[str, Row]:
        """Return the rows by an id, in the order of the query."""
        return {id: row for id, (_, row) in sorted(self._rows.items(), key=lambda item: item[1][0])}

    def add(self, rows: Iterable[tuple[tuple[int, str], int, Row]]) -> None:
        """Take up rows in the order in which they were written.

        Args:
            rows: each with the time of its batch, ms, and the run that wrote it; and with a number that grows from row
                to row within a batch.

        """
        for attempt, number, row in rows:
            if attempt != self._attempt:
                self._attempt, self._rows = attempt, {}
            id = str(len(self._rows)) if self.keys is None else key_of(row, self.keys)
            self._rows[id] = number, row
            self._snapshot = None

    def empty(self, since_ms: float) -> None:
        """Forget the rows of batches before this time, at which one began whose result has no row."""
        if self._rows and self._attempt[0] < since_ms:
            self._rows, self._snapshot = {}, None

    def snapshot(self) -> Mapping[str, Row]:
        """Return the rows now, which later ones leave as they are; the same object until there are others."""
        if self._snapshot is None:
            self._snapshot = MappingProxyType(self.rows)
        return self._snapshot


def key_of(row: Row, keys: Sequence[str]) -> str:
    """Return the values of these columns as text."""
    return json.dumps([row.get(key) for key in keys], sort_keys=True, ensure_ascii=False)
