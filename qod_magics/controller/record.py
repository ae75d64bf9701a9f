"""One line of a recording: a cycle as it was measured, decided and carried out, and its JSON. Pure."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from qod_magics.controller.log import Cycle, Decision
from qod_magics.core.json_form import plan_from_json, plan_to_json, snapshot_from_json, snapshot_to_json
from qod_magics.core.plan import Edge, Plan
from qod_magics.core.runtime import MISFITS, Count, Dials, Event, Measured
from qod_magics.core.snapshot import Snapshot, nothing
from qod_magics.errors import QodError

DEFAULT_PERIOD_S = 5.0


@dataclass(frozen=True, slots=True)
class Record:
    """What a recording keeps of a cycle. Older recordings lack some of it: such fields have a default."""

    at: datetime  #: when the cycle began
    snapshot: Snapshot
    plan: Plan
    measured: Measured
    dials: Dials  #: the settings that carried out the plan
    current_accuracy: Mapping[str, float] = field(default_factory=nothing)  #: by task, as measured
    events: tuple[Event, ...] = ()  #: of the cluster and of the controller, since the record before
    applied: bool = False  #: whether the plan is known to be in force
    applied_s: float = 0.0  #: seconds from `at` until it was
    number: int = 0  #: of the cycle; 1 is the first
    period_s: float = DEFAULT_PERIOD_S
    policy: str | None = None  #: the name of the policy; None: the recording does not say
    policy_ms: float = 0.0  #: time to decide, milliseconds
    repeated: bool = False  #: carries late events only: all else repeats the record before
    annotations: Mapping[str, Any] = field(default_factory=nothing)  #: further keys of the run, `phase` for one

    @property
    def phase(self) -> str:
        """The part of its script that the run was in; "" where it followed none."""
        return str(self.annotations.get("phase") or "")


Records = Sequence[Record]


def record_of(cycle: Cycle, decision: Decision, events: Sequence[Event], repeated: bool = False) -> Record:
    """The record of a cycle with its decision. `events` are those that have not been recorded before."""
    return Record(
        at=cycle.at,
        snapshot=decision.snapshot,
        plan=decision.plan,
        measured=decision.measured,
        dials=decision.dials,
        current_accuracy=decision.current_accuracy,
        events=tuple(events),
        applied=cycle.applied,
        applied_s=cycle.applied_s,
        number=cycle.number,
        period_s=cycle.period_s,
        policy=decision.policy,
        policy_ms=decision.policy_ms,
        repeated=repeated,
        annotations=cycle.annotations,
    )


#: keys of a line that annotations can't use
RESERVED = frozenset(
    {
        "at",
        "snapshot",
        "plan",
        "applied",
        "measured",
        "events",
        "cycle",
        "period_s",
        "policy",
        "policy_ms",
        "applied_s",
        "dials",
        "repeated",
    }
)

_NO_PLAN: Mapping[str, Any] = {
    "current_accuracy": {},
    "desired": {},
    "non_drop": [],
    "fail": [],
    "place": {},
    "starved": [],
}
_MEASURED = ("lag", "input_rate", "accuracy", "dropped", "counts", "latency_s", "late")


def record_to_json(record: Record) -> dict[str, Any]:
    """The line of `record`: the keys of the format first, then what this controller adds."""
    return {
        "at": instant(record.at),
        "snapshot": snapshot_to_json(record.snapshot),
        "plan": plan_to_json(record.plan, record.current_accuracy),
        "applied": record.applied,
        "measured": record.measured.to_json(),
        "events": [event.to_json() for event in record.events],
        "cycle": record.number,
        "period_s": record.period_s,
        "policy": record.policy,
        "policy_ms": record.policy_ms,
        "applied_s": round(record.applied_s, 3),
        "dials": _dials_to_json(record.dials),
        **record.annotations,
        **({"repeated": True} if record.repeated else {}),
    }


def record_from_json(line: Mapping[str, Any], number: int = 1) -> Record:
    """The record that a line of a recording describes, checked; `number`: of its cycle, if the line has none.

    Raises SnapshotError for a snapshot or a plan that breaks the format, ValueError for the rest of the line; both name
    the field.
    """
    plan_line = {**_NO_PLAN, **_object(line, "plan")}
    plan = _plan(plan_line)
    policy = line.get("policy")
    return Record(
        at=_at(line.get("at")),
        snapshot=snapshot_from_json(line.get("snapshot")),
        plan=plan,
        measured=_measured(_object(line, "measured")),
        dials=_dials(line.get("dials"), plan),
        current_accuracy=dict(plan_line["current_accuracy"]),
        events=tuple(_event(event) for event in _list(line, "events")),
        applied=bool(line.get("applied")),
        applied_s=_number(line, "applied_s") or 0.0,
        number=int(_number(line, "cycle") or number),
        period_s=_number(line, "period_s") or DEFAULT_PERIOD_S,
        policy=str(policy) if policy else None,
        policy_ms=_number(line, "policy_ms") or 0.0,
        repeated=bool(line.get("repeated")),
        annotations={key: value for key, value in line.items() if key not in RESERVED},
    )


def _dials_to_json(dials: Dials) -> dict[str, Any]:
    """The JSON form of dials: `keep` as a list of {"from", "to", "d"} like a plan's `non_drop`, `accept` by task."""
    keep = [{"from": source, "to": target, "d": d} for (source, target), d in dials.keep.items()]
    return {"keep": keep, "accept": dict(dials.accept)}


def instant(at: datetime) -> str:
    """ISO 8601 in UTC to the millisecond: 2026-11-21T02:00:05.000Z."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _at(value: Any) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"at is {value!r}, not a time such as 2026-11-21T02:00:05.000Z") from None


def _plan(line: Mapping[str, Any]) -> Plan:
    for key in ("current_accuracy", "desired"):
        _numbers(_object(line, key, "plan."), f"plan.{key}")
    _edges(_list(line, "non_drop", "plan."), "plan.non_drop")
    return plan_from_json(line)


def _dials(line: Any, plan: Plan) -> Dials:
    """The line's dials; the plan's own where it has none."""
    if not isinstance(line, Mapping):
        return Dials(plan.non_drop, plan.desired)
    accept = _object(line, "accept", "dials.")
    _numbers(accept, "dials.accept")
    return Dials(_edges(_list(line, "keep", "dials."), "dials.keep"), dict(accept))


def _edges(rows: Sequence[Any], field: str) -> dict[Edge, float]:
    for row in rows:
        if not isinstance(row, Mapping) or not {"from", "to", "d"} <= row.keys():
            raise ValueError(f"{field} has {row!r}, not an object with from, to and d")
    return {(row["from"], row["to"]): row["d"] for row in rows}


def _measured(line: Mapping[str, Any]) -> Measured:
    known = {key: _object(line, key, "measured.") for key in _MEASURED}
    for key, values in known.items():
        if key != "counts":
            _numbers(values, f"measured.{key}", unknown=key in ("input_rate", "accuracy", "latency_s"))
    return Measured(
        lag=dict(known["lag"]),
        input_rate={name: rate for name, rate in known["input_rate"].items() if rate is not None},
        accuracy=dict(known["accuracy"]),
        dropped=dict(known["dropped"]),
        counts={name: _count(f"measured.counts[{name!r}]", count) for name, count in known["counts"].items()},
        latency_s=dict(known["latency_s"]),
        late=dict(known["late"]),
        unknown={key: value for key, value in line.items() if key not in _MEASURED},
    )


def _count(field: str, line: Any) -> Count:
    rows = _object({field: line}, field)
    _numbers(rows, field)
    if absent := {"arrived", "processed", "dropped", "waiting"} - rows.keys():
        raise ValueError(f"{field} lacks {', '.join(sorted(absent))}")
    return Count(
        rows["arrived"],
        rows["processed"],
        rows["dropped"],
        rows["waiting"],
        rows.get("unreported", 0),
        *(rows.get(kind, 0) for kind in MISFITS),
    )


def _event(line: Any) -> Event:
    if not isinstance(line, Mapping) or not isinstance(line.get("kind"), str):
        raise ValueError(f"events has {line!r}, not an object with a kind")
    _numbers({"took_s": line.get("took_s")}, "events", unknown=True)
    return Event(line["kind"], {key: value for key, value in line.items() if key != "kind"})


def _number(line: Mapping[str, Any], key: str) -> float | None:
    value: float | None = line.get(key)
    _numbers({key: value}, "the line", unknown=True)
    return value


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
    """Raise ValueError for a value that is no finite number; null passes if it may be `unknown`."""
    for name, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        if not number and not (unknown and value is None):
            raise ValueError(f"{field} has {name}: {value!r}, not a number")


# --- Recordings: one JSON object a line, one line a cycle -------------------------------------------------------------


class RecordingError(QodError, ValueError):
    """A recording that can't be read; the message names the file and the line."""


class Recording:
    """Appends to a file; each line is in it, whole, when `append` returns.

    The file and the directories above it are made at the first line. An existing file is continued; an unfinished last
    line is terminated first, so that it can't swallow ours. A path is meant as of now: `~` is the user's home, and
    another working directory later on changes nothing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().absolute()
        self._file: int | None = None

    def __repr__(self) -> str:
        return f"recording that is appended to {self.path}"

    def append(self, line: Mapping[str, Any]) -> None:
        """Write one line. Floats keep their full precision; NaN and infinities become null.

        Raises OSError when it can't be written (no space, no permission); nothing of the line is left in the file
        then, and the next call tries again from the start.
        """
        data = dumps(line).encode() + b"\n"
        try:
            file = self._file = self._open() if self._file is None else self._file
            size = os.fstat(file).st_size
            try:
                while data:
                    data = data[os.write(file, data) :]
            except OSError:
                with suppress(OSError):  # a device has no length
                    os.ftruncate(file, size)
                raise
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; a later `append` opens it again."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            os.write(file, b"\n")
        return file


def dumps(line: Mapping[str, Any]) -> str:
    """`line` as JSON on one line, without NaN and infinities."""
    try:
        return json.dumps(line, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:
        return json.dumps(_finite(line), ensure_ascii=False, allow_nan=False)


def read(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The lines of a recording, in order; empty lines are skipped.

    Raises RecordingError at the line that is no JSON object, after the ones before it, and OSError when the file
    can't be read.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                found = json.loads(text)
            except ValueError as error:
                cut = "" if text.endswith("\n") else "; the line is cut off: its writer was stopped, remove it"
                raise RecordingError(f"{path} line {number}: no JSON ({error}){cut}") from None
            if not isinstance(found, dict):
                raise RecordingError(f"{path} line {number}: {text.strip()[:40]!r} is no JSON object")
            yield found


def _plain(value: Any) -> Any:
    """What `json` doesn't know: mappings, numbers of numpy, sets; anything else as its `str`."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    if value is None or isinstance(value, (str, int, bool)):
        return value
    return _finite(_plain(value))
