"""Micro-batches that leave CPU to others: how long each of a query's batches waits for its turn. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from statistics import median

from qod_magics.spark.progress import Batch

#: The longest wait, seconds.
MOST_S = 10.0
#: Batches of which the median is taken.
BATCHES = 5


def gap_s(pace_s: float, batches: Sequence[Batch]) -> float:
    """Seconds for which the next batches wait, so that those of a run begin at least `pace_s` seconds apart.

    Args:
        pace_s: seconds from one batch's beginning to the next one's, at least.
        batches: of the present run, the newest last; the wait is part of their planning.

    """
    took = [max(batch.end - batch.start - batch.planning_s, 0.0) for batch in islice(reversed(batches), BATCHES)]
    return min(max(pace_s - median(took), 0.0), MOST_S) if took else 0.0
