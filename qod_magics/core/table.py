"""The tables of a snapshot: rows, or columns from which rows are made on first access. Pure.

A snapshot of 20,000 tasks has tens of thousands of rows, and code that works with all of them needs single fields.
`column` gives these, from plain rows and from tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar, overload

_Row = TypeVar("_Row")

Column = tuple[Any, ...] | Callable[[], Sequence[Any]]  #: or a function that makes it, called once, on first use


class Table(Sequence[_Row], Generic[_Row]):
    """Rows of one kind, given by their columns; equal to any sequence of equal rows."""

    __slots__ = ("_columns", "_kind", "_length", "_rows")

    def __init__(self, kind: type[_Row], *columns: Column) -> None:
        """`columns`: all fields of `kind` in their order; the first is made at once."""
        names: tuple[str, ...] = kind.__slots__  # type: ignore[attr-defined]
        self._kind = kind
        self._columns: dict[str, Column] = dict(zip(names, columns, strict=True))
        first = self.column(names[0])
        self._length = len(first)
        self._rows: tuple[_Row, ...] | None = None

    def column(self, name: str) -> tuple[Any, ...]:
        """The values of one field, row by row."""
        found = self._columns[name]
        if not isinstance(found, tuple):
            found = self._columns[name] = tuple(found())
        return found

    def but(self, name: str, values: tuple[Any, ...]) -> Table[_Row]:
        """The same rows with other values in one field."""
        return Table(self._kind, *({**self._columns, name: values}.values()))

    def rows(self) -> tuple[_Row, ...]:
        """All rows, made together and once: frozen objects are slow to make."""
        if self._rows is None:
            found = [object.__new__(self._kind) for _ in range(self._length)]
            for name in self._columns:
                put = getattr(self._kind, name).__set__
                for row, value in zip(found, self.column(name), strict=True):
                    put(row, value)
            self._rows = tuple(found)
        return self._rows

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> _Row: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[_Row, ...]: ...
    def __getitem__(self, index: int | slice) -> _Row | tuple[_Row, ...]:
        return self.rows()[index]

    def __iter__(self) -> Iterator[_Row]:
        return iter(self.rows())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Table):
            return self.rows() == other.rows()
        return self.rows() == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.rows())

    def __repr__(self) -> str:
        return repr(self.rows())


def column(rows: Sequence[Any], name: str) -> Sequence[Any]:
    """The values of one field, row by row; makes no rows of a table."""
    return rows.column(name) if isinstance(rows, Table) else list(map(attrgetter(name), rows))
