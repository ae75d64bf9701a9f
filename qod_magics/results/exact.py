"""Exact figures of windows beside the estimates of a query that shed, and which intervals held. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from qod_magics.errors import counted
from qod_magics.results.result import Column, Interval, Kind, Row, cell, measured, table
from qod_magics.results.spans import Span, identity, window_of

if TYPE_CHECKING:
    import pandas as pd

#: Share of a core that reading rows again takes, if none is given.
CPU = 0.25
#: Relative error that sums of doubles in another order may have.
_ROUNDING = 1e-9
#: Rows of a table.
SHOWN = 20


def covers(estimate: Interval, exact: float) -> bool | None:
    """Return whether an interval holds a figure; None: there is none. An end that is not known bounds nothing."""
    if estimate.low is None and estimate.high is None:
        return None
    slack = _ROUNDING * abs(exact)
    above = estimate.low is None or estimate.low <= exact + slack
    return above and (estimate.high is None or exact - slack <= estimate.high)


@dataclass(frozen=True, slots=True)
class Compared:
    """A group: its exact figures, and what the query wrote."""

    exact: Row
    written: Row | None  #: None: the query has no row of it
    held: Mapping[str, bool]  #: by column with an interval


@dataclass(frozen=True, slots=True)
class Exact:
    """Exact figures of a query's windows beside what it wrote, to print or, in a notebook, to display.

    Attributes:
        query: its name.
        span: of the windows.
        columns: of its rows.
        keys: the columns that tell its groups apart.
        groups: the groups, each with its exact figures and what the query wrote.
        notes: what was read, what is missing, and why, a sentence each.
        rows_read: rows of the topics that were read.
        seconds: that this took.
        cpu_s: CPU time of its tasks, seconds; None: not known.
        merged: groups that were written to the sink.
        beside: whether what the query wrote could be read.

    """

    query: str
    span: Span
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    groups: tuple[Compared, ...]
    notes: tuple[str, ...] = ()
    rows_read: int = 0
    seconds: float = 0.0
    cpu_s: float | None = None
    merged: int = 0
    beside: bool = True
    texts: tuple[str, ...] = field(default=(), repr=False)  #: the exact groups as a sink has them, JSON

    @property
    def measures(self) -> tuple[Column, ...]:
        """Return the columns of figures."""
        return tuple(column for column in self.columns if column.is_measure and column.name not in self.keys)

    @property
    def intervals(self) -> int:
        """Return how many intervals there are."""
        return sum(len(group.held) for group in self.groups)

    @property
    def held(self) -> int:
        """Return how many of the intervals hold the exact figure."""
        return sum(sum(group.held.values()) for group in self.groups)

    @property
    def share(self) -> float | None:
        """Return the share of the intervals that hold the exact figure, a fraction of 1; None without intervals."""
        return self.held / self.intervals if self.intervals else None

    @property
    def missing(self) -> int:
        """Return how many groups the query has no row of: all their rows were dropped, or they are not written yet."""
        return sum(group.written is None for group in self.groups)

    @property
    def frame(self) -> pd.DataFrame:
        """Return a row for each group: its keys and, of each figure `x`, the exact one as `x`, what the query wrote as
        `x_estimate`, and of an estimate `x_low`, `x_high` and `x_held`. Windows are their begin and `x_end`; times are
        in UTC."""
        import pandas as pd

        return pd.DataFrame([self._line(group) for group in self.groups], columns=self._names())

    @property
    def words(self) -> str:
        """Return the summary: one line for the groups, the intervals that held, and each note."""
        lines = [f"{self.query}, windows from {self.span}: {counted(len(self.groups), 'group')}"]
        if self.share is not None:
            each = ", ".join(f"{name} {held} of {of}" for name, (held, of) in self._by_column().items())
            lines.append(f"{self.share:.1%} of the intervals held the exact figure ({each})")
        if self.missing and self.beside:
            lines.append(f"{counted(self.missing, 'group')} of these {_is(self.missing)} not in the query's result")
        cpu = "" if self.cpu_s is None else f" and {self.cpu_s:.1f} s of CPU"
        lines.append(f"{self.rows_read:,} rows read in {self.seconds:.1f} s{cpu}")
        if self.merged:
            lines.append(f"{counted(self.merged, 'group')} merged into its sink")
        return "\n".join([*lines, *self.notes])

    def __str__(self) -> str:
        more = len(self.groups) - SHOWN
        rest = f"\n... {counted(more, 'group')} more in .frame" if more > 0 else ""
        shown = self._shown()
        return f"{self.words}\n{table(*shown)}{rest}" if self.groups else self.words

    __repr__ = __str__

    def _repr_html_(self) -> str:
        columns, rows = self._shown()
        head = "".join(f"<th>{escape(column.name)}</th>" for column in columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell(row.get(c.name), c.kind))}</td>' for c in columns)}</tr>" for row in rows
        )
        words = "<br>".join(map(escape, self.words.splitlines()))
        return f"<div>{words}</div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _by_column(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for group in self.groups:
            for name, is_held in group.held.items():
                held, of = found.get(name, (0, 0))
                found[name] = held + is_held, of + 1
        return found

    def _shown(self) -> tuple[list[Column], list[Row]]:
        """Return the first groups as rows of a table: keys, then the exact figure and what was written, beside each
        other."""
        keys = [column for column in self.columns if column.name in self.keys]
        columns = list(keys)
        for measure in self.measures:
            columns += [Column(f"{measure.name} exact", Kind.NUMBER), Column(f"{measure.name} written", measure.kind)]
            columns += [Column(f"{measure.name} held", Kind.TEXT)] if measure.kind is Kind.ESTIMATE else []
        rows: list[Row] = []
        for group in self.groups[:SHOWN]:
            row: dict[str, Any] = {column.name: group.exact.get(column.name) for column in keys}
            for measure in self.measures:
                name = measure.name
                row[f"{name} exact"] = measured(group.exact.get(name)).value
                row[f"{name} written"] = None if group.written is None else group.written.get(name)
                row[f"{name} held"] = {True: "yes", False: "no"}.get(group.held.get(name))  # type: ignore[arg-type]
            rows.append(row)
        return columns, rows

    def _names(self) -> list[str]:
        names = []
        for column in self.columns:
            if column.name in self.keys:
                names += [column.name, *([f"{column.name}_end"] if column.kind is Kind.WINDOW else [])]
        for measure in self.measures:
            parts = ("", "_estimate", *(("_low", "_high", "_held") if measure.kind is Kind.ESTIMATE else ()))
            names += [f"{measure.name}{part}" for part in parts]
        return names

    def _line(self, group: Compared) -> dict[str, Any]:
        line: dict[str, Any] = {}
        for column in self.columns:
            name, value = column.name, group.exact.get(column.name)
            if name not in self.keys:
                continue
            window = window_of(value) if column.is_time else None
            line[name] = value if window is None else window[0]
            if column.kind is Kind.WINDOW:
                line[f"{name}_end"] = None if window is None else window[1]
        for measure in self.measures:
            name, written = measure.name, measured((group.written or {}).get(measure.name))
            line[name] = measured(group.exact.get(name)).value
            line[f"{name}_estimate"] = written.value
            if measure.kind is Kind.ESTIMATE:
                line |= {f"{name}_low": written.low, f"{name}_high": written.high}
                line[f"{name}_held"] = group.held.get(name)
        return line


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def compared(
    exact: Iterable[Row], written: Iterable[Row], columns: Sequence[Column], keys: Sequence[str]
) -> tuple[Compared, ...]:
    """Return each exact group with what the query wrote of it last, and whether its intervals held; in the order of the
    keys."""
    last = {identity(row, keys): row for row in written}
    estimates = [column.name for column in columns if column.kind is Kind.ESTIMATE and column.name not in keys]
    found = []
    for row in sorted(exact, key=lambda row: _order(row, keys)):
        beside = last.get(identity(row, keys))
        holds = {}
        for name in estimates:
            value = measured(row.get(name)).value
            is_held = None if value is None or beside is None else covers(measured(beside.get(name)), value)
            if is_held is not None:
                holds[name] = is_held
        found.append(Compared(row, beside, holds))
    return tuple(found)


def unknown(written: Iterable[Row], exact: Iterable[Row], keys: Sequence[str]) -> int:
    """Return how many groups the query wrote of which no row was read."""
    return len({identity(row, keys) for row in written} - {identity(row, keys) for row in exact})


def _order(row: Row, keys: Sequence[str]) -> list[tuple[bool, float, str]]:
    """Return what rows are sorted by: numbers by size, all else by its text."""
    values = [(key, row.get(key)) for key in keys]
    numbers = [measured(value).value if not isinstance(value, Mapping) else None for _, value in values]
    return [
        (value is None, 0.0 if number is None else number, identity(row, (key,)) if number is None else "")
        for (key, value), number in zip(values, numbers, strict=True)
    ]
