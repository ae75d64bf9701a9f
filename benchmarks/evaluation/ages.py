"""Ages of rows when their processing ends, from sampled end offsets of topics and from batches. Pure.

Instants are seconds since 1970.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from qod_magics.spark.queries.progress import Batch

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)  #: positions in a batch whose rows' ages represent it


@dataclass(slots=True)
class Ends:
    """End offsets of a topic with one partition, sampled in order of time."""

    at: list[float] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def add(self, at: float, offset: int) -> None:
        """One sample."""
        self.at.append(at)
        self.offsets.append(offset)

    def arrival(self, offset: float) -> float:
        """When the row of this offset arrived, interpolated between samples."""
        return _between(self.offsets, self.at, offset)

    def offset(self, at: float) -> float:
        """The end offset at this instant, interpolated."""
        return _between(self.at, self.offsets, at)


def _between(known: Sequence[float], wanted: Sequence[float], value: float) -> float:
    """Interpolates; outside the samples, the nearest one. Raises ValueError without samples."""
    if not known:
        raise ValueError("the topic's end was never sampled")
    place = bisect_left(known, value)
    if place == 0:
        return wanted[0]
    if place == len(known):
        return wanted[-1]
    low, high = known[place - 1], known[place]
    return wanted[place - 1] + (wanted[place] - wanted[place - 1]) * (value - low) / (high - low)


def ages(batches: Iterable[Batch], ends: Mapping[str, Ends], begin: float, end: float) -> list[tuple[float, float]]:
    """(age in seconds, rows) for the batches that ended in this interval: from a row's arrival to its batch's end."""
    found = []
    for batch in batches:
        if not begin <= batch.end <= end:
            continue
        for feed in batch.feeds:
            if feed.start is None:
                continue
            first, last = sum(feed.start.values()), sum(feed.end.values())
            rows = last - first
            if rows > 0:
                sent = ends[feed.topic]
                found += [(batch.end - sent.arrival(first + share * rows), rows / len(SHARES)) for share in SHARES]
    return found


def median_age(ages: Iterable[tuple[float, float]]) -> float | None:
    """The median over rows; None without rows."""
    ordered = sorted(ages)
    half, so_far = sum(rows for _, rows in ordered) / 2, 0.0
    for age, rows in ordered:
        so_far += rows
        if so_far >= half:
            return age
    return None


def counts(batches: Iterable[Batch], begin: float, end: float) -> tuple[float, float]:
    """Rows read and rows kept in this interval; a batch's rows are spread evenly over its duration."""
    read = kept = 0.0
    for batch in batches:
        length = max(batch.end - batch.start, 1e-3)
        share = max(min(batch.end, end) - max(batch.start, begin), 0.0) / length
        read += share * sum(feed.read or 0 for feed in batch.feeds)
        kept += share * batch.rows
    return read, kept


def reached(batches: Iterable[Batch], topic: str, at: float, begun: int) -> int:
    """The next offset to read after the batches that ended by `at`; `begun` before the first."""
    read = [sum(f.end.values()) for b in batches if b.end <= at for f in b.feeds if f.topic == topic]
    return max([begun, *read])
