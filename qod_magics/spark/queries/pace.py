"""The delay before each micro-batch: pacing, which leaves CPU to other queries, and rests, which save it. Pure.

Back-to-back batches use all of a core at any load: the less a row costs, the more batches there are, each with its
fixed cost. A rest of a part of each batch saves that part of the CPU. Results come later by little more than that part,
since the next batch is larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from statistics import median

from qod_magics.spark.plans.dial import MOST_S
from qod_magics.spark.queries.progress import Batch

#: Latest batches whose median duration is taken.
BATCHES = 5
#: The rest after a batch, as a part of it. Longer batches are of a busy query, whose capacity a rest would reduce:
#: it becomes less for those of more than the first number of seconds, and none for those of the second.
REST, SHORT_S, LONG_S = 0.1, 1.0, 4.0
#: The part of the time that back-to-back batches take at least.
BACK_TO_BACK = 0.8


def gap_s(pace_s: float, batches: Sequence[Batch]) -> float:
    """Seconds by which to delay the next batches, so that they begin at least `pace_s` seconds apart.

    Args:
        pace_s: minimum seconds from the start of one batch to the start of the next.
        batches: of the present run, the newest last; the delay is part of their planning, or comes before their start.

    """
    took = [max(batch.end - batch.start - batch.planning_s, 0.0) for batch in islice(reversed(batches), BATCHES)]
    return min(max(pace_s - median(took), 0.0), MOST_S) if took else 0.0


def rest_s(batches: Sequence[Batch]) -> float:
    """Seconds by which to delay the next batches, where those of the present run are back to back, to save CPU.

    `batches` as in `gap_s`.
    """
    latest = list(islice(reversed(batches), BATCHES))
    if len(latest) < BATCHES:
        return 0.0
    runs_s = [batch.end - batch.start for batch in latest]
    idle_s = latest[0].end - latest[-1].start - sum(runs_s) - sum(batch.offsets_s for batch in latest[:-1])
    if idle_s > (1.0 - BACK_TO_BACK) * (latest[0].end - latest[-1].start):
        return 0.0
    took = max(median(runs_s) - median(batch.planning_s for batch in latest), 0.0)
    return REST * took * min(max((LONG_S - took) / (LONG_S - SHORT_S), 0.0), 1.0)
