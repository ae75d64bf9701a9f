"""Reading a recording whole, with every line checked as far as charts and verdict rely on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

from qod_magics.controller.recording import RecordingError, read
from qod_magics.core.snapshot_json import snapshot_from_json
from qod_magics.errors import QodError
from qod_magics.recordings.phases import Lines


def load(path: Path) -> Lines:
    """The lines of a recording, checked as far as charts and verdict rely on them.

    Raises RecordingError that names file, line and field, OSError when the file can't be read.
    """
    lines: list[dict[str, Any]] = []
    previous: datetime | None = None
    for number, line in enumerate(read(path), 1):
        try:
            previous = _check(line, previous)
        except (QodError, ValueError) as error:
            raise RecordingError(f"{path}, cycle {number}: {error}") from None
        lines.append(line)
    if not lines:
        raise RecordingError(f"{path} is empty; record a run with --record {path}")
    return lines


def _check(line: Mapping[str, Any], previous: datetime | None) -> datetime:
    """The instant of the line; ValueError or SnapshotError for what breaks the format."""
    at = line.get("at")
    try:
        instant = datetime.fromisoformat(at)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"at is {at!r}, not a time such as 2026-11-21T02:00:05.000Z") from None
    if previous is not None:
        if (instant.tzinfo is None) != (previous.tzinfo is None):
            raise ValueError(f"at is {at!r}: either all times name their zone, or none")
        if instant < previous:
            raise ValueError(f"at is {at!r}, before the line above it: one recording holds one run")
    snapshot_from_json(line.get("snapshot"))
    plan = _object(line, "plan")
    for key in ("current_accuracy", "desired"):
        _numbers(_object(plan, key, "plan."), f"plan.{key}")
    for row in _list(plan, "non_drop", "plan."):
        if not isinstance(row, Mapping) or not {"from", "to", "d"} <= row.keys():
            raise ValueError(f"plan.non_drop has {row!r}, not an object with from, to and d")
    measured = _object(line, "measured")
    for key in ("lag", "dropped"):
        _numbers(_object(measured, key, "measured."), f"measured.{key}")
    for key in ("input_rate", "accuracy"):
        _numbers(_object(measured, key, "measured."), f"measured.{key}", unknown=True)
    for name, count in _object(measured, "counts", "measured.").items():
        field = f"measured.counts[{name!r}]"
        _numbers(_object({field: count}, field), field)
        if absent := {"arrived", "processed", "dropped", "waiting"} - count.keys():
            raise ValueError(f"{field} lacks {', '.join(sorted(absent))}")
    for event in _list(line, "events"):
        if not isinstance(event, Mapping) or not isinstance(event.get("kind"), str):
            raise ValueError(f"events has {event!r}, not an object with a kind")
        _numbers({"took_s": event.get("took_s")}, "events", unknown=True)
    _numbers({"period_s": line.get("period_s")}, "the line", unknown=True)
    return instant


def _object(holder: Mapping[str, Any], key: str, prefix: str = "") -> Mapping[str, Any]:
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{prefix}{key} is {str(value)[:40]!r}, not an object")
    return value


def _list(holder: Mapping[str, Any], key: str, prefix: str = "") -> Sequence[Any]:
    value = holder.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError(f"{prefix}{key} is {str(value)[:40]!r}, not a list")
    return value


def _numbers(values: Mapping[str, Any], field: str, unknown: bool = False) -> None:
    """ValueError for what is no finite number; null is one where the value may be `unknown`."""
    for name, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        if not number and not (unknown and value is None):
            raise ValueError(f"{field} has {name}: {value!r}, not a number")
