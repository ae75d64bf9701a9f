"""The newest rows of a result: a query in update mode writes a group anew each time that it has changed. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from qod_magics.results.columns import Row

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
        """The rows now, which later ones leave as they are; the same object until there are others."""
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
        self._attempt = ""
        self._rows: dict[str, tuple[int, Row]] = {}  #: by id, with their numbers
        self._snapshot: Mapping[str, Row] | None = None

    def __repr__(self) -> str:
        return f"{len(self._rows)} rows of the newest batch"

    @property
    def rows(self) -> dict[str, Row]:
        """The rows by an id, in the order of the query."""
        return {id: row for id, (_, row) in sorted(self._rows.items(), key=lambda item: item[1][0])}

    def add(self, rows: Iterable[tuple[str, int, Row]]) -> None:
        """Take up rows in the order in which they were written.

        Args:
            rows: each with what tells its batch, and of which run, from all others, and with a number that grows from
                row to row within a batch.

        """
        for attempt, number, row in rows:
            if attempt != self._attempt:
                self._attempt, self._rows = attempt, {}
            id = str(len(self._rows)) if self.keys is None else key_of(row, self.keys)
            self._rows[id] = number, row
            self._snapshot = None

    def snapshot(self) -> Mapping[str, Row]:
        """The rows now, which later ones leave as they are; the same object until there are others."""
        if self._snapshot is None:
            self._snapshot = MappingProxyType(self.rows)
        return self._snapshot


def key_of(row: Row, keys: Sequence[str]) -> str:
    """The values of these columns as text."""
    return json.dumps([row.get(key) for key in keys], sort_keys=True, ensure_ascii=False)
