"""Progress reports of a streaming query, as one frozen type, whatever the client and the Spark version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from qod_magics.spark.plans.timing import AGE_WHEN_READ, WHEN_WRITTEN

Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class FeedCount:
    """What one batch read from one topic (`topic` = "" for a source other than Kafka)."""

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

    def counted_once(self, records: int) -> FeedCount:
        """The counts scaled to one pass over the batch's records: a recipe that reads its input twice, or a
        foreachBatch that evaluates a batch twice, counts each row twice."""
        if not self.read or self.kept is None or self.read <= records:
            return self
        share = records / self.read
        return replace(self, read=records, kept=round(self.kept * share), malformed=round(self.malformed * share))


@dataclass(frozen=True, slots=True)
class Batch:
    """One finished batch."""

    run_id: str
    batch_id: int
    start: float  #: seconds since the epoch, server's clock
    end: float
    planning_s: float  #: from `start` to the first task
    feeds: tuple[FeedCount, ...]
    out: int  #: rows of the task's output before any shedder
    sent: Mapping[str, int]  #: rows sent, by position of the outgoing stream ("0", "1", ...)
    eviction_s: float = 0.0  #: run time of its tasks in which state was searched for expired rows

    @property
    def rows(self) -> int:
        """Rows after the shedders of all feeds: what the task processed."""
        return sum(feed.kept or 0 for feed in self.feeds)


def batch_of(report: Mapping[str, Any]) -> Batch | None:
    """The batch of this progress report; None for an idle trigger: its report has the id of the next batch, and would
    hide that batch."""
    observed = {name: _observed(row) for name, row in (report.get("observedMetrics") or {}).items()}
    feeds: list[FeedCount] = []
    times, moved = 1.0, False
    for position, source in enumerate(report.get("sources") or ()):
        end = _offsets(source.get("endOffset"))
        start = _offsets(source.get("startOffset"))
        topic = next(iter(end)) if len(end) == 1 else ""  # a recipe may read several at once
        moved = moved or (start != end if topic else source.get("startOffset") != source.get("endOffset"))
        if topic and any(feed.topic == topic for feed in feeds):
            continue  # the recipe reads this feed twice
        feed = FeedCount(
            topic,
            start.get(topic) if start else None,
            end.get(topic, {}),
            _count(observed, "rows", topic, position),
            _count(observed, "kept", topic, position),
            *_malformed(observed, topic),
            ages=_quantiles(observed, AGE_WHEN_READ.name, topic, position),
            times=_quantiles(observed, WHEN_WRITTEN.name, topic, position),
        )
        if feed.start is not None and feed.end.keys() <= feed.start.keys():  # else new partitions have no start yet
            # a topic that was deleted and made anew meanwhile ends before the batch's start
            records = sum(max(offset - feed.start.get(partition, offset), 0) for partition, offset in feed.end.items())
            times = max(times, (feed.read or 0) / max(records, 1))
            feed = feed.counted_once(records)
        feeds.append(feed)
    out = observed.get("out", {})
    if not observed and not moved:
        return None
    began = datetime.fromisoformat(report["timestamp"].replace("Z", "+00:00")).timestamp()
    durations = report.get("durationMs") or {}
    took_ms = report.get("batchDuration") or durations.get("triggerExecution") or 0
    return Batch(
        run_id=report["runId"],
        batch_id=int(report["batchId"]),
        start=began,
        end=began + took_ms / 1e3,
        planning_s=max(durations.get("triggerExecution", 0) - durations.get("addBatch", 0), 0) / 1e3,
        feeds=tuple(feeds),
        out=round(out.get("rows", 0) / times),
        sent={key.removeprefix("sent_"): round(n / times) for key, n in out.items() if key.startswith("sent_")},
        eviction_s=sum(each.get("allRemovalsTimeMs") or 0 for each in report.get("stateOperators") or ()) / 1e3,
    )


def _shed(observed: Mapping[str, Mapping[str, Any]], topic: str, position: int) -> Mapping[str, Any]:
    """A shedder's metrics: those of our own reads are named by topic, those of a recipe's source by position."""
    return observed.get(f"shed.{topic}") or observed.get(f"shed.{position}") or {}


def _count(observed: Mapping[str, Mapping[str, Any]], what: str, topic: str, position: int) -> int | None:
    row = _shed(observed, topic, position)
    return None if row.get(what) is None else int(row[what])


def _quantiles(observed: Mapping[str, Mapping[str, Any]], what: str, topic: str, position: int) -> tuple[float, ...]:
    """Times in seconds, observed in ms; () if the batch has none."""
    found = _shed(observed, topic, position).get(what)
    return tuple(float(ms) / 1e3 for ms in found) if isinstance(found, list | tuple) else ()


def _malformed(observed: Mapping[str, Mapping[str, Any]], topic: str) -> tuple[int, str | None]:
    """How many values of a topic could not be parsed, by any of its schemas, and a sample."""
    rows, sample = 0, None
    for name, row in observed.items():
        kind, _, feed = name.partition(".")
        if kind == "malformed" and feed.partition(".")[2] == topic:
            rows += int(row.get("rows") or 0)
            sample = row.get("sample") or sample
    return rows, sample


def _observed(row: Any) -> dict[str, Any]:
    """An observed row: an object in a classic session's report, values and a schema in a Connect session's."""
    if isinstance(row, Mapping) and "values" in row and "schema" in row:
        return {field["name"]: value for field, value in zip(row["schema"]["fields"], row["values"], strict=True)}
    return dict(row) if isinstance(row, Mapping) else {}


def _offsets(text: Any) -> dict[str, dict[int, int]]:
    """Kafka offsets by topic and partition; {} for a source of another kind."""
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
    """A progress report as plain JSON, from a classic or a Connect query."""
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
