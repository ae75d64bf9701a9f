"""Shedding for recipes that read a source of their own: `spark.readStream.format(...).load()` and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qod_magics.spark.plans import shedder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READS = frozenset({"load", "table", "json", "csv", "text", "parquet", "orc", "xml"})


class SheddingSession:
    """A session that adds counts and a shedder to each streaming read, and delegates all else."""

    def __init__(self, spark: SparkSession, keep_sql: str) -> None:
        self._spark = spark
        self._keep_sql = keep_sql
        self._reads = 0

    @property
    def readStream(self) -> Any:
        """The session's stream reader, with the shedder after each read."""
        return _SheddingReader(self._spark.readStream, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def shed(self, rows: DataFrame) -> DataFrame:
        """Count and shed."""
        position, self._reads = self._reads, self._reads + 1
        replayable = {"topic", "partition", "offset"} <= set(rows.columns)
        return shedder.shed_source(rows, self._keep_sql, f"shed.{position}", replayable)


class _SheddingReader:
    def __init__(self, reader: Any, session: SheddingSession) -> None:
        self._reader = reader
        self._session = session

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._reader, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            if name in _READS:
                return self._session.shed(result)
            return _SheddingReader(result, self._session)

        return call
