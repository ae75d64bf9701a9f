"""Copies of slices on one task manager: cached views in a session of ours."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from qod_magics.results.slices import VIEW, Slice
from qod_magics.spark.servers.connection import call_within
from qod_magics.spark.servers.cpu import adopt
from qod_magics.spark.servers.joining import release
from qod_magics.spark.servers.task_manager import INQUIRY_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from qod_magics.spark.servers.task_manager import TaskManager

#: Of our sessions: files are listed without a job.
_CONF = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000"}
#: What Hadoop takes for a pattern in a path.
AS_WRITTEN = str.maketrans({each: f"\\{each}" for each in "{}[]*?\\"})


class Holder:
    """The slices that a task manager keeps, as cached views of a session of ours. Thread-safe."""

    def __init__(self, manager: TaskManager) -> None:
        self.manager = manager
        self.spark: SparkSession = call_within(manager.for_batch, INQUIRY_S, f"{manager.id}: a session for slices")
        adopt(self.spark, _CONF)
        self.copies: set[str] = set()  #: ids of cached slices
        self.bytes: dict[str, int] = {}  #: in memory, as Spark told last
        self._views: set[str] = set()  #: ids of slices that have one
        self._settings: Mapping[str, str] = {}
        self._claims: Counter[str] = Counter()  #: queries that read a view, by id of its slice
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{self.manager.id}: {copies_told(len(self.copies))}"

    @contextmanager
    def views(self, slices: Sequence[Slice], schema: StructType, keep: bool) -> Iterator[str]:
        """SQL that reads slices, whose views are there meanwhile. `keep`: whether closed ones stay in memory from their
        first reading on."""
        with self._lock:
            self._claims.update(each.id for each in slices)
        try:
            with self._lock:
                for each in slices:
                    if each.id not in self.copies and each.id not in self._views:
                        self._view(each, schema)
                    if keep and each.closed and each.id not in self.copies:
                        self.spark.catalog.cacheTable(each.view)
                        self.copies.add(each.id)
            yield union([f"SELECT * FROM {each.view}" for each in slices])
        finally:
            with self._lock:
                for each in slices:
                    self._claims[each.id] -= 1
                    if not self._claims[each.id] and each.id not in self.copies:
                        self._views.discard(each.id)
                        with suppress(Exception):
                            self.spark.catalog.dropTempView(each.view)

    def _view(self, each: Slice, schema: StructType) -> None:
        paths = [file.path.translate(AS_WRITTEN) for file in each.files]
        self.spark.read.schema(schema).parquet(*paths).coalesce(1).createOrReplaceTempView(each.view)
        self._views.add(each.id)

    def adopt(self, settings: Mapping[str, str]) -> None:
        """Give its session these settings."""
        with self._lock:
            if settings != self._settings:
                for key in self._settings.keys() - settings.keys():
                    with suppress(Exception):  # as `adopt` does with what a server refuses
                        self.spark.conf.unset(key)
                adopt(self.spark, settings)
                self._settings = settings

    def load(self, slices: Sequence[Slice], schema: StructType) -> None:
        """Read slices into memory, also those that Spark has evicted."""
        with self.views(slices, schema, True):
            for each in slices:
                self.spark.sql(f"SELECT count(*) FROM {each.view}").collect()

    def drop(self, id: str) -> bool:
        """Release a copy, unless a query reads it. Returns whether it is gone."""
        with self._lock:
            if self._claims[id]:
                return False
            self.copies.discard(id)
            self._views.discard(id)
            self.bytes.pop(id, None)
            self.spark.catalog.uncacheTable(f"{VIEW}{id}")
            self.spark.catalog.dropTempView(f"{VIEW}{id}")
            return True

    def look(self) -> frozenset[str]:
        """Ask Spark which copies are in memory, and how large they are; return them. Where its UI does not answer,
        those that were loaded."""
        rest, there = self.manager.rest, frozenset(self.copies)
        if rest is None:
            return there
        try:
            kept = rest.kept_tables()
        except (OSError, ValueError):
            return there
        by_id = {each.name.partition(VIEW)[2][:16]: each for each in kept if VIEW in each.name}
        self.bytes = {id: by_id[id].bytes for id in there if id in by_id}
        return frozenset(id for id in there if id in by_id and by_id[id].whole)

    def memory(self) -> int | None:
        """Return its memory for blocks, bytes; None: not known."""
        rest = self.manager.rest
        if rest is None:
            return None
        with suppress(OSError, ValueError):
            return rest.block_memory()
        return None

    def close(self) -> None:
        """Release the session with all copies."""
        with suppress(Exception):
            for id in list(self.copies):
                self.drop(id)
        release(self.spark)


def copies_told(number: int) -> str:
    """Return a number of copies in words."""
    return "1 copy" if number == 1 else f"{number} copies"


def union(texts: Sequence[str]) -> str:
    """Return SQL of the rows of several queries."""
    return " UNION ALL ".join(texts)
