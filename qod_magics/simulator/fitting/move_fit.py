"""Durations of moves from a recording: the time until an instance stopped, and its downtime. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from qod_magics.controller.record import Records
from qod_magics.core.freshness import Freshness, window_of
from qod_magics.core.snapshot import Instance
from qod_magics.simulator.fitting.readings import RecordedReading, epoch, times

#: Mean time from plan to stop above which instances finish their batch first, seconds.
WAITS_S = 0.5


@dataclass(frozen=True, slots=True)
class MoveTimes:
    """The durations of the moves of a recording."""

    count: int
    down_s: float  #: mean downtime
    spread: float | None  #: half the range by the mean; None: too few moves
    waits: bool  #: whether instances finish their batch first


def move_times(records: Records, readings: Sequence[RecordedReading]) -> MoveTimes | None:
    """From the windows of reports where possible, else from `took_s` of the move events; None without a move.

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
    return MoveTimes(len(told) or len(seen), mean, spread, bool(seen) and fmean(w for _, w in seen) > WAITS_S)


def lost_cpu(records: Records) -> bool:
    """Whether the CPU of instances that moved is mostly unknown until they report again."""
    held = [each for record in records for each in record.snapshot.instances if _held(each)]
    return bool(held) and 2 * sum("cpu" in Freshness.of(each).missing for each in held) > len(held)


def _seen(records: Records, readings: Sequence[RecordedReading]) -> Iterator[tuple[float, float]]:
    """(downtime, seconds from the plan to the stop) of each move whose stop is in a report."""
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
                if (window := window_of(each)) is not None
            ]
            if after is not None and ends and after.started_s >= ends[-1]:
                yield after.started_s - ends[-1], ends[-1] - at


def _held(instance: Instance) -> bool:
    """Whether an instance still shows the last report of an ended run."""
    freshness = Freshness.of(instance)
    return freshness.stale and instance.warming_up and freshness.window is not None
