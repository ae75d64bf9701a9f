"""The reports of instances and the loads of task managers in a recording: the data of a fit. Pure.

Times are seconds since the start of the fitted simulation: the first record ends the first controller period.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from qod_magics.controller.record import Record, Records
from qod_magics.core.freshness import Freshness

RESTARTS = frozenset({"move", "query-restarted"})


@dataclass(frozen=True, slots=True)
class RecordedReading:
    """One report of one instance: means over a window."""

    instance: str
    task: str
    manager: str
    since_s: float
    at_s: float
    seen_s: float  #: when the controller first saw it
    started_s: float  #: start of its run, as far as reports show
    kept: float  #: rows/s after the shedders
    read: float  #: rows/s before the shedder at the reading end
    cpu: float  #: % of one core

    @property
    def length_s(self) -> float:
        """Length of its window."""
        return self.at_s - self.since_s

    @property
    def age_s(self) -> float:
        """From the start of its run to the middle of its window."""
        return (self.since_s + self.at_s) / 2 - self.started_s


@dataclass(frozen=True, slots=True)
class Load:
    """One task manager in one cycle."""

    manager: str
    at_s: float
    instances: int
    others: float  #: % of one core: its CPU outside the tasks
    cpu: float  #: % of one core: its whole CPU


def times(records: Records) -> tuple[float, ...]:
    """The instant of each record, seconds since one period before the first."""
    first = epoch(records[0]) - records[0].period_s
    return tuple(epoch(record) - first for record in records)


def readings(records: Records) -> Iterator[RecordedReading]:
    """Every report once, in order of first appearance, without those that lack a measured rate or CPU."""
    first = epoch(records[0]) - records[0].period_s
    last: dict[str, tuple[float, float]] = {}
    where: dict[str, str] = {}
    started: dict[str, float] = {}
    restarted: set[str] = set()
    passing = _Passing()
    for at, record in zip(times(records), records, strict=True):
        share = passing.of(record)
        restarted |= {str(event.detail.get("instance")) for event in record.events if event.kind in RESTARTS}
        if record.repeated:
            continue
        for instance in record.snapshot.instances:
            name, manager = instance.id, instance.task_manager
            if where.get(name) != manager:
                restarted.add(name)
            where[name] = manager
            freshness = Freshness.of(instance)
            if not freshness.is_fresh:
                continue
            window = freshness.window
            since, until = (window[0] - first, window[1] - first) if window else (at - record.period_s, at)
            key = (since, until) if window else (instance.in_rate, instance.cpu)
            if last.get(name) == key or until <= since:
                continue
            last[name] = key
            if name in restarted or name not in started:
                started[name] = since
                restarted.discard(name)
            kept = float(instance.in_rate)
            read = kept / max(share.get(instance.task, 1.0), 1e-3)
            yield RecordedReading(
                name, instance.task, manager, since, until, at, started[name], kept, read, float(instance.cpu)
            )


def loads(records: Records) -> Iterator[Load]:
    """The task managers in each cycle."""
    for at, record in zip(times(records), records, strict=True):
        if record.repeated:
            continue
        for manager in record.snapshot.task_managers:
            mine = [each for each in record.snapshot.instances if each.task_manager == manager.id]
            used = sum(each.cpu for each in mine if not (Freshness.of(each).stale and each.warming_up))
            yield Load(manager.id, at, len(mine), max(manager.cpu - used, 0.0), float(manager.cpu))


class _Passing:
    """The share of the rows read that passed the shedders at the reading end, by task, from the row counts."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, int]] = {}
        self._share: dict[str, float] = {}

    def of(self, record: Record) -> Mapping[str, float]:
        """By task: over the rows reported since the record before; unchanged while there are none."""
        kept: dict[str, int] = {}
        read: dict[str, int] = {}
        for edge, count in record.measured.counts.items():
            task = edge.rpartition(">")[2]
            now = (count.processed, count.processed + count.dropped)
            before = self._before.get(edge, (0, 0))
            self._before[edge] = now
            kept[task] = kept.get(task, 0) + now[0] - before[0]
            read[task] = read.get(task, 0) + now[1] - before[1]
        self._share.update({task: kept[task] / rows for task, rows in read.items() if rows > 0})
        return self._share


def epoch(record: Record) -> float:
    """The instant of a record, seconds since 1970."""
    return record.at.timestamp()
