"""Kafka topics: the source that the others are modelled on. Splits are partitions, and rows are numbered by offsets."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from qod_magics.errors import ApplicationError
from qod_magics.kafka.properties import fetch_options
from qod_magics.kafka.reading import (
    beginning_offsets,
    committed_offsets,
    end_offsets,
    known_end_offsets,
    offsets_at,
)
from qod_magics.kafka.topics import partitions
from qod_magics.sources.source import (
    LATEST,
    OPTIONS,
    Context,
    GoOn,
    Identity,
    Part,
    Payload,
    Position,
    Span,
    check_topics,
    parse_start,
    read_on,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Spark's Kafka source, and ours, whose reader sheds, delays batches and has them take turns: the class, and the
#: options that name its dials. Its columns `_p` and `_records` are the probability with which a record was kept, 0 in a
#: row that only counts, and how many were read for this row.
PLAIN, READER = "kafka", "org.apache.spark.sql.kafka010.SheddingKafka"
KEEP, PACE, DUE = "qod.keep", "qod.pace", "qod.due"
#: At low input rates each row costs a wake-up: batch rows for some hundredths of a second. The user's own options take
#: precedence.
GATHERING = {"kafka.fetch.min.bytes": "65536", "kafka.fetch.max.wait.ms": "100"}
#: How long a starting point is looked up, seconds; and the end offsets of topics.
_ANSWER_S, _ENDS_S = 10.0, 2.0


class KafkaSource:
    """Topics of the session's broker, those of streams between its tasks among them."""

    payload: ClassVar[Payload] = "json"
    identity: ClassVar[Identity] = Identity()
    options: ClassVar[frozenset[str]] = OPTIONS
    realtime: ClassVar[str] = ""
    every_s: ClassVar[float] = 0.0
    sheds_on_read: ClassVar[bool] = True
    has_gaps: ClassVar[bool] = True
    unit: ClassVar[str] = "topic"
    splits_unit: ClassVar[str] = "partition"

    def __init__(self, context: Context) -> None:
        self._context = context

    def __repr__(self) -> str:
        return f"topics of {self._context.kafka!r}"

    @staticmethod
    def checked(place: str) -> str:
        """Return the names of topics."""
        return check_topics(place)

    @staticmethod
    def span(place: str, noted: Mapping[str, Any]) -> Span | None:
        """Return None: a batch's report has its offsets."""
        return None

    def noted(self, place: str) -> list[Column]:
        """Return nothing to observe."""
        return []

    def splits(self, place: str) -> int:
        """Return the partitions of a topic."""
        return partitions(self._context.of(place), place)

    def begin(self, place: str, starting: str) -> Position:
        """Return the offsets of a starting point. Raises KafkaError, ApplicationError: partitions lack an offset."""
        start, kafka = parse_start(starting), self._context.of(place)
        if start.offsets is not None:
            return self._given(place, start.offsets)
        if start.group:
            committed = committed_offsets(kafka, start.group, place, timeout_s=_ANSWER_S)
            first = beginning_offsets(kafka, [place], timeout_s=_ANSWER_S)[place]
            return self._given(place, {**first, **committed})
        if (at_ms := start.instant_ms(datetime.now(UTC))) is not None:
            return dict(offsets_at(kafka, [place], at_ms, timeout_s=_ANSWER_S)[place])
        ask = end_offsets if start.end == LATEST else beginning_offsets
        return dict(ask(kafka, [place], timeout_s=_ANSWER_S)[place])

    def _given(self, place: str, offsets: dict[int, int]) -> Position:
        ends = end_offsets(self._context.of(place), [place], timeout_s=_ANSWER_S)[place]
        if ends.keys() != offsets.keys():
            raise ApplicationError(
                f"--starting must give an offset to each of the {len(ends)} partitions of {place!r}, "
                f"got some for {', '.join(map(str, sorted(offsets)))}",
                rule="all partitions",
            )
        for partition, offset in offsets.items():
            if offset > ends[partition]:
                raise ApplicationError(
                    f"--starting must be at most the end offset {ends[partition]} of partition {partition} of "
                    f"{place!r}, got {offset}",
                    value=offset,
                    rule="within the topic",
                )
        return offsets

    def ends(self, places: Collection[str]) -> tuple[Mapping[str, Position], Mapping[str, str]]:
        """Return the end offsets of topics, all of a cluster in one request. Raises KafkaError: a cluster that has some
        of them does not answer."""
        found: dict[str, Position] = {}
        missing: dict[str, str] = {}
        for kafka in self._context.clusters:
            if there := [place for place in places if self._context.of(place) is kafka]:
                ends, lacking = known_end_offsets(kafka, there, timeout_s=_ENDS_S)
                found |= ends
                missing |= lacking
        return found, missing

    def read(self, spark: SparkSession, place: str, part: Part) -> DataFrame:
        """Return the records of the partitions that are assigned to an instance."""
        batched = part.most is not None  # a micro-batch reads existing records: waiting gains nothing
        options = {
            **fetch_options(len(part.splits)),
            **({} if batched else GATHERING),
            **self._context.of(place).spark_options(),
        }
        reader = (
            spark.readStream.format(PLAIN if part.keep is None else READER)
            .options(**options)
            .option("assign", json.dumps({place: list(part.splits)}))
            .option("startingOffsets", json.dumps({place: {str(p): part.starting.get(p, -2) for p in part.splits}}))
            .option("failOnDataLoss", "false")  # the books count rows that retention deleted unread
            .option("includeHeaders", str(part.headers).lower())
        )
        if part.most is not None:
            reader = reader.option("maxOffsetsPerTrigger", str(part.most))
        if part.keep is not None:
            reader = reader.option(KEEP, part.keep)
        if part.pace is not None:
            reader = reader.option(PACE, part.pace)
        if part.due is not None:
            reader = reader.option(DUE, part.due)
        return reader.load()

    def tend(self, parts: Iterable[Part], go_on: GoOn = read_on) -> None:
        """Do nothing: the broker looks after its topics."""
