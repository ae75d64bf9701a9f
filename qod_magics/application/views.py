"""Temporary views that stand for as long as a query is being built and started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock, RLock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from qod_magics.errors import ApplicationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_locks: WeakKeyDictionary[SparkSession, RLock] = WeakKeyDictionary()
_locks_lock = Lock()


@contextmanager
def temporary_views(spark: SparkSession, frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """Register the DataFrames under their names while the context is open; other threads wait for the same session.

    A session has one name space: `source` of one query must not be taken for `source` of another that starts at the
    same time. Raises ApplicationError when the session has a temporary view of such a name that is not ours (the user's
    own session, attached): it would be lost.
    """
    with _lock(spark):
        made: list[str] = []
        try:
            for name, frame in frames.items():
                if _is_taken(spark, name):
                    raise ApplicationError(
                        f"the Spark session has a temporary view {name!r} already, which would be lost: "
                        f"rename it, or spark.catalog.dropTempView({name!r})"
                    )
                frame.createOrReplaceTempView(name)
                made.append(name)
            yield
        finally:
            for name in made:
                spark.catalog.dropTempView(name)


def _is_taken(spark: SparkSession, name: str) -> bool:
    return bool(spark.catalog.tableExists(name)) and spark.catalog.getTable(name).isTemporary


def _lock(spark: SparkSession) -> RLock:
    with _locks_lock:
        return _locks.setdefault(spark, RLock())
