"""A query's result at one instant, with what is known of how right it is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from qod_magics.results.columns import Column, Kind, Row


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
    missing: str | None = None  #: what becomes of whole rows under shedding
    unread: int = 0  #: rows of the topic that were not read, or forgotten for others
    whole: bool = False  #: whether the rows are all of the newest batch, in the order of the query
    state: str = ""  #: why no rows are written for the moment, in words; not saved

    def told(self, columns: Sequence[str]) -> str | None:
        """What shedding does to these columns, and to whole rows, in words; None: not known."""
        by_words: dict[str, list[str]] = {}
        for column in columns:
            if column in self.labels:
                by_words.setdefault(self.labels[column], []).append(column)
        parts = [f"{', '.join(names)} {words}" for words, names in by_words.items()]
        return "; ".join([*parts, *([self.missing] if self.missing else [])]) if parts else None


def to_json(result: Result, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """JSON objects of a result with only these rows: first what is known of it, then each row."""
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
    }
    return [head, *map(dict, rows)]


def from_json(lines: Sequence[Mapping[str, Any]]) -> Result:
    """What `to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
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
    )
