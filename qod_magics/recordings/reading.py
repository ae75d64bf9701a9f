"""Reads a whole recording, or the newest cycles of a session, and checks every line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from qod_magics.controller.record import Record, Records, instant, record_from_json
from qod_magics.controller.recording import RecordingError, read
from qod_magics.errors import QodError
from qod_magics.recordings.cycles import paused_after


def load(path: Path, since: datetime | None = None, say: Callable[[str], object] = lambda _: None) -> Records:
    """Return the records of a recording, in order; of several sessions that recorded in one file, those of the last.

    Args:
        path: the recording.
        since: only of a session that began then and appends to the file.
        say: receives a line where the file has several runs.

    Raises:
        RecordingError: that names file, line and field.
        OSError: the file can't be read.

    """
    records: list[Record] = []
    earlier = 0
    for number, line in enumerate(read(path), 1):
        try:
            record = record_from_json(line, number)
            if since is not None and not _is_since(record.at, since):
                continue
            if records and not record.repeated and record.number <= records[-1].number:
                records, earlier = [], earlier + 1  # each session counts its cycles from 1
            if records:
                _check_order(record.at, records[-1].at)
        except (QodError, ValueError) as error:
            raise RecordingError(f"{path}, cycle {number}: {error}") from None
        records.append(record)
    if not records and since is not None:
        raise _nothing_since(path, since)
    if not records:
        raise RecordingError(f"{path} is empty; record a run with --record {path}")
    if earlier:
        say(f"{path} holds {earlier + 1} runs: this is the last, of {len(records)} cycles since {_when(records[0].at)}")
    return records


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"


def _nothing_since(path: Path, since: datetime) -> RecordingError:
    """Return the error of a recording without a cycle of a session that began then."""
    return RecordingError(f"{path} has no cycle since {instant(since)}: wait for the first one")


def _is_since(at: datetime, since: datetime) -> bool:
    """Return whether a record is of then or later; recordings have milliseconds, and the zone unless they are of
    old."""
    return at.tzinfo is not None and at >= since.replace(microsecond=since.microsecond // 1000 * 1000)


def _check_order(at: datetime, previous: datetime) -> None:
    if (at.tzinfo is None) != (previous.tzinfo is None):
        raise ValueError(f"at is {at.isoformat()!r}: either all times name their zone, or none")
    if at < previous:
        raise ValueError(f"at is {instant(at)!r}, before the line above it: one recording holds one run")


def newest_records(path: Path, since: datetime, most: int) -> tuple[Records, frozenset[str]]:
    """Return the last `most` records of the session that began at `since`, or all if there are fewer, and the stages
    that were paused before the first of them. Older records are not kept in memory.

    Raises RecordingError that names file and line, also where there are none; OSError when the file can't be read.
    """
    lines: deque[tuple[int, Mapping[str, Any]]] = deque()
    paused: frozenset[str] = frozenset()
    for number, line in enumerate(read(path), 1):
        if _is_before(line, since):
            continue
        lines.append((number, line))
        if len(lines) > most:
            oldest = lines.popleft()
            if oldest[1].get("events"):
                paused = paused_after(paused, _record(path, *oldest).events)
    if not lines:
        raise _nothing_since(path, since)
    return [_record(path, *each) for each in lines], paused


def _is_before(line: Mapping[str, Any], since: datetime) -> bool:
    try:
        at = datetime.fromisoformat(line["at"])
    except (KeyError, TypeError, ValueError):
        return False  # refused where it is needed
    return not _is_since(at, since)


def _record(path: Path, number: int, line: Mapping[str, Any]) -> Record:
    try:
        return record_from_json(line, number)
    except (QodError, ValueError) as error:
        raise RecordingError(f"{path}, cycle {number}: {error}") from None
