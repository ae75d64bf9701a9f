"""The newest cycles of a session, from a recording that may be of days."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from qod_magics.controller.record import Record, Records
from qod_magics.controller.record_json import record_from_json
from qod_magics.controller.recording import RecordingError, read
from qod_magics.errors import QodError
from qod_magics.recordings.reading import is_since, nothing_since
from qod_magics.recordings.stages import paused_after


def newest_records(path: Path, since: datetime, most: int) -> tuple[Records, frozenset[str]]:
    """The last `most` records of the session that began at `since`, or all if there are fewer, and the stages that were
    paused before the first of them. Older records are not kept in memory.

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
        raise nothing_since(path, since)
    return [_record(path, *each) for each in lines], paused


def _is_before(line: Mapping[str, Any], since: datetime) -> bool:
    try:
        at = datetime.fromisoformat(line["at"])
    except (KeyError, TypeError, ValueError):
        return False  # refused where it is needed
    return not is_since(at, since)


def _record(path: Path, number: int, line: Mapping[str, Any]) -> Record:
    try:
        return record_from_json(line, number)
    except (QodError, ValueError) as error:
        raise RecordingError(f"{path}, cycle {number}: {error}") from None
