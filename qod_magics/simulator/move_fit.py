"""How long moves took, out of a recording: until an instance stopped, and without work. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from qod_magics.recordings.phases import Line, Lines, is_repeated
from qod_magics.simulator.readings import RecordedReading, epoch, times

#: An instance that works on for longer than this after the plan waits for the end of its batch, seconds.
WAITS_S = 0.5


@dataclass(frozen=True, slots=True)
class MoveTimes:
    """Of the moves of a recording."""

    count: int
    down_s: float  #: mean without work
    spread: float | None  #: half the range by the mean; None: of too few
    waits: bool  #: whether instances go on until their batch ends


def move_times(lines: Lines, readings: Sequence[RecordedReading]) -> MoveTimes | None:
    """From the windows of reports where these tell, else from what moves say of themselves; None without a move.

    Where the last report of a run is of its end, the time from there to the first window of the next run is the whole
    of the time without work; `took_s` of a move is only what stopping and starting took.
    """
    told = [
        float(event["took_s"])
        for line in lines
        for event in line.get("events") or ()
        if event.get("kind") == "move" and event.get("took_s") is not None
    ]
    seen = list(_seen(lines, readings))
    down = [gap for gap, _ in seen] or told
    if not down:
        return None
    mean = fmean(down)
    spread = (max(down) - min(down)) / (2 * mean) if len(down) > 2 and mean > 0 else None
    return MoveTimes(len(told) or len(seen), mean, spread, bool(seen) and fmean(w for _, w in seen) > WAITS_S)


def lost_cpu(lines: Lines) -> bool:
    """Whether the CPU of instances that moved is mostly unknown until they report again."""
    rows = [row for line in lines for row in line["snapshot"]["instances"] if _held(row)]
    return bool(rows) and 2 * sum("cpu" in (row.get("missing") or ()) for row in rows) > len(rows)


def _seen(lines: Lines, readings: Sequence[RecordedReading]) -> Iterator[tuple[float, float]]:
    """(seconds without work, seconds from the plan to the stop) of each move whose end is in a report."""
    first = times(lines)[0] - epoch(lines[0])
    for at, line in zip(times(lines), lines, strict=True):
        plan = line.get("plan") or {}
        if not line.get("applied") or is_repeated(line):
            continue
        for name in plan.get("fail") or ():
            target = (plan.get("place") or {}).get(name)
            after = next((r for r in readings if r.instance == name and r.manager == target and r.seen_s > at), None)
            ends = [
                row["window"][1] + first
                for later, other in zip(times(lines), lines, strict=True)
                if after is not None and at < later < after.seen_s
                for row in other["snapshot"]["instances"]
                if row["id"] == name and row["task_manager"] == target and _held(row)
            ]
            if after is not None and ends and after.started_s >= ends[-1]:
                yield after.started_s - ends[-1], ends[-1] - at


def _held(row: Line) -> bool:
    """Whether a row of a snapshot shows the last report of a run that is over."""
    return bool(row.get("stale") and row.get("warming_up") and row.get("window"))
