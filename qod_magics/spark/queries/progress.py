"""Read the progress reports of a streaming query as one frozen type, whatever the client and the Spark version."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias

from qod_magics.application.streams.rules import COUNTED, Broken
from qod_magics.core.runtime import MISFITS
from qod_magics.sources.registry import span_of
from qod_magics.sources.source import is_topic
from qod_magics.spark.plans.timing import AGE_WHEN_READ, WHEN_WRITTEN

Offsets = Mapping[int, int]

#: Names, in reports, of operators that check rows against the watermark once these are aggregated by group and task.
_AGGREGATES = re.compile(r"stateStoreSave|sessionWindow", re.IGNORECASE)

#: What a batch observed: columns and their values, by the name of the metrics.
Observed: TypeAlias = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class FeedCount:
    """What one batch read from one source; `topic` is its name, "" for one of a recipe's own that is no topic, or for
    several whose counts can't be told apart."""

    topic: str
    start: Offsets | None  #: first offset of the batch by partition; None: the query's very first batch
    end: Offsets  #: the next offset to read, by partition
    read: int | None  #: rows before the shedder; None: the batch carried no count
    kept: int | None  #: rows after it
    malformed: int = 0  #: of these, the ones whose values could not be parsed
    sample: str | None = None  #: the beginning of such a value
    #: of the rows kept, at the shares `LEVELS`: their ages when they were read, seconds; () where `times` are observed
    ages: tuple[float, ...] = ()
    times: tuple[float, ...] = ()  #: when they were written to the topic, seconds since the epoch
    tombstones: int = 0  #: of the rows kept, those without a value
    columnless: int = 0  #: of the rows kept, those that are JSON objects without any of the columns read
    implausible: int = 0  #: of the rows kept, those with a time outside of the years 1 to 9999
    late_time: str | None = None  #: such a time: "column=microseconds since the epoch"
    restarted: bool = False  #: whether a new generator of rows begins at `start`, without rows before it
    size: int | None = None  #: bytes of the values of the rows read from a stream between tasks; None: not counted

    def counted_once(self, records: int) -> FeedCount:
        """Return the counts scaled to one pass over the batch's records: a recipe that reads its input twice, or a
        foreachBatch that evaluates a batch twice, counts each row twice."""
        if not self.read or self.kept is None or self.read <= records:
            return self
        share = records / self.read
        counts = {name: round(getattr(self, name) * share) for name in ("kept", *MISFITS, "columnless")}
        size = None if self.size is None else round(self.size * share)
        return replace(self, read=records, size=size, **counts)


@dataclass(frozen=True, slots=True)
class Batch:
    """One finished batch."""

    run_id: str
    batch_id: int
    start: float  #: when its offsets were settled, seconds since the epoch, server's clock
    end: float
    planning_s: float  #: from `start` to the first task
    feeds: tuple[FeedCount, ...]
    out: int  #: rows of the task's output before any shedder
    sent: Mapping[str, int]  #: rows sent, by position of the outgoing stream ("0", "1", ...)
    eviction_s: float = 0.0  #: run time of its tasks in which state was searched for expired rows
    #: rows that came behind the watermark and were dropped by an operator with state: of an aggregation at least so
    #: many, as Spark counts rows of one group and task once; so too of a batch that was read several times
    late: int = 0
    late_groups: bool = False  #: whether some of them were counted by an aggregation
    watermark: str | None = None  #: where it was in this batch, as Spark writes it
    state_bytes: int = 0  #: memory of its state stores at its end
    broken: Broken = field(default_factory=dict)  #: rows that break the rules of streams

    @property
    def rows(self) -> int:
        """Return rows after the shedders of all feeds: what the task processed."""
        return sum(feed.kept or 0 for feed in self.feeds)


def batch_of(report: Mapping[str, Any]) -> Batch | None:
    """Return the batch of this progress report; None for an idle trigger: its report has the id of the next batch, and
    would hide that batch."""
    observed = {name: _observed(row) for name, row in (report.get("observedMetrics") or {}).items()}
    feeds, times, moved = _feeds(observed, report.get("sources") or ())
    if not observed and not moved:
        return None
    out, operators = observed.get("out", {}), report.get("stateOperators") or ()
    late = [each for each in operators if each.get("numRowsDroppedByWatermark")]
    began = datetime.fromisoformat(report["timestamp"].replace("Z", "+00:00")).timestamp()
    durations = report.get("durationMs") or {}
    took_ms = report.get("batchDuration") or durations.get("triggerExecution") or 0
    offsets_s = durations.get("latestOffset", 0) / 1e3
    planning_ms = durations.get("triggerExecution", 0) - durations.get("addBatch", 0)
    return Batch(
        run_id=report["runId"],
        batch_id=int(report["batchId"]),
        start=began + min(offsets_s, took_ms / 1e3),
        end=began + took_ms / 1e3,
        planning_s=max(planning_ms / 1e3 - offsets_s, 0.0),
        feeds=tuple(feeds),
        out=round(out.get("rows", 0) / times),
        sent={key.removeprefix("sent_"): round(n / times) for key, n in out.items() if key.startswith("sent_")},
        eviction_s=sum(each.get("allRemovalsTimeMs") or 0 for each in operators) / 1e3,
        late=int(sum(int(each["numRowsDroppedByWatermark"]) for each in late) / times),
        late_groups=any(_AGGREGATES.match(each.get("operatorName") or "") for each in late),
        watermark=(report.get("eventTime") or {}).get("watermark"),
        broken={
            name.removeprefix(COUNTED): [round(int(row[f"rule_{n}"] or 0) / times) for n in range(len(row))]
            for name, row in observed.items()
            if name.startswith(COUNTED)
        },
        state_bytes=sum(int(each.get("memoryUsedBytes") or 0) for each in operators),
    )


def _feeds(observed: Observed, sources: Sequence[Mapping[str, Any]]) -> tuple[list[FeedCount], float, bool]:
    """Return what a batch read from each source, how many times it counted a row at most, and whether any source has
    moved on."""
    feeds, times, moved = [], 1.0, False
    for numbered in _numbered(observed):
        records = _records(numbered)
        times, moved = max(times, (numbered.read or 0) / max(records, 1)), True
        feeds.append(numbered.counted_once(records))
    if feeds:  # beside such sources a query reads nothing but topics
        known = {f"shed.{feed.topic}" for feed in feeds}
        observed = {name: row for name, row in observed.items() if name not in known}
        sources = [source for source in sources if _offsets(source.get("endOffset"))]
    ends = [_offsets(source.get("endOffset")) for source in sources]
    topics = [next(iter(end)) if len(end) == 1 else "" for end in ends]  # a recipe may read several at once
    for source, end, counted in zip(sources, ends, _counted(observed, topics), strict=True):
        start, of_one = _offsets(source.get("startOffset")), len(end) == 1
        moved = moved or (start != end if of_one else source.get("startOffset") != source.get("endOffset"))
        if counted is None:
            continue
        topic, row = counted
        feed = _feed(observed, topic, row, start.get(topic) if start else None, end.get(topic, {}))
        if feed.start is not None and feed.end.keys() <= feed.start.keys():  # else new partitions have no start yet
            # a topic that was deleted and created again meanwhile ends before the batch's start
            records = sum(max(offset - feed.start.get(partition, offset), 0) for partition, offset in feed.end.items())
            times = max(times, (feed.read or 0) / max(records, 1))
            feed = feed.counted_once(records)
        feeds.append(feed)
    return feeds, times, moved


def _feed(
    observed: Observed,
    topic: str,
    row: Mapping[str, Any],
    start: Offsets | None,
    end: Offsets,
    restarted: bool = False,
) -> FeedCount:
    """Return what a batch read from one source, given the metrics of its shedder and its positions."""
    return FeedCount(
        topic,
        start,
        end,
        _count(row, "rows"),
        _count(row, "kept"),
        **_misfits(observed, topic),
        ages=_quantiles(row, AGE_WHEN_READ.name),
        times=_quantiles(row, WHEN_WRITTEN.name),
        restarted=restarted,
        size=_count(row, "bytes"),
    )


def _numbered(observed: Observed) -> list[FeedCount]:
    """Return what a batch read from sources whose rows were numbered where they were counted."""
    found = []
    for name, row in observed.items():
        kind, _, source = name.partition(".")
        span = span_of(source, row) if kind == "shed" and not is_topic(source) else None
        if span is not None:
            found.append(_feed(observed, source, row, span.start, span.end, span.restarted))
    return found


def _records(feed: FeedCount) -> int:
    """Return how many rows a batch read from a source, by its positions."""
    start = feed.start or {}
    return sum(end - start.get(split, end) for split, end in feed.end.items())


def _counted(observed: Observed, topics: Sequence[str]) -> list[tuple[str, Mapping[str, Any]] | None]:
    """For each source, given its topic, what it is told as: a topic, and the metrics of its shedder. None for one that
    is told with a source before it.

    Counts of our own reads, and of a recipe's reads of one topic, have the name of the topic. Those of others have
    numbers in the order in which the recipe reads, which need not be that of the sources: of several, only the sum is
    known.
    """
    named = {topic: row for topic in topics if topic and (row := _of_topic(observed, topic))}
    rest = [row for name, row in observed.items() if row and name.startswith("shed.") and name[5:] not in named]
    once = [at for at, topic in enumerate(topics) if not topic or topics.index(topic) == at]  # it may be read twice
    others = [at for at in once if topics[at] not in named]
    together = len(others) > 1 and bool(rest)
    found: list[tuple[str, Mapping[str, Any]] | None] = [None] * len(topics)
    for at in once:
        if topics[at] in named:
            found[at] = topics[at], named[topics[at]]
        elif not together:
            found[at] = topics[at], _sum(rest)
        elif at == others[0]:
            found[at] = "", _sum(rest)
    return found


def _of_topic(observed: Observed, topic: str) -> Mapping[str, Any]:
    """Return the metrics with the name of this topic; those of another read of it if the plan has not the first."""
    again = (row for name, row in observed.items() if name.startswith("again.") and name.split(".", 2)[2] == topic)
    return observed.get(f"shed.{topic}") or next(again, {})


def _sum(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the metrics of one shedder as they are; of several, their counts."""
    if len(rows) < 2:
        return rows[0] if rows else {}
    return {what: sum(_count(row, what) or 0 for row in rows) for what in ("rows", "kept")}


def _count(row: Mapping[str, Any], what: str) -> int | None:
    return None if row.get(what) is None else int(row[what])


def _quantiles(row: Mapping[str, Any], what: str) -> tuple[float, ...]:
    """Return times in seconds, observed in ms; () if the batch has none."""
    found = row.get(what)
    return tuple(float(ms) / 1e3 for ms in found) if isinstance(found, list | tuple) else ()


def _misfits(observed: Observed, topic: str) -> dict[str, Any]:
    """Return the fields of a `FeedCount` about values of a topic that do not fit, by any of its schemas."""
    counts, samples = (*MISFITS, "columnless"), ("sample", "late_time")
    found: dict[str, Any] = dict.fromkeys(counts, 0) | dict.fromkeys(samples)
    for name, row in observed.items():
        kind, _, feed = name.partition(".")
        if kind == "malformed" and feed.partition(".")[2] == topic:
            for what in counts:
                found[what] += int(row.get("rows" if what == "malformed" else what) or 0)
            for what in samples:
                found[what] = row.get(what) or found[what]
    return found


def _observed(row: Any) -> dict[str, Any]:
    """Return an observed row: an object in a classic session's report, values and a schema in a Connect session's."""
    if isinstance(row, Mapping) and "values" in row and "schema" in row:
        return {field["name"]: value for field, value in zip(row["schema"]["fields"], row["values"], strict=True)}
    return dict(row) if isinstance(row, Mapping) else {}


def _offsets(text: Any) -> dict[str, dict[int, int]]:
    """Return Kafka offsets by topic and partition; {} for a source of another kind."""
    if isinstance(text, str):
        try:
            text = json.loads(text)
        except ValueError:
            return {}
    if not isinstance(text, Mapping) or not all(isinstance(v, Mapping) for v in text.values()):
        return {}
    try:
        return {topic: {int(p): int(o) for p, o in by.items()} for topic, by in text.items()}
    except (TypeError, ValueError):
        return {}


def report_json(progress: Any) -> dict[str, Any] | None:
    """Return a progress report as plain JSON, from a classic or a Connect query."""
    if progress is None:
        return None
    text = getattr(progress, "json", None)
    if callable(text):
        text = text()
    if isinstance(text, str):
        with suppress(ValueError):
            parsed: dict[str, Any] = json.loads(text)
            return parsed
    return dict(progress)
