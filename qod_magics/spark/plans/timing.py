"""Quantiles of the times of records, observed in a query's plan beside the counts of its shedders.

Only some records are timed, chosen by their offsets: each n-th, n a prime, so that no pattern of a producer's batches
is met always at the same place. Spark has no function of the time of a row: `current_timestamp()` is that of its
batch. Where the clock is read, by reflection, which takes as long as a shedder does, fewer records are timed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


# --- Distributions of ages --------------------------------------------------------------------------------------------
# Distributions of ages: points of an age in seconds, each with the number of rows that it stands for. Pure.

#: An age, seconds, and the rows of it.
Points = Sequence[tuple[float, float]]
#: Shares at which a distribution is sampled: closer where latency targets are, and where a pause between batches makes
#: it steep.
LEVELS = (*(i / 10 for i in range(10)), 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 1.0)
PARTS = 4


def slices(quantiles: Sequence[float], rows: float) -> list[tuple[float, float]]:
    """Return slices of a distribution by its quantiles at `LEVELS`, `PARTS` between two levels, values being spread
    evenly there: middle of the value, rows.

    Raises ValueError unless there is one quantile for each level.
    """
    found = []
    for (s, t), (low, high) in zip(pairwise(LEVELS), pairwise(quantiles), strict=True):
        for part in range(PARTS):
            middle = (part + 0.5) / PARTS
            found.append((low + (high - low) * middle, (t - s) * rows / PARTS))
    return found


def quantile(points: Iterable[tuple[float, float]], share: float) -> float | None:
    """Return the least age of a point that this share of the rows does not exceed; None without rows."""
    ordered = sorted((age, rows) for age, rows in points if rows > 0)
    wanted, done = share * sum(rows for _, rows in ordered) * (1 - 1e-9), 0.0
    for age, rows in ordered:
        done += rows
        if done >= wanted:
            return age
    return ordered[-1][0] if ordered else None


def condensed(points: Iterable[tuple[float, float]], count: int) -> list[tuple[float, float]]:
    """Return at most `count` points of equal rows with the same total and the same mean."""
    ordered = sorted((age, rows) for age, rows in points if rows > 0)
    if len(ordered) <= count:
        return ordered
    each = sum(rows for _, rows in ordered) / count
    found: list[tuple[float, float]] = []
    weighted = held = 0.0
    for age, rows in ordered:
        left = rows
        while held + left >= each * (1 - 1e-9) and len(found) < count - 1:
            taken = each - held
            found.append(((weighted + age * taken) / each, each))
            weighted, held, left = 0.0, 0.0, max(left - taken, 0.0)
        weighted, held = weighted + age * left, held + left
    if held > each * 1e-9:
        found.append((weighted / held, held))
    return found


#: The column of a record's time, ms; null for records that are not timed.
TIMED = "_t"
#: Error of a quantile: 1 / this of the rows timed in a batch.
PRECISION = 1000
_LEVELS = ", ".join(f"{level}D" for level in LEVELS)


@dataclass(frozen=True, slots=True)
class Timing:
    """What is observed of the records of a topic, and of how many."""

    name: str  #: of the metric: an array of ms, at the shares `LEVELS`
    sql: str  #: ms, of a record's time
    each: int  #: 1 of this number of records is timed

    def column(self, kept: str | None = None, number: str = "offset", time: str = "timestamp") -> Column:
        """Return the column `TIMED`. `kept`: the column of the probability with which records were kept that are left,
        0 in rows that are none; about as many of these are timed as of all. `number` and `time`: see
        `sources.Identity`."""
        each = f"greatest(CAST({self.each} * {kept} AS BIGINT), 1L)" if kept else f"{self.each}"
        chosen = f"{number} % {each} = 0" + (f" AND {kept} > 0D" if kept else "")
        return F.expr(f"CASE WHEN {chosen} THEN {self.sql.format(time)} END").alias(TIMED)

    def quantiles(self, keep: str | None = None) -> Column:
        """Return an aggregate for `observe`, over the records for which `keep` holds, if given; null if none of them is
        timed.

        It is not compiled, but interpreted for each row: `keep` only where the rows dropped are older or newer.
        """
        timed = TIMED if keep is None else f"IF({TIMED} IS NULL, NULL, IF({keep}, {TIMED}, NULL))"
        return F.expr(f"percentile_approx({timed}, array({_LEVELS}), {PRECISION})").alias(self.name)


#: Where rows are written as they are read: in real-time mode, and in micro-batches without state that write to Kafka.
AGE_WHEN_READ = Timing(
    *("ages", "CAST(reflect('java.lang.System', 'currentTimeMillis') AS BIGINT) - unix_millis({})", 61)
)
#: Where results are written at the end of a batch, with which it is compared: when the record was written.
WHEN_WRITTEN = Timing("times", "unix_millis({})", 31)
