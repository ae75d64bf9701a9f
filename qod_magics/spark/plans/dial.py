"""Dials: numbers that the controller sets and a running query reads.

They are system properties of the driver's JVM or, where SQL may not call `reflect`, one record of a small topic. A plan
reads its dials in one of four ways, chosen once per task manager:

* `DialReading.ROW`: each row reads the property. A new value acts at once. Only where the executors share the
  driver's JVM (local task managers).
* `DialReading.BATCH`: a scalar subquery, folded to a literal when a batch is planned. Works on any cluster;
  a new value recompiles the query, so it is worth setting only for changes that matter.
* `DialReading.TOPIC`: a scalar subquery over the topic, run when a batch is planned, for clusters that refuse
  `reflect`.
* `DialReading.RESTART`: a literal, where neither works; a new value needs a restart of the query.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: A property holds the drop probability as an integer multiple of 1/PARTS: as exact as a double, parsed several times
#: faster than a decimal fraction, and shortest, "0", where nothing is dropped.
PARTS = 1 << 53
#: The longest delay before a micro-batch that a dial can ask for, seconds.
MOST_S = 10.0
#: The latest time after its oldest row at which a batch that takes turns is due, and the least, seconds: 0 is no turns.
LATEST_DUE_S, LEAST_DUE_S = 100.0, 1e-3
#: The largest share of its rows that a partition lends.
LARGEST_SHARE = 0.999


class DialReading(Enum):
    """How the plans of one task manager read their dials."""

    ROW = "row"
    BATCH = "batch"
    TOPIC = "topic"
    RESTART = "restart"

    @property
    def reflects(self) -> bool:
        """Return whether SQL may call methods of Java there: read a property or the clock, or sleep."""
        return self in (DialReading.ROW, DialReading.BATCH)


@dataclass(frozen=True, slots=True)
class DialBoard:
    """The names of one session's dials and the SQL that reads them."""

    session: str  #: keeps two kernels on one server apart

    def source(self, task: str) -> str:
        """Return the name of the keep probability of a source's shedder, d(outside, task)."""
        return f"qod.{self.session}.source.{task}"

    def send(self, stream: str) -> str:
        """Return the name of the keep probability at the sending end of the stream "from>to", d(from, to)."""
        return f"qod.{self.session}.send.{stream}"

    def accept(self, task: str) -> str:
        """Return the name of the accuracy to which a backlog is thinned where `task` reads it."""
        return f"qod.{self.session}.accept.{task}"

    def accuracy(self, task: str) -> str:
        """Return the name of the desired accuracy of `task`: its aggregated rows have the weight 1 / accuracy."""
        return f"qod.{self.session}.accuracy.{task}"

    def lent(self, stream: str, partition: int | str) -> str:
        """Return the name of what this partition of the stream "from>to" lends (`lent_value`)."""
        return f"qod.{self.session}.lent.{stream}.{partition}"

    def pace(self, instance: str) -> str:
        """Return the name of the pace of this instance's micro-batches: 1 - delay / longest delay, a fraction of 1."""
        return f"qod.{self.session}.pace.{instance}"

    def due(self, instance: str) -> str:
        """Return the name of the time at which this instance's micro-batches are due (`due_value`)."""
        return f"qod.{self.session}.due.{instance}"


#: Partitions of a stream that can take rows of others.
MOST_PARTITIONS = 1024


def lent_value(to: int, share: float) -> float:
    """Return the value of the dial of a partition that lends this share of its rows, below 1, to another one."""
    return 1.0 - (to + min(max(share, 0.0), LARGEST_SHARE)) / MOST_PARTITIONS


def lent_sql(prefix: str) -> str:
    """Return SQL that reads, for the partition whose number is put in the place of "{}", the partition that it lends to
    plus the share of its rows: 0 where it lends none. Only for plans that read dials row by row."""
    key = f"concat('{prefix}', {{}})"
    lent = f"TRY_CAST(replace(reflect('java.lang.System', 'getProperty', {key}), 'null', '0') AS BIGINT)"
    return f"COALESCE({lent} * {MOST_PARTITIONS / PARTS!r}D, 0.0D)"


def due_value(due_s: float | None) -> float:
    """Return the value of the dial of batches that are due so many seconds after their oldest row: 1 - seconds /
    longest; None: they take no turns."""
    return 1.0 if due_s is None else 1.0 - min(max(due_s, LEAST_DUE_S), LATEST_DUE_S) / LATEST_DUE_S


#: The view of a session over the topic of its dials.
VIEW = "_qod_dials"
_RECORD = f"SELECT from_json(max_by(CAST(value AS STRING), offset), 'MAP<STRING, BIGINT>') AS dials FROM {VIEW}"


def read_sql(key: str, reading: DialReading, value: float = 1.0) -> str:
    """Return SQL of a DOUBLE in 0..1: the dial's value now. An unset dial reads as 1: nothing is dropped."""
    if reading is DialReading.RESTART:
        return f"CAST({value!r} AS DOUBLE)"
    if reading is DialReading.TOPIC:
        return f"COALESCE((SELECT 1.0D - try_element_at(dials, '{key}') * {1 / PARTS!r}D FROM ({_RECORD})), 1.0D)"
    # casting a non-number costs an exception per row, so "null", an unset property, is replaced first
    dropped = f"TRY_CAST(replace(reflect('java.lang.System', 'getProperty', '{key}'), 'null', '0') AS BIGINT)"
    lookup = f"COALESCE(1.0D - {dropped} * {1 / PARTS!r}D, 1.0D)"
    return lookup if reading is DialReading.ROW else f"(SELECT {lookup} FROM VALUES (0))"


def waiting_sql(key: str) -> str:
    """Return SQL of a condition that is always true, but has the driver sleep for MOST_S * (1 - dial) seconds
    whenever a micro-batch is planned. The batch's offsets are fixed by then, and stopping the query interrupts the
    sleep."""
    ms = f"CAST((1.0D - {read_sql(key, DialReading.ROW)}) * {1000 * MOST_S!r}D AS BIGINT)"
    return f"COALESCE((SELECT reflect('java.lang.Thread', 'sleep', {ms}) FROM VALUES (0)), '') <> '-'"


def written(value: float) -> str:
    """Return a dial's value, a fraction of 1, as its property holds it."""
    return str(round((1 - value) * PARTS))


class DialStore(Protocol):
    """Where dials are kept that SQL can't set."""

    def write(self, values: Mapping[str, float]) -> None:
        """Set these dials; all others keep their values. Raises TaskManagerError: they are set by the next call."""

    def close(self) -> None:
        """Remove it."""


def record(values: Mapping[str, float]) -> str:
    """Return the record of a topic that holds these dials, as JSON."""
    return json.dumps({key: int(written(value)) for key, value in values.items()})


def turn(spark: SparkSession, values: Mapping[str, float]) -> None:
    """Set all these dials of one task manager in one call."""
    if not values:
        return
    rows = ", ".join(f"('{key}', '{written(value)}')" for key, value in values.items())
    spark.sql(f"SELECT reflect('java.lang.System', 'setProperty', k, v) FROM VALUES {rows} AS dials(k, v)").collect()


def reflection_allowed(spark: SparkSession, key: str) -> bool:
    """Return whether this task manager lets a query set and read a system property."""
    try:
        turn(spark, {key: 0.25})
        row = spark.sql(f"SELECT {read_sql(key, DialReading.BATCH)} AS value").collect()[0]
        return bool(row["value"] == 0.25)
    except Exception:
        return False
