"""Reads a whole recording, and checks every line."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from qod_magics.controller.record import Record, Records
from qod_magics.controller.record_json import instant, record_from_json
from qod_magics.controller.recording import RecordingError, read
from qod_magics.errors import QodError


def load(path: Path, since: datetime | None = None) -> Records:
    """The records of a recording, in order; with `since` those of a session that began then and appends to the file.

    Raises RecordingError that names file, line and field, OSError when the file can't be read.
    """
    records: list[Record] = []
    for number, line in enumerate(read(path), 1):
        try:
            record = record_from_json(line, number)
            if since is not None and not _is_since(record.at, since):
                continue
            if records:
                _check_order(record.at, records[-1].at)
        except (QodError, ValueError) as error:
            raise RecordingError(f"{path}, cycle {number}: {error}") from None
        records.append(record)
    if not records and since is not None:
        raise RecordingError(f"{path} has no cycle since {instant(since)}: wait for the first one")
    if not records:
        raise RecordingError(f"{path} is empty; record a run with --record {path}")
    return records


def _is_since(at: datetime, since: datetime) -> bool:
    """Whether a record is of then or later; recordings have milliseconds, and the zone unless they are of old."""
    return at.tzinfo is not None and at >= since.replace(microsecond=since.microsecond // 1000 * 1000)


def _check_order(at: datetime, previous: datetime) -> None:
    if (at.tzinfo is None) != (previous.tzinfo is None):
        raise ValueError(f"at is {at.isoformat()!r}: either all times name their zone, or none")
    if at < previous:
        raise ValueError(f"at is {instant(at)!r}, before the line above it: one recording holds one run")
