"""Exact figures of windows beside the estimates of a query that shed, and which intervals held. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from qod_magics.errors import UsageProblem, counted
from qod_magics.results.result import Column, Interval, Kind, Row, cell, measured, table

if TYPE_CHECKING:
    import pandas as pd


# --- The span ---------------------------------------------------------------------------------------------------------
# Which offsets and which windows count in a span, where the rows of a topic are read again.
#
# A window of [from, to) needs all rows whose event times lie in it. When they were sent is known only roughly: late
# rows come after the window's end, and a sender's clock may be ahead. So rows are read that were sent from `margin`
# before the span to `margin` behind it, and of the groups that they give only whole windows within the span count.

#: How much earlier and later than the span rows may have been sent, seconds; more if the watermark waits longer.
MARGIN_S = 60.0
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
_AGO = re.compile(r"-(\d+(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
FORMS = "10:00, 2026-01-31T10:00 or -15m"


@dataclass(frozen=True, slots=True)
class Span:
    """From a time on, up to before another one; both know their zone."""

    start: datetime
    end: datetime

    def __str__(self) -> str:
        end = f"{self.end:%H:%M:%S}" if self.start.date() == self.end.date() else f"{self.end:%Y-%m-%d %H:%M:%S}"
        return f"{self.start:%Y-%m-%d %H:%M:%S} to {end} UTC"


def span_of(start: str | datetime, end: str | datetime, now: datetime) -> Span:
    """Return the span between two times. A time of day is the last one before `now`; what has no zone is in UTC, as
    results show it. Raises UsageProblem: one can't be read, they are not in this order, or one is still to come."""
    found = Span(_moment("--from", start, now), _moment("--to", end, now))
    if not found.start < found.end <= now:
        raise UsageProblem(
            f"--from must be before --to, and --to must not be after now, got {found}; give times of the past (UTC)",
            option="--from" if found.start >= found.end else "--to",
            rule="past",
        )
    return found


def _moment(option: str, given: str | datetime, now: datetime) -> datetime:
    try:
        if isinstance(given, str) and (ago := _AGO.fullmatch(given)):
            return now - timedelta(seconds=float(ago[1]) * _SECONDS[ago[2]])
        if isinstance(given, str) and _TIME_OF_DAY.fullmatch(given):
            of_day = time.fromisoformat(given.rjust(len("00:00") if given.count(":") == 1 else len("00:00:00"), "0"))
            today = datetime.combine(now.astimezone(UTC), of_day, UTC)
            return today if today <= now else today - timedelta(days=1)
        at = datetime.fromisoformat(given) if isinstance(given, str) else given
        return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    except (AttributeError, OverflowError, TypeError, ValueError):
        raise UsageProblem(
            f"{option} must be a time such as {FORMS}, got {given!r}", option=option, value=given, rule="time"
        ) from None


# --- The offsets ------------------------------------------------------------------------------------------------------

#: By partition.
Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The offsets of a topic that are read."""

    start: Offsets
    end: Offsets  #: of the first that is not read
    cut: frozenset[int] = frozenset()  #: partitions of which retention may have deleted rows of the span

    @property
    def offsets(self) -> int:
        """Return how many there are."""
        return sum(end - self.start[partition] for partition, end in self.end.items())


def stretch(since: Offsets, until: Offsets, oldest: Offsets, begun: Offsets) -> Stretch:
    """Return the offsets to read.

    Args:
        since: the first that was sent at the begin of the span and its margin, or later.
        until: the first that was sent at the end of both, or later.
        oldest: the first that the topic still has.
        begun: the first that the query has read; rows before it are in no result of it.

    """
    start = {p: max(at, begun.get(p, 0)) for p, at in since.items()}
    cut = frozenset(p for p, at in since.items() if at == oldest.get(p) and at > max(begun.get(p, 0), 0))
    return Stretch(start, {p: max(until.get(p, at), at) for p, at in start.items()}, cut)


def whole_from(first: datetime, is_empty: bool, last_read: datetime | None) -> datetime:
    """Return since when a partition has all rows, where the rows before were deleted: by age, by size or by hand.
    Nothing that is left tells which.

    Args:
        first: when the oldest row of the span was sent; now, without one.
        is_empty: whether the partition has no row at all.
        last_read: when its last row had been read; None: not known.

    """
    return min(first, last_read) if is_empty and last_read is not None else first


# --- The windows ------------------------------------------------------------------------------------------------------


def instant(value: Any) -> datetime | None:
    """Return a time as Spark's JSON has it; one without a zone is in UTC."""
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def window_of(value: Any) -> tuple[datetime, datetime | None] | None:
    """Return begin and end of a window, or a time alone."""
    if isinstance(value, Mapping):
        start, end = instant(value.get("start")), instant(value.get("end"))
        return None if start is None or end is None else (start, end)
    start = instant(value)
    return None if start is None else (start, None)


def identity(row: Row, keys: Sequence[str]) -> str:
    """Return the values of these columns as text, times as instants, however their zone was written."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: plain(each) for name, each in value.items()}
        at = instant(value) if isinstance(value, str) else None
        return value if at is None else at.astimezone(UTC).isoformat()

    return json.dumps([plain(row.get(key)) for key in keys], sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The groups whose windows count."""

    rows: tuple[Row, ...]
    cut: int = 0  #: groups that were left out, as retention has deleted rows of their windows
    partial: int = 0  #: groups that were left out, as the query began within their windows


def chosen(
    rows: Iterable[Row], by: str, span: Span, whole_since: datetime | None = None, began: datetime | None = None
) -> Chosen:
    """Return the groups of whole windows within the span.

    Args:
        rows: groups.
        by: their column of windows or, where a recipe keeps only one end of these, of times. Such a time counts as the
            begin of a window that ends with the next one.
        span: the span.
        whole_since: the first time of which the topic still has all rows; None: of all.
        began: when the query, or its state, began in the middle of its input; None: with it.

    """
    found, cut, partial = [], 0, 0
    placed = [(window, row) for row in rows if (window := window_of(row.get(by))) is not None]
    length = _length({start for (start, end), _ in placed if end is None})
    for (start, end), row in placed:
        last = end if end is not None else start + length
        if not (span.start <= start and last <= span.end):
            continue
        if whole_since is not None and start < whole_since:
            cut += 1
        elif began is not None and start < began:
            partial += 1
        else:
            found.append(row)
    return Chosen(tuple(found), cut, partial)


def _length(starts: Collection[datetime]) -> timedelta:
    """Return the least distance of two times: that of windows of which at least one pair follows one another."""
    return min((after - before for before, after in pairwise(sorted(starts))), default=timedelta(0))


# --- The figures ------------------------------------------------------------------------------------------------------

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
