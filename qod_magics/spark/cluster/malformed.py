"""Reports of rows that were read but are no rows of the schema. Pure.

There is an event when they begin, then at most one a minute by feed and kind; a status has all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from qod_magics.spark.plans.parsing import SAMPLE, SHOWN

if TYPE_CHECKING:
    from qod_magics.application.streams.stream import Malformed
    from qod_magics.spark.cluster.books import Account

#: Seconds between two events of one feed.
EVERY_S = 60.0
#: Seconds of a year, and within how many years after 1970 a number of milliseconds is likely meant.
YEAR_S, LIKELY_YEARS = 365.2425 * 86_400, 200
#: What became of such values, as the end of a sentence.
OUTCOME: Mapping[Malformed, str] = {
    "drop": "dropped",
    "keep": "kept, with null where a value does not fit",
    "fail": "the reason why the query failed",
}


@dataclass(slots=True)
class _Feed:
    untold: int = 0  #: rows since the last event
    told_at: float | None = None  #: seconds of the clock given; None: never


@dataclass(slots=True)
class MalformedReports:
    """Decides when an event is due."""

    feeds: dict[str, _Feed] = field(default_factory=dict)

    def add(self, feed: str, rows: int, now: float) -> int:
        """Add rows that a batch of this feed could not parse, at `now` (seconds of any one clock). Returns how many an
        event is due for, 0: none."""
        known = self.feeds.setdefault(feed, _Feed())
        known.untold += rows
        if not known.untold or (known.told_at is not None and now - known.told_at < EVERY_S):
            return 0
        due, known.untold, known.told_at = known.untold, 0, now
        return due


def malformed_event(topic: str, task: str, rows: int, why: str) -> dict[str, Any]:
    """The detail of an event about values of a topic."""
    return {"topic": topic, "task": task, "rows": rows, "why": why}


def malformed_text(rows: int, sample: str | None, malformed: Malformed, misfit: str | None = None) -> str:
    """Such as: 3 values are not JSON of its schema and were dropped, such as 'not json'.

    Args:
        rows: how many.
        sample: the beginning of one.
        malformed: what becomes of them.
        misfit: what does not fit in the sample, as a clause; None: unknown.

    """
    values, were = ("1 value is", "was") if rows == 1 else (f"{rows:,} values are", "were")
    text = " ".join((sample or "").split())
    example = f", such as {text if len(text) <= SHOWN else f'{text[: SHOWN - 1]}…'!r}" if text else ""
    because = f": {misfit}" if misfit and text else ""
    return f"{values} not JSON of its schema and {were} {OUTCOME[malformed]}{example}{because}"


def tombstones_text(rows: int, malformed: Malformed) -> str:
    """Such as: 3 records have no value (tombstones) and make no row."""
    records, have = ("1 record has", "makes") if rows == 1 else (f"{rows:,} records have", "make")
    outcome = f"{have} a row of nulls" if malformed == "keep" else f"{have} no row"
    return f"{records} no value (tombstones) and {outcome}"


def implausible_text(rows: int, late_time: str | None, malformed: Malformed) -> str:
    """Such as: 2 rows have a time outside of the years 1 to 9999 and were dropped, such as at = 1764201600000 ..."""
    values, were = ("1 row has", "was") if rows == 1 else (f"{rows:,} rows have", "were")
    return f"{values} a time outside of the years 1 to 9999 and {were} {OUTCOME[malformed]}{_example(late_time)}"


def _example(late_time: str | None) -> str:
    if late_time is None:
        return ""
    column, _, micros = late_time.rpartition("=")
    seconds = int(micros) // 1_000_000
    year = 1970 + int(seconds / YEAR_S)
    told = f", such as {column} = {seconds} in the year {year}: numbers are seconds since 1970"
    if 0 < seconds / 1e3 / YEAR_S < LIKELY_YEARS:
        meant = datetime.fromtimestamp(seconds / 1e3, UTC)
        return f"{told}, --time-unit ms reads it as {meant:%Y-%m-%d %H:%M:%S}"
    return f"{told}, --time-unit ms, us or ns reads others"


def columnless_text(rows: int, columns: Sequence[str], found: Sequence[str]) -> str:
    """Such as: no record of 5 has a column of the schema that is read (zone, fare); found: Zone, Fare."""
    records = "its only record has no column" if rows == 1 else f"no record of {rows:,} has a column"
    of = f"the schema that is read ({', '.join(columns)})" if columns else "the schema"
    there = f"; found: {', '.join(found)}" if found else ""
    cases = {name.lower() for name in columns} & {name.lower() for name in found}
    case = " (upper and lower case matter)" if cases else ""
    return f"{records} of {of}{there}{case}"


def misfits(account: Account, malformed: Malformed) -> list[str]:
    """A sentence for each kind of rows of a topic that are no rows of its schema."""
    told = []
    if account.malformed:
        told.append(malformed_text(account.malformed, account.sample, malformed, account.misfit))
    if account.tombstones:
        told.append(tombstones_text(account.tombstones, malformed))
    if account.implausible:
        told.append(implausible_text(account.implausible, account.late_time, malformed))
    if account.is_columnless and account.columns and account.found is not None:
        told.append(columnless_text(account.columnless, account.columns, account.found))
    return told


def is_cut(sample: str) -> bool:
    """Whether a sample may be only the beginning of a value."""
    return len(sample) >= SAMPLE
