"""Spark's `rate` source: so many rows a second, with the columns `timestamp` and `value`, for trying things.

It numbers its rows from 0 in each new checkpoint, since that began. Here all rows are numbered by the clock: the second
since 1970 in which a row was made, times the rows of a second. So the end of each such source is known without asking.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from qod_magics.errors import ApplicationError
from qod_magics.sources.source import Context, GoOn, Identity, Part, Payload, Position, Span, read_on

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class Rate:
    """Rows that Spark makes."""

    payload: ClassVar[Payload] = "columns"
    identity: ClassVar[Identity] = Identity("value", "value", "timestamp")
    options: ClassVar[frozenset[str]] = frozenset({"shed_by"})
    realtime: ClassVar[str] = "real-time mode does not read the rate source"
    every_s: ClassVar[float] = 0.0
    sheds_on_read: ClassVar[bool] = False
    has_gaps: ClassVar[bool] = False
    unit: ClassVar[str] = "rate source"
    splits_unit: ClassVar[str] = "sequence of rows"

    def __init__(self, context: Context) -> None:
        pass

    def __repr__(self) -> str:
        return "Spark's rate source"

    @staticmethod
    def checked(place: str) -> str:
        """Return the rows per second, by default 1."""
        if not (place or "1").isdigit() or int(place or 1) < 1:
            raise ApplicationError(f"rate must have a whole number of rows/s, from 1, got {place!r}; such as rate:1000")
        return str(int(place or 1))

    @staticmethod
    def span(place: str, noted: Mapping[str, Any]) -> Span | None:
        """Return the rows of a batch by the clock; the first batch of a checkpoint has the row 0."""
        if noted.get("first") is None or noted.get("began_ms") is None:
            return None
        began = round(int(noted["began_ms"]) * int(place) / 1000)
        first, end = int(noted["first"]), int(noted["last"]) + 1
        return Span({0: began + first}, {0: began + end}, restarted=first == 0)

    def noted(self, place: str) -> list[Column]:
        """Return the first and the last number of a batch, and when the row 0 was made: a batch has whole seconds."""
        from pyspark.sql import functions as F

        began = f"unix_millis(timestamp) - value DIV {place} * 1000"
        return [
            F.min("value").alias("first"),
            F.max("value").alias("last"),
            F.min(F.expr(f"CASE WHEN value % {place} = 0 THEN {began} END")).alias("began_ms"),
        ]

    def splits(self, place: str) -> int:
        """Return 1."""
        return 1

    def begin(self, place: str, starting: str) -> Position:
        """Return the number of the row that is made now."""
        return {0: int(time.time()) * int(place)}

    def ends(self, places: Collection[str]) -> tuple[Mapping[str, Position], Mapping[str, str]]:
        """Return the numbers of the rows that are made now."""
        return {place: self.begin(place, "latest") for place in places}, {}

    def read(self, spark: SparkSession, place: str, part: Part) -> DataFrame:
        """Return the rows from now on, or from where the checkpoint is."""
        return spark.readStream.format("rate").option("rowsPerSecond", place).option("numPartitions", 1).load()

    def tend(self, parts: Iterable[Part], go_on: GoOn = read_on) -> None:
        """Do nothing."""
