"""Pacing of micro-batches, which leaves CPU to other queries: the delay before each batch. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from statistics import median

from qod_magics.spark.progress import Batch

#: The longest delay, seconds.
MOST_S = 10.0
#: Latest batches whose median duration is taken.
BATCHES = 5


def gap_s(pace_s: float, batches: Sequence[Batch]) -> float:
    """Seconds by which to delay the next batches, so that they begin at least `pace_s` seconds apart.

    Args:
        pace_s: minimum seconds from the start of one batch to the start of the next.
        batches: of the present run, the newest last; the delay is part of their planning.

    """
    took = [max(batch.end - batch.start - batch.planning_s, 0.0) for batch in islice(reversed(batches), BATCHES)]
    return min(max(pace_s - median(took), 0.0), MOST_S) if took else 0.0
