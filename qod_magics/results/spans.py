"""Which offsets and which windows count in a span, where the rows of a topic are read again. Pure.

A window of [from, to) needs all rows whose event times lie in it. When they were sent is known only roughly: late rows
come after the window's end, and a sender's clock may be ahead. So rows are read that were sent from `margin` before the
span to `margin` behind it, and of the groups that they give only whole windows within the span count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from typing import Any

from qod_magics.errors import UsageProblem
from qod_magics.results.result import Row

# --- The span ---------------------------------------------------------------------------------------------------------

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
