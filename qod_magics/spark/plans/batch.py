"""Run the recipes of a query over given offsets of its topics, as a batch at a limited share of a core.

Spark gives tasks no priority, so the reading gives way by itself: one task reads a topic, and after some hundred
records it sleeps for as long as keeps its share. On task managers with our jar its CPU time counts. Elsewhere, and
where recipes run Python, time for which it waits for a core counts, too: the busier the machine, the less it takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import functions as F

from qod_magics.application.chain import opened_chain
from qod_magics.application.recipes.building import first_line, raise_unless_connection
from qod_magics.application.streams.topic_input import rejects_of
from qod_magics.application.tasks import TaskSpec
from qod_magics.application.weights import WEIGHT, Weights, origins
from qod_magics.errors import ApplicationError
from qod_magics.kafka.properties import fetch_options
from qod_magics.spark.plans.job import Feed
from qod_magics.spark.plans.parsing import JSON_FORMAT
from qod_magics.spark.plans.pipeline import Workshop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Records between two looks at the clock: a millisecond or two of work at most recipes.
EACH = 256
#: The longest sleep, seconds: a stop or a new share takes effect within it.
LONGEST_S = 2.0
#: Plans of one batch, at most: records may have several schemas that the first one does not know.
PLANS = 20

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of one topic."""

    feed: Feed
    ending: Mapping[int, int]  #: by partition, the first offset that is not read


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of the result, and what was read for them."""

    texts: Sequence[str] = ()  #: the rows as JSON, as sinks have them
    read: int | None = 0  #: records; None: Spark did not tell
    too_many: bool = False  #: whether rows were left out, as there are more than asked for


@dataclass(slots=True)
class Counts:
    """Counts of the records read, by feed, once the batch has run."""

    observations: list[Any] = field(default_factory=list)

    def read(self) -> int | None:
        """Return how many were read; None: Spark did not tell, as where a view hides an observation (recipes in
        SQL, on Spark Connect)."""
        rows = [each.get.get("rows") for each in self.observations]
        return None if None in rows else sum(map(int, rows))


#: What holds a task to its share by its CPU time, in our jar.
PACER = "org.apache.spark.sql.kafka010.Pace"


def hold_sql(share: float, passed: bool) -> str:
    """Return SQL of a condition that is always true, and for which every `EACH`th record sleeps long enough for its
    task to use at most this share of a core.

    Args:
        share: of a core, above 0.
        passed: whether all time that has passed counts as used: CPU in Python is not that of the task.

    """
    held = f"reflect('{PACER}', 'hold', CAST({share!r} AS DOUBLE), {str(passed).lower()})"
    return f"CASE WHEN offset % {EACH} = 0 THEN {held} = 'held' ELSE true END"


def pace_sql(key: str, share: float) -> str:
    """Return SQL of a condition that is always true, and for which every `EACH`th record sleeps long enough for its
    task to run for at most this share of the time.

    Args:
        key: a system property that holds when the task last looked at the clock, ms.
        share: of a core, above 0; from 1 on nothing sleeps.

    """
    now = "CAST(reflect('java.lang.System', 'currentTimeMillis') AS BIGINT)"
    last = f"TRY_CAST(reflect('java.lang.System', 'getProperty', '{key}') AS BIGINT)"
    owed = f"coalesce(({now} - {last}) * {max(1.0 / share - 1.0, 0.0)!r}D, 0.0D)"
    ms = f"CAST(least(greatest({owed}, 0.0D), {1000 * LONGEST_S!r}D) AS BIGINT)"
    slept = f"coalesce(reflect('java.lang.Thread', 'sleep', {ms}), '')"
    noted = f"coalesce(reflect('java.lang.System', 'setProperty', '{key}', CAST({now} AS STRING)), '')"
    return f"CASE WHEN offset % {EACH} = 0 THEN concat({slept}, {noted}) <> '-' ELSE true END"


def records_of(
    workshop: Workshop, reading: Reading, number: int, share: float, key: str, counts: Counts, python: bool = False
) -> DataFrame:
    """Return the rows between these offsets, each of which weighs 1, parsed as the running query does. `python`:
    whether recipes run Python."""
    from pyspark.sql import Observation

    feed = reading.feed
    if rejects_of(feed.malformed) is not None:
        feed = replace(feed, malformed="drop")  # the running query has sent them
    starting, ending = (
        json.dumps({feed.topic: {str(p): at for p, at in offsets.items()}})
        for offsets in ({p: feed.starting[p] for p in feed.partitions}, reading.ending)
    )
    records = (
        workshop.spark.read.format("kafka")
        .options(**{**fetch_options(len(feed.partitions)), **workshop.kafka_of(feed.topic)})
        .option("assign", json.dumps({feed.topic: list(feed.partitions)}))
        .option("startingOffsets", starting)
        .option("endingOffsets", ending)
        .option("failOnDataLoss", "false")  # what retention deletes meanwhile is missing from the count
        .option("includeHeaders", str(feed.schema is None or "_headers" in feed.record).lower())
        .load()
        .coalesce(1)
    )
    if workshop.reading.reflects and share < 1.0:
        own = workshop.sheds_on_read  # it has our jar
        records = records.where(hold_sql(share, python) if own else pace_sql(f"{key}.{number}", share))
    counted = Observation(f"exact{number}")
    counts.observations.append(counted)
    rows = records.observe(counted, F.count(F.lit(1)).alias("rows")).withColumn(WEIGHT, F.lit(1.0))
    return rows if feed.schema is None else workshop.parsed(rows, feed, number, None, checks=True)


@contextmanager
def opened(
    workshop: Workshop, spec: TaskSpec, inputs: Mapping[str, DataFrame], weights: Weights
) -> Iterator[DataFrame]:
    """Yield the result of the recipes, while the context is open; collect it inside. Raises ApplicationError, one line.

    Args:
        workshop: on a session of the batch's own, as views exist until the context closes.
        spec: the query with all streams that lead to it, as one task.
        inputs: the topics, by the names of the streams that read them.
        weights: what is known of the weights of these streams; it stays as it is.

    """
    own = replace(weights, **{each.name: getattr(weights, each.name).copy() for each in fields(weights)})
    with opened_chain(spec, workshop.spark, inputs, origins([spec]), own) as rows:
        yield rows


def planned(attempt: Callable[[], _T], feeds: Sequence[Feed]) -> _T:
    """Return what the attempt returns. It is made again while it fails for a schema that its plan does not know, at
    most `PLANS` times.

    Args:
        attempt: makes a plan and runs it.
        feeds: what it reads; they note the schema, and the next plan has it.

    """
    for _ in range(PLANS - 1):
        try:
            return attempt()
        except Exception as error:
            if True not in [feed.values.needs_plan(str(error)) for feed in feeds]:  # each notes its own
                raise
    return attempt()


def run(
    workshop: Workshop,
    spec: TaskSpec,
    readings: Mapping[str, Reading],
    weights: Weights,
    where: str,
    *,
    share: float,
    key: str,
    most: int,
    python: bool = False,
) -> Found:
    """Run the recipes over these offsets, and return the rows for which a condition holds.

    Args:
        workshop: on a session of the batch's own.
        spec: the query with all streams that lead to it, as one task.
        readings: what is read, by the streams that read it.
        weights: what is known of the weights of these streams.
        where: SQL of the condition.
        share: of a core, for all topics together; 1: nothing sleeps.
        key: names the system properties in which the tasks note the time.
        most: rows, at most.
        python: whether recipes run Python.

    Raises:
        ApplicationError: a recipe fails on rows that are no stream, one line.

    """
    each = share / max(len(readings), 1) if share < 1.0 else 1.0

    def attempt() -> Found:
        counts = Counts()
        inputs = {
            head: records_of(workshop, reading, number, each, key, counts, python)
            for number, (head, reading) in enumerate(readings.items())
        }
        with opened(workshop, spec, inputs, weights) as rows:
            value = F.to_json(F.struct("*"), JSON_FORMAT).alias("value")
            found = [row["value"] for row in rows.where(where).select(value).limit(most + 1).collect()]
        return Found(found[:most], counts.read(), len(found) > most)

    try:
        return planned(attempt, [reading.feed for reading in readings.values()])
    except ApplicationError:
        raise
    except Exception as error:
        raise_unless_connection(error)
        raise ApplicationError(f"the batch over {spec.id!r} fails: {first_line(error)}", name=spec.id) from error
