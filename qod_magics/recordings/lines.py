"""What a line of a recording tells: its tasks, its streams, what was measured, and what happened. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from qod_magics.recordings.phases import Line, Lines


def queries(line: Line) -> dict[str, Mapping[str, Any]]:
    """The queries of a line's snapshot (tasks with a minimum accuracy), by id."""
    return {task["id"]: task for task in line["snapshot"]["tasks"] if task.get("min_accuracy") is not None}


def sources(line: Line) -> tuple[str, ...]:
    """The tasks of a line's snapshot that read from the outside."""
    return tuple(task["id"] for task in line["snapshot"]["tasks"] if not task["upstream"])


def streams(line: Line) -> tuple[str, ...]:
    """The streams of a line's snapshot, as "from>to"."""
    return tuple(f"{stream['from']}>{stream['to']}" for stream in line["snapshot"]["streams"])


def events(lines: Lines, *kinds: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(index of the line, event) for the events of these kinds, of all kinds when none is named."""
    for index, line in enumerate(lines):
        for event in line.get("events") or ():
            if not kinds or event.get("kind") in kinds:
                yield index, event


def measured(line: Line, what: str) -> Mapping[str, Any]:
    """One of the measures of a line ("lag", "accuracy" ...), by source, stream or task; empty where it has none."""
    return (line.get("measured") or {}).get(what) or {}
