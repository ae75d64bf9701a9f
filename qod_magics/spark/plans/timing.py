"""Quantiles of the times of records, observed in a query's plan beside the counts of its shedders.

Only some records are timed, chosen by their offsets: each n-th, n a prime, so that no pattern of a producer's batches
is met always at the same place. Spark has no function of the time of a row: `current_timestamp()` is that of its
batch. Where the clock is read, by reflection, which takes as long as a shedder does, fewer records are timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from qod_magics.core.ages import LEVELS

if TYPE_CHECKING:
    from pyspark.sql import Column

#: The column of a record's time, ms; null for records that are not timed.
TIMED = "_t"
#: Error of a quantile: 1 / this of the rows timed in a batch.
PRECISION = 1000
_LEVELS = ", ".join(f"{level}D" for level in LEVELS)


@dataclass(frozen=True, slots=True)
class Timing:
    """What is observed of the records of a topic, and of how many."""

    name: str  #: of the metric: an array of ms, at the shares `LEVELS`
    sql: str  #: ms
    each: int  #: 1 of this number of records is timed

    def column(self, kept: str | None = None) -> Column:
        """The column `TIMED`. `kept`: the column of the probability with which records were kept that are left, 0 in
        rows that are none; about as many of these are timed as of all."""
        each = f"greatest(CAST({self.each} * {kept} AS BIGINT), 1L)" if kept else f"{self.each}"
        chosen = f"offset % {each} = 0" + (f" AND {kept} > 0D" if kept else "")
        return F.expr(f"CASE WHEN {chosen} THEN {self.sql} END").alias(TIMED)

    def quantiles(self, keep: str | None = None) -> Column:
        """An aggregate for `observe`, over the records for which `keep` holds, if given; null if none of them is timed.

        It is not compiled, but interpreted for each row: `keep` only where the rows dropped are older or newer.
        """
        timed = TIMED if keep is None else f"IF({TIMED} IS NULL, NULL, IF({keep}, {TIMED}, NULL))"
        return F.expr(f"percentile_approx({timed}, array({_LEVELS}), {PRECISION})").alias(self.name)


#: Where rows are written as they are read: in real-time mode, and in micro-batches without state that write to Kafka.
AGE_WHEN_READ = Timing(
    *("ages", "CAST(reflect('java.lang.System', 'currentTimeMillis') AS BIGINT) - unix_millis(timestamp)", 61)
)
#: Where results are written at the end of a batch, with which it is compared: when the record was written.
WHEN_WRITTEN = Timing("times", "unix_millis(timestamp)", 31)
