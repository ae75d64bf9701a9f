"""Reports of values that could not be parsed: an event when they begin, then at most one a minute by feed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qod_magics.application.streams.stream import Malformed

#: Seconds between two events of one feed.
EVERY_S = 60.0
#: What became of such values, as the end of a sentence.
OUTCOME: Mapping[Malformed, str] = {
    "drop": "dropped",
    "keep": "kept as rows of nulls",
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


def malformed_event(topic: str, task: str, rows: int, sample: str | None, malformed: Malformed) -> dict[str, Any]:
    """The detail of an event "malformed-input"."""
    return {"topic": topic, "task": task, "rows": rows, "why": malformed_text(rows, sample, malformed)}


def malformed_text(rows: int, sample: str | None, malformed: Malformed) -> str:
    """Such as: 3 values are not JSON of its schema and were dropped, such as 'not json'."""
    values, were = ("1 value is", "was") if rows == 1 else (f"{rows:,} values are", "were")
    example = f", such as {' '.join(sample.split())!r}" if sample else ""
    return f"{values} not JSON of its schema and {were} {OUTCOME[malformed]}{example}"
