"""Queries, sources, streams and events of records; seconds, phases and the settled part of each phase. Pure.

A recording is a sequence of records, one per controller cycle. A scripted run annotates them with `phase`, the name of
its current part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from qod_magics.controller.record import Record, Records
from qod_magics.core.runtime import Event


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
    """Return the queries of a record's snapshot, by id."""
    return {
        task.id: Query(task.id, task.priority, task.min_accuracy, task.max_latency_s, task.latency_p50_s, task.oldest_s)
        for task in record.snapshot.tasks
        if task.priority is not None and task.min_accuracy is not None
    }


def sources(record: Record) -> tuple[str, ...]:
    """Return the tasks of a record's snapshot that read external input."""
    return tuple(task.id for task in record.snapshot.tasks if not task.upstream)


def streams(record: Record) -> tuple[str, ...]:
    """Return the streams of a record's snapshot, as "from>to"."""
    return tuple(f"{stream.source}>{stream.target}" for stream in record.snapshot.streams)


def events(records: Records, *kinds: str) -> Iterator[tuple[int, Event]]:
    """(index of the record, event) for the events of these kinds, of all kinds when none is named."""
    for index, record in enumerate(records):
        for event in record.events:
            if not kinds or event.kind in kinds:
                yield index, event


DEFAULT_SETTLE_S = 20.0

#: after one of these the cluster needs time to settle again
DISTURBANCES = frozenset({"move", "scale", "fuse", "unfuse", "task-manager-up", "task-manager-lost", "query-restarted"})


@dataclass(frozen=True, slots=True)
class Phase:
    """Consecutive records with the same `phase`. A name that comes back later is another phase."""

    name: str  #: "" for records that name no phase
    first: int  #: index of its first record
    last: int  #: index of its last record
    start_s: float  #: of its first record, seconds since the start of the recording


def seconds(records: Records) -> tuple[float, ...]:
    """Return the instant of each record in seconds since the first one."""
    return tuple((record.at - records[0].at).total_seconds() for record in records)


def phases(records: Records) -> tuple[Phase, ...]:
    """Return the phases in order; one unnamed phase if the recording names none; () for an empty recording."""
    at = seconds(records)
    found = []
    for name, group in groupby(range(len(records)), key=lambda index: records[index].phase):
        indices = list(group)
        found.append(Phase(name, indices[0], indices[-1], at[indices[0]]))
    return tuple(found)


def is_warming_up(record: Record) -> bool:
    """Return whether an instance of the record's snapshot is warming up."""
    return any(instance.warming_up for instance in record.snapshot.instances)


def settled(records: Records, phase: Phase, settle_s: float = DEFAULT_SETTLE_S) -> tuple[int, ...]:
    """Return indices of the records in the settled part of `phase`; () when it never settled.

    Those are the records at least `settle_s` seconds after the start of the phase and after the last disturbance in it
    (a move, a task manager that joined or was lost, a query that restarted or got another minimum accuracy), with no
    instance warming up. Repeated records are left out.
    """
    at = seconds(records)
    indices = range(phase.first, phase.last + 1)
    disturbed = [at[i] for i in indices if any(event.kind in DISTURBANCES for event in records[i].events)]
    disturbed += [at[i] for i in indices[1:] if _other_minimums(records[i - 1], records[i])]
    from_s = max([phase.start_s, *disturbed]) + settle_s
    return tuple(i for i in indices if at[i] >= from_s and not is_warming_up(records[i]) and not records[i].repeated)


def _other_minimums(before: Record, record: Record) -> bool:
    """Return whether a query of both records has another minimum accuracy in the second one."""
    ours, theirs = (
        {task.id: task.min_accuracy for task in each.snapshot.tasks if task.min_accuracy is not None}
        for each in (before, record)
    )
    return any(ours.get(name, minimum) != minimum for name, minimum in theirs.items())
