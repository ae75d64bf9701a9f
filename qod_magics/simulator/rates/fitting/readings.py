"""The data of a fit: reports of instances, loads of task managers, and durations of moves in a recording. Pure.

Times are seconds since the start of the fitted simulation: the first record ends the first controller period.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from qod_magics.controller.record import Record, Records
from qod_magics.core.snapshot import Freshness, Instance
from qod_magics.kafka.scenario import PiecewiseLinear

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
        """Return the time from the start of its run to the middle of its window, seconds."""
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


# --- Curves of input rates and background loads -----------------------------------------------------------------------

Point = tuple[float, float]

#: Weight of second differences (smoothness) against residuals.
_SMOOTHING = 0.15

#: Cycles whose mean rates differ by no more than this share form one level.
LEVEL = 0.04
#: Cycles between two levels up to which the change is a step; beyond, it is a ramp.
_JUMP = 2


def rate_curve(ends: Sequence[float], means: Sequence[float]) -> PiecewiseLinear:
    """Return the rate whose means over the cycles that end at these seconds are `means`, rows/s.

    Levels are constant, and between two of them lies a jump that preserves the number of rows, or a ramp.
    """
    if not ends:
        return PiecewiseLinear.constant(0.0)
    starts = [max(ends[0] - (ends[1] - ends[0] if len(ends) > 1 else ends[0]), 0.0), *ends[:-1]]
    points: list[Point] = []
    runs = _levels(means)
    for number, (first, last) in enumerate(runs):
        level = median(means[first : last + 1])
        if not number:
            points += [((starts[i] + ends[i]) / 2, means[i]) for i in range(first)]
        begin, end = starts[first], ends[last]
        if number:
            begin = _join(points, starts, ends, means, (runs[number - 1], (first, last)), level)
        points += [(begin, level), (max(end, begin), level)]
    tail = runs[-1][1] + 1 if runs else 0
    points += [((starts[i] + ends[i]) / 2, means[i]) for i in range(tail, len(ends))]
    return PiecewiseLinear(tuple(_tidy(points)))


def _join(
    points: list[Point],
    starts: Sequence[float],
    ends: Sequence[float],
    means: Sequence[float],
    runs: tuple[tuple[int, int], tuple[int, int]],
    level: float,
) -> float:
    """Return where the next level begins; the points of a ramp to it are appended."""
    (_, last), (first, _) = runs
    between = range(last + 1, first)
    before = points[-1][1]
    if len(between) > _JUMP:
        points += [((starts[i] + ends[i]) / 2, means[i]) for i in between]
        return starts[first]
    begin, end = ends[last], starts[first]
    rows = sum(means[i] * (ends[i] - starts[i]) for i in between)
    share = (level * (end - begin) - rows) / (level - before) if level != before else 0.0
    jump = begin + min(max(share, 0.0), end - begin)
    points[-1] = (jump, before)
    return jump


def _levels(means: Sequence[float]) -> list[tuple[int, int]]:
    """Return (first, last) of each run of at least two cycles at one level."""
    found: list[tuple[int, int]] = []
    first = 0
    for i in range(1, len(means) + 1):
        if i < len(means):
            level = median(means[first:i])
            if abs(means[i] - level) <= max(LEVEL * level, 1.0):
                continue
        if i - first >= 2:
            found.append((first, i - 1))
        first = i
    return found


def _tidy(points: Sequence[Point]) -> list[Point]:
    """Return points in order, without negative rates or repeated points, and at most two at a second."""
    kept: list[Point] = []
    for second, rate in points:
        point = (round(max(second, kept[-1][0] if kept else 0.0), 3), max(rate, 0.0))
        if len(kept) >= 2 and kept[-1][0] == kept[-2][0] == point[0]:
            kept.pop()
        if kept and kept[-1] == point:
            continue
        kept.append(point)
    return kept


def unaveraged(means: Sequence[float], over: int) -> list[float]:
    """Return the values whose running means over the last `over` (at the start: fewer) are `means`, smoothed."""
    count = len(means)
    if count < 2 or over < 2:
        return list(means)
    averaging = np.zeros((count, count))
    for row in range(count):
        first = max(row - over + 1, 0)
        averaging[row, first : row + 1] = 1.0 / (row + 1 - first)
    bends = np.diff(np.eye(count), 2, axis=0) * _SMOOTHING
    found = np.linalg.lstsq(np.vstack((averaging, bends)), np.append(means, np.zeros(len(bends))), rcond=None)[0]
    return [float(value) for value in found]


def load_curve(points: Sequence[Point], tolerance: float) -> PiecewiseLinear:
    """Return a curve through noisy points: their running median of three, with no more corners than `tolerance`
    needs."""
    if not points:
        return PiecewiseLinear.constant(0.0)
    padded = [points[0], *points, points[-1]]
    smooth = [
        (padded[i][0], max(median(value for _, value in padded[i - 1 : i + 2]), 0.0)) for i in range(1, len(padded) - 1)
    ]
    merged: list[Point] = []
    for second, value in smooth:
        if not merged or second > merged[-1][0]:
            merged.append((max(second, 0.0), value))
    return PiecewiseLinear(tuple((round(s, 3), round(v, 6)) for s, v in _thin(merged, tolerance)))


def _thin(points: list[Point], tolerance: float) -> list[Point]:
    """Simplify points (Ramer-Douglas-Peucker), with distances along the y axis."""
    if len(points) < 3:
        return points
    (t0, v0), (t1, v1) = points[0], points[-1]
    off = [abs(v - (v0 + (v1 - v0) * (t - t0) / (t1 - t0))) for t, v in points]
    far = max(range(len(points)), key=off.__getitem__)
    if off[far] <= tolerance:
        return [points[0], points[-1]]
    return [*_thin(points[: far + 1], tolerance)[:-1], *_thin(points[far:], tolerance)]
