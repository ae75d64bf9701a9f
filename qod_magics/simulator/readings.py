"""What a recording says of each instance and task manager, one row a report: the data of a fit. Pure.

Times are seconds since the start of the simulation that is to be like the recording: its first line ends the first
controller period.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from qod_magics.recordings.phases import Line, Lines, is_repeated, period_s

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
    started_s: float  #: when the run that it is of began, as far as its reports say
    kept: float  #: rows/s after the shedders
    read: float  #: rows/s before those at the reading end
    cpu: float  #: % of one core

    @property
    def length_s(self) -> float:
        """Of its window."""
        return self.at_s - self.since_s

    @property
    def age_s(self) -> float:
        """From the start of its run to the middle of its window."""
        return (self.since_s + self.at_s) / 2 - self.started_s


@dataclass(frozen=True, slots=True)
class Load:
    """One task manager at one line."""

    manager: str
    at_s: float
    instances: int
    others: float  #: % of one core: its CPU that is no task's
    cpu: float  #: % of one core: all of it


def times(lines: Lines) -> tuple[float, ...]:
    """The instant of each line, seconds since one period before the first."""
    first = epoch(lines[0]) - period_s(lines[0])
    return tuple(epoch(line) - first for line in lines)


def readings(lines: Lines) -> Iterator[RecordedReading]:
    """Every report once, in order of the lines that show it first; those without a measured rate or CPU are none."""
    first = epoch(lines[0]) - period_s(lines[0])
    last: dict[str, tuple[Any, ...]] = {}
    where: dict[str, str] = {}
    started: dict[str, float] = {}
    restarted: set[str] = set()
    passing = _Passing()
    for at, line in zip(times(lines), lines, strict=True):
        share = passing.of(line)
        restarted |= {str(e.get("instance")) for e in line.get("events") or () if e.get("kind") in RESTARTS}
        if is_repeated(line):
            continue
        for row in line["snapshot"]["instances"]:
            name, manager = row["id"], row["task_manager"]
            if where.get(name) != manager:
                restarted.add(name)
            where[name] = manager
            if row.get("stale") or row.get("missing"):
                continue
            window = row.get("window")
            since, until = (window[0] - first, window[1] - first) if window else (at - period_s(line), at)
            key = (since, until) if window else (row["in_rate"], row["cpu"])
            if last.get(name) == key or until <= since:
                continue
            last[name] = key
            if name in restarted or name not in started:
                started[name] = since
                restarted.discard(name)
            kept = float(row["in_rate"])
            read = kept / max(share.get(row["task"], 1.0), 1e-3)
            yield RecordedReading(
                name, row["task"], manager, since, until, at, started[name], kept, read, float(row["cpu"])
            )


def loads(lines: Lines) -> Iterator[Load]:
    """The task managers at each line."""
    for at, line in zip(times(lines), lines, strict=True):
        if is_repeated(line):
            continue
        for manager in line["snapshot"]["task_managers"]:
            mine = [row for row in line["snapshot"]["instances"] if row["task_manager"] == manager["id"]]
            used = sum(row["cpu"] for row in mine if not (row.get("stale") and row.get("warming_up")))
            yield Load(manager["id"], at, len(mine), max(manager["cpu"] - used, 0.0), float(manager["cpu"]))


class _Passing:
    """The share of the rows read that passed the shedders at the reading end, by task, from the books."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, int]] = {}
        self._share: dict[str, float] = {}

    def of(self, line: Line) -> Mapping[str, float]:
        """By task: over the rows that were reported since the line before; held while there were none."""
        kept: dict[str, int] = {}
        read: dict[str, int] = {}
        for edge, count in ((line.get("measured") or {}).get("counts") or {}).items():
            task = edge.rpartition(">")[2]
            now = (int(count["processed"]), int(count["processed"] + count["dropped"]))
            before = self._before.get(edge, (0, 0))
            self._before[edge] = now
            kept[task] = kept.get(task, 0) + now[0] - before[0]
            read[task] = read.get(task, 0) + now[1] - before[1]
        self._share.update({task: kept[task] / rows for task, rows in read.items() if rows > 0})
        return self._share


def epoch(line: Line) -> float:
    """The instant of a line, seconds since 1970."""
    return datetime.fromisoformat(line["at"]).timestamp()
