"""One line of a recording: a cycle as it was measured, decided and carried out, and its JSON. Pure."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from sys import float_info
from typing import Annotated, Any, TypeAlias, cast

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

from qod_magics.controller.log import Cycle, Decision
from qod_magics.core.json_form import keys, plan_from_json, plan_to_json, snapshot_from_json, snapshot_to_json
from qod_magics.core.json_form import read as read_struct
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Count, Dials, Event, Measured
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
        """Return the part of its script that the run was in; "" where it followed none."""
        return str(self.annotations.get("phase") or "")


Records = Sequence[Record]


def record_of(cycle: Cycle, decision: Decision, events: Sequence[Event], repeated: bool = False) -> Record:
    """Return the record of a cycle with its decision. `events` are those that have not been recorded before."""
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


Number: TypeAlias = int | Annotated[float, Meta(ge=-float_info.max, le=float_info.max)]  #: finite
_Numbers: TypeAlias = dict[str, Number] | None
_OrUnknown: TypeAlias = dict[str, Number | None] | None


class _Kept(Struct):
    source: str | None = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    d: Number


class _Dials(Struct):
    keep: tuple[_Kept, ...] | None = None
    accept: _Numbers = None


class _Rows(Struct):
    arrived: int
    processed: int
    dropped: int
    waiting: int
    unreported: int = 0
    malformed: int = 0
    tombstones: int = 0
    implausible: int = 0
    read_again: int = 0
    sent_again: int = 0


class _Measured(Struct):
    lag: _Numbers = None
    input_rate: _OrUnknown = None
    accuracy: _OrUnknown = None
    dropped: _Numbers = None
    counts: dict[str, _Rows] | None = None
    latency_s: _OrUnknown = None
    late: _Numbers = None


class _Event(Struct):
    kind: str
    took_s: Number | None = None


class _Line(Struct):
    """A line of a recording. The snapshot and the plan have forms of their own; other keys are annotations."""

    at: datetime
    snapshot: Any
    plan: dict[str, Any] | None = None
    applied: Any = False
    measured: _Measured | None = None
    events: tuple[_Event, ...] | None = None
    cycle: Number | None = None
    period_s: Number | None = None
    policy: Any = None
    policy_ms: Number | None = None
    applied_s: Number | None = None
    dials: _Dials | None = None
    repeated: Any = False


#: keys of a line that annotations can't use
RESERVED = keys(_Line)

_NO_PLAN: Mapping[str, Any] = {
    "current_accuracy": {},
    "desired": {},
    "non_drop": [],
    "fail": [],
    "place": {},
    "starved": [],
}


def record_to_json(record: Record) -> dict[str, Any]:
    """Return the line of `record`: the keys of the format first, then what this controller adds."""
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
    """Return the record that a line of a recording describes, checked; `number`: of its cycle, if the line has none.

    Raises SnapshotError, with the field, its value and what to do.
    """
    form = read_struct(_Line, line, "the line")
    plan_line = {**_NO_PLAN, **(form.plan or {})}
    plan = plan_from_json(plan_line)
    return Record(
        at=form.at,
        snapshot=snapshot_from_json(form.snapshot),
        plan=plan,
        measured=_measured(form.measured or _Measured(), line.get("measured") or {}),
        dials=_dials(form.dials, plan),
        current_accuracy=dict(plan_line["current_accuracy"]),
        events=tuple(map(_event, line.get("events") or ())),
        applied=bool(form.applied),
        applied_s=form.applied_s or 0.0,
        number=int(form.cycle or number),
        period_s=form.period_s or DEFAULT_PERIOD_S,
        policy=str(form.policy) if form.policy else None,
        policy_ms=form.policy_ms or 0.0,
        repeated=bool(form.repeated),
        annotations={key: value for key, value in line.items() if key not in RESERVED},
    )


def _dials_to_json(dials: Dials) -> dict[str, Any]:
    """Return the JSON form of dials: `keep` as a list of {"from", "to", "d"} like a plan's `non_drop`, `accept` by
    task."""
    keep = [{"from": source, "to": target, "d": d} for (source, target), d in dials.keep.items()]
    return {"keep": keep, "accept": dict(dials.accept)}


def instant(at: datetime) -> str:
    """ISO 8601 in UTC to the millisecond: 2026-11-21T02:00:05.000Z."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _dials(form: _Dials | None, plan: Plan) -> Dials:
    """Return the line's dials; the plan's own where it has none."""
    if form is None:
        return Dials(plan.non_drop, plan.desired)
    return Dials({(kept.source, kept.target): kept.d for kept in form.keep or ()}, form.accept or {})


def _measured(form: _Measured, line: Mapping[str, Any]) -> Measured:
    return Measured(
        lag=cast(dict[str, int], form.lag or {}),
        input_rate={name: rate for name, rate in (form.input_rate or {}).items() if rate is not None},
        accuracy=form.accuracy or {},
        dropped=cast(dict[str, int], form.dropped or {}),
        counts={name: Count(*astuple(rows)) for name, rows in (form.counts or {}).items()},
        latency_s=cast(dict[str, float], form.latency_s or {}),
        late=cast(dict[str, int], form.late or {}),
        unknown={key: value for key, value in line.items() if key not in keys(_Measured)},
    )


def _event(line: Mapping[str, Any]) -> Event:
    return Event(line["kind"], {key: value for key, value in line.items() if key != "kind"})


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
    """Yield the lines of a recording, in order; empty lines are skipped.

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
    """Return what `json` doesn't know: mappings, numbers of numpy, sets; anything else as its `str`."""
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
