"""The data of a fit: reports of instances, loads of task managers, and durations of moves in a recording. Pure.

Times are seconds since the start of the fitted simulation: the first record ends the first controller period.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from qod_magics.controller.record import Record, Records
from qod_magics.core.freshness import Freshness
from qod_magics.core.snapshot import Instance

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
    """Return the instant of each record, seconds since one period before the first."""
    first = epoch(records[0]) - records[0].period_s
    return tuple(epoch(record) - first for record in records)


def readings(records: Records) -> Iterator[RecordedReading]:
    """Yield every report once, in order of first appearance, without those that lack a measured rate or CPU."""
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
    """Yield the task managers in each cycle."""
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
        """Return the shares by task: over the rows reported since the record before; unchanged while there are none."""
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
    """Return the instant of a record, seconds since 1970."""
    return record.at.timestamp()


#: Mean time from plan to stop above which instances finish their batch first, seconds.
_WAITS_S = 0.5


@dataclass(frozen=True, slots=True)
class MoveTimes:
    """The durations of the moves of a recording."""

    count: int
    down_s: float  #: mean downtime
    spread: float | None  #: half the range by the mean; None: too few moves
    waits: bool  #: whether instances finish their batch first


def move_times(records: Records, readings: Sequence[RecordedReading]) -> MoveTimes | None:
    """Return durations of moves from the windows of reports where possible, else from `took_s` of the move events; None
    without a move.

    Where the last report of a run covers its end, the gap to the first window of the next run is the whole downtime;
    `took_s` of a move covers only stopping and starting.
    """
    told = [
        float(event.detail["took_s"])
        for record in records
        for event in record.events
        if event.kind == "move" and event.detail.get("took_s") is not None
    ]
    seen = list(_seen(records, readings))
    down = [gap for gap, _ in seen] or told
    if not down:
        return None
    mean = fmean(down)
    spread = (max(down) - min(down)) / (2 * mean) if len(down) > 2 and mean > 0 else None
    return MoveTimes(len(told) or len(seen), mean, spread, bool(seen) and fmean(w for _, w in seen) > _WAITS_S)


def lost_cpu(records: Records) -> bool:
    """Return whether the CPU of instances that moved is mostly unknown until they report again."""
    held = [each for record in records for each in record.snapshot.instances if _held(each)]
    return bool(held) and 2 * sum("cpu" in Freshness.of(each).missing for each in held) > len(held)


def _seen(records: Records, readings: Sequence[RecordedReading]) -> Iterator[tuple[float, float]]:
    """Yield (downtime, seconds from the plan to the stop) of each move whose stop is in a report."""
    first = times(records)[0] - epoch(records[0])
    for at, record in zip(times(records), records, strict=True):
        if not record.applied or record.repeated:
            continue
        for move in record.plan.moves:
            name, target = move.instance, move.to
            after = next((r for r in readings if r.instance == name and r.manager == target and r.seen_s > at), None)
            ends = [
                window[1] + first
                for later, other in zip(times(records), records, strict=True)
                if after is not None and at < later < after.seen_s
                for each in other.snapshot.instances
                if each.id == name and each.task_manager == target and _held(each)
                if (window := each.window) is not None
            ]
            if after is not None and ends and after.started_s >= ends[-1]:
                yield after.started_s - ends[-1], ends[-1] - at


def _held(instance: Instance) -> bool:
    """Return whether an instance still shows the last report of an ended run."""
    freshness = Freshness.of(instance)
    return freshness.stale and instance.warming_up and freshness.window is not None
