"""Batches made up for tests."""

from __future__ import annotations

from collections.abc import Mapping

from qod_magics.spark.queries.progress import Batch, FeedCount


def batch(
    number: int,
    start: float,
    end: float,
    *,
    read: int = 0,
    kept: int | None = None,
    run: str = "run",
    out: int = 0,
    sent: Mapping[str, int] | None = None,
    feeds: tuple[FeedCount, ...] | None = None,
    planning_s: float = 0.0,
    eviction_s: float = 0.0,
) -> Batch:
    if feeds is None:
        feeds = (FeedCount("t", {0: 0}, {0: read}, read, read if kept is None else kept),)
    return Batch(run, number, start, end, planning_s, feeds, out, dict(sent or {}), eviction_s)
