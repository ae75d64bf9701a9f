"""Queries, sources, streams and events of a record. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qod_magics.controller.record import Record, Records
from qod_magics.core.optional import LATENCY_P50, MAX_LATENCY, OLDEST
from qod_magics.core.runtime import Event

_LATENCIES = (MAX_LATENCY, LATENCY_P50, OLDEST)


@dataclass(frozen=True, slots=True)
class Query:
    """A task without downstream tasks, and its restrictions."""

    id: str
    priority: int  #: higher wins
    min_accuracy: float  #: 0..1
    max_latency_s: float | None = None  #: target of the 95th percentile of its latency, seconds
    p50_s: float | None = None  #: its median latency, seconds
    oldest_s: float | None = None  #: age of the oldest row that is not in its result, seconds


def queries(record: Record) -> dict[str, Query]:
    """The queries of a record's snapshot, by id."""
    return {
        task.id: Query(task.id, task.priority, task.min_accuracy, *(field.of(task) for field in _LATENCIES))
        for task in record.snapshot.tasks
        if task.priority is not None and task.min_accuracy is not None
    }


def sources(record: Record) -> tuple[str, ...]:
    """The tasks of a record's snapshot that read external input."""
    return tuple(task.id for task in record.snapshot.tasks if not task.upstream)


def streams(record: Record) -> tuple[str, ...]:
    """The streams of a record's snapshot, as "from>to"."""
    return tuple(f"{stream.source}>{stream.target}" for stream in record.snapshot.streams)


def events(records: Records, *kinds: str) -> Iterator[tuple[int, Event]]:
    """(index of the record, event) for the events of these kinds, of all kinds when none is named."""
    for index, record in enumerate(records):
        for event in record.events:
            if not kinds or event.kind in kinds:
                yield index, event
