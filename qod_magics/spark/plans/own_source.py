"""Shed what recipes read from sources of their own: `spark.readStream.format(...).load()` and the like.

Spark reports sources in the order of the plan, in which a recipe need not read them: `trips.join(zones)` has `trips`
first, whichever was read first. So what is counted of a topic has the name of the topic. Other counts have numbers,
which only keep them apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qod_magics.spark.plans.shedder import shed_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READS = frozenset({"load", "table", "json", "csv", "text", "parquet", "orc", "xml"})
#: The names of positional arguments of methods that say what is read.
_ARGUMENTS = {"format": ("source",), "option": ("key", "value"), "options": (), "load": ("path", "format")}


class SheddingSession:
    """A session that adds counts and a shedder to each streaming read, and delegates all else."""

    def __init__(
        self,
        spark: SparkSession,
        keep_sql: str,
        reflects: bool = True,
        shed: Callable[..., DataFrame] = shed_source,
    ) -> None:
        self._spark, self._shed = spark, shed
        self._keep_sql, self._reflects = keep_sql, reflects
        self._reads = 0
        self._topics: set[str] = set()  # that have been read

    @property
    def readStream(self) -> Any:
        """Return the session's stream reader, with the shedder after each read."""
        return _SheddingReader(self._spark.readStream, self, {})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def shed(self, rows: DataFrame, topic: str = "") -> DataFrame:
        """Count and shed the rows of a source; `topic`: the one that it reads, "" if it is another kind of source."""
        position, self._reads = self._reads, self._reads + 1
        replayable = {"topic", "partition", "offset"} <= set(rows.columns)
        if not topic or topic.isdigit():  # which would pass for the number of a source
            counted_as = f"shed.{position}"
        elif topic not in self._topics:
            counted_as = f"shed.{topic}"
            self._topics.add(topic)
        else:  # Spark refuses two counts of one name
            counted_as = f"again.{position}.{topic}"
        return self._shed(rows, self._keep_sql, counted_as, replayable, reflects=self._reflects)


class _SheddingReader:
    def __init__(self, reader: Any, session: SheddingSession, given: dict[str, Any]) -> None:
        self._reader = reader
        self._session = session
        self._given = given  # what is to be read, of all wrappers of one reader, as Spark's reader itself keeps it

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._reader, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            self._given.update(_given(name, args, kwargs))
            if name in _READS:
                return self._session.shed(result, _topic(self._given))
            return _SheddingReader(result, self._session, self._given)

        return call


def _given(method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a call of a reader's method says of what is to be read: its options, in lower case, and the
    `format`."""
    if method not in _ARGUMENTS:
        return {}
    given = {**dict(zip(_ARGUMENTS[method], args, strict=False)), **kwargs}
    if method == "option":
        given = {given["key"]: given["value"]}
    elif method == "format":
        given = {"format": given["source"]}
    return {str(name).lower(): value for name, value in given.items() if value is not None}


def _topic(given: Mapping[str, Any]) -> str:
    """Return the topic of a Kafka source that reads one alone; "" of other sources."""
    if str(given.get("format", "")).lower() != "kafka":
        return ""
    try:
        named = list(json.loads(given["assign"])) if "assign" in given else str(given.get("subscribe", "")).split(",")
    except (TypeError, ValueError):  # Spark says so
        return ""
    topics = {str(topic).strip() for topic in named} - {""}
    return topics.pop() if len(topics) == 1 else ""
