"""Snapshots and plans as JSON, with hints for keys that are nearly right. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from sys import float_info
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert, field, to_builtins
from msgspec.structs import fields, replace

from qod_magics.core.plan import (
    AddNode,
    Fraction,
    Fuse,
    Limits,
    Move,
    Plan,
    ReleaseNode,
    Scale,
    Seconds,
    SetBatch,
    Stop,
    Unfuse,
)
from qod_magics.core.snapshot import NOTHING, TABLES, Snapshot
from qod_magics.core.validation import check_snapshot
from qod_magics.errors import SnapshotError, show

# --- Structs ----------------------------------------------------------------------------------------------------------
# Structs from their JSON form, with errors that name the field, show its value and say what to give. Pure.

_Kind = TypeVar("_Kind", bound=Struct)

#: A message of msgspec: what is wrong, and where, as in "Expected `str`, got `int` - at `$.tasks[2].id`".
_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_BOUND = re.compile(r"(>=|<=) (\S+)")
_STEP = re.compile(r"\.([^.\[]*)|\[(\d+|\.\.\.)\]")

#: By what msgspec expected: what a value is not, and what to give.
_WORDS = (
    ("Expected `float | null`", "is not a number; give a finite number, or null"),
    ("Expected `float`", "is not a number; give a finite number"),
    ("Expected `int | null`", "is not an integer; give a whole number, or null"),
    ("Expected `int | array", "is neither a whole number nor a list; give a whole number, or a list of ids"),
    ("Expected `int | float", "is not a number; give a finite number"),
    ("Expected `int`", "is not an integer; give a whole number"),
    ("Expected `str", "is not a string; give an id in quotes"),
    ("Expected `bool", "is neither true nor false; give one of them"),
    ("Expected `array` of length", "has another length; give a list of that many values"),
    ("Expected `array", "is not a list; give a list, [] for none"),
    ("Expected `object", "is not an object; give an object"),
    ("Number out of range", "is too large; give a finite number"),
    ("Invalid RFC3339", "is not a time; give one such as 2026-11-21T02:00:05.000Z"),
)


@cache
def keys(kind: type[Struct]) -> frozenset[str]:
    """Return the keys of a struct's JSON object."""
    return frozenset(field.encode_name for field in fields(kind))


def read(kind: type[_Kind], obj: Any, name: str, prefix: str = "") -> _Kind:
    """Return the struct that a decoded JSON object describes; keys that it does not have go to its `unknown`.

    `name`: of the whole, for errors; `prefix`: of its fields. Raises SnapshotError with one line that names the field,
    its value and what to do.
    """
    try:
        made = convert(obj, kind)
    except ValidationError as error:
        raise SnapshotError(_worded(kind, str(error), obj, name, prefix)) from None
    return with_unknown(made, obj) if "" in keys(kind) else made


def with_unknown(made: _Kind, obj: Mapping[str, Any]) -> _Kind:
    """Return the struct with the keys of its JSON object that it does not have in `unknown`."""
    known = keys(type(made))
    if known.issuperset(obj):
        return made
    return replace(made, unknown={key: value for key, value in obj.items() if key not in known})


def written(made: Struct) -> dict[str, Any]:
    """Return the JSON form of a struct: plain dicts and lists, ready for `json.dumps`."""
    found = to_builtins(made)
    unknown = found.pop("", None)
    plain = {key: list(value) if type(value) is tuple else value for key, value in found.items()}
    return plain if unknown is None else {**plain, **unknown}


def _worded(kind: type[Struct], message: str, obj: Any, name: str, prefix: str) -> str:
    """Return msgspec's message in the words of this format."""
    found = _MESSAGE.match(message)
    assert found is not None
    what, path = found["what"], found["path"] or ""
    value, there = obj, ""
    for key, index in _STEP.findall(path):
        if index == "...":  # a key of a mapping, which msgspec does not tell
            name_of = _key_of(kind, obj, there, value)
            if name_of is None:
                break
            value, there = value[name_of], f"{there}.{name_of}"
            continue
        value = value[int(index) if index else key]
        there += f"[{index}]" if index else f".{key}"
    there = prefix + there.removeprefix(".") if there else ""
    if what.startswith("Object missing required field"):
        key = what.split("`")[1]
        return f"{there + '.' if there else prefix}{key}: missing{_misspelt(key, value) or '; add it'}"
    if what.endswith("<= 1.0"):
        return f"{there or name}: {show(value)} is not a number between 0 and 1; give a fraction of 1"
    bound = _BOUND.search(what)
    if bound is not None and abs(float(bound[2])) < float_info.max:
        return f"{there or name}: {show(value)} is not a number {bound[1]} {float(bound[2]):g}; give one"
    words = next((words for start, words in _WORDS if what.startswith(start)), f"can't be read: {what}")
    return f"{there or name}: {show(value)} {words}"


def _key_of(kind: type[Struct], obj: Any, path: str, mapping: Mapping[str, Any]) -> str | None:
    """Return the first key of a mapping at this path whose value alone can't be read; None within a list."""
    steps = path.removeprefix(".").split(".")
    for key, value in mapping.items() if "[" not in path else ():
        try:
            convert(_with(obj, steps, {key: value}), kind)
        except ValidationError as error:
            if f"`${path}[...]" in str(error):
                return key
    return None


def _with(obj: Mapping[str, Any], path: Sequence[str], value: Any) -> Any:
    return {**obj, path[0]: _with(obj[path[0]], path[1:], value)} if path else value


def _misspelt(key: str, obj: Mapping[str, Any]) -> str:
    """Return a hint at a key of the object that looks like the missing one."""
    close = get_close_matches(key, [other for other in obj if isinstance(other, str)], n=1, cutoff=0.75)
    return f"; there is {show(close[0])}: rename it" if close else ""


# --- Plans ------------------------------------------------------------------------------------------------------------
# Moves and stops are written as `fail` (instances that stop) and `place` (where those that move start again), without
# reasons, which are in a recording's events. Other actions are listed under `actions`.


class _Kept(Struct, frozen=True):
    """The probability that a row of an edge is kept."""

    source: str | None = field(name="from")
    target: str = field(name="to")
    d: Fraction


class _PlanForm(Struct, frozen=True, omit_defaults=True):
    """The JSON object of a plan."""

    current_accuracy: dict[str, Fraction]
    desired: dict[str, Fraction]
    non_drop: tuple[_Kept, ...]
    fail: tuple[str, ...]
    place: dict[str, str]
    starved: tuple[str, ...]
    actions: tuple[Scale | AddNode | ReleaseNode | SetBatch | Fuse | Unfuse, ...] = ()
    react_above: Seconds | None = None
    backlog_s: Limits | dict[str, Limits] | None = None
    pace_s: dict[str, Seconds] = {}
    stages: dict[str, str] = {}
    unknown: Mapping[str, Any] = field(default_factory=dict, name="")


def plan_to_json(plan: Plan, current_accuracy: Mapping[str, float]) -> dict[str, Any]:
    """Return the JSON form, `non_drop` as a list of {"from", "to", "d"}; `current_accuracy` by task, as measured."""
    ending = [action for action in plan.actions if isinstance(action, Move | Stop)]
    return written(
        _PlanForm(
            current_accuracy=dict(current_accuracy),
            desired=dict(plan.desired),
            non_drop=tuple(_Kept(a, b, d) for (a, b), d in plan.non_drop.items()),
            fail=tuple(action.instance for action in ending),
            place={action.instance: action.to for action in ending if isinstance(action, Move)},
            starved=plan.starved,
            actions=tuple(action for action in plan.actions if not isinstance(action, Move | Stop)),
            react_above=plan.react_above,
            backlog_s=dict(plan.backlog_s) if isinstance(plan.backlog_s, Mapping) else plan.backlog_s,
            pace_s=dict(plan.pace_s),
            stages=dict(plan.stages),
            unknown=dict(plan.unknown),
        )
    )


def plan_from_json(obj: Any) -> Plan:
    """Return the plan that a decoded JSON object describes; unknown keys go to `unknown`.

    Raises SnapshotError with one line that names the field, its value and what to do.
    """
    form = read(_PlanForm, obj, "plan", "plan.")
    # older recordings hold moves in `place` alone
    ending = [
        Move(name, form.place[name]) if name in form.place else Stop(name)
        for name in {**dict.fromkeys(form.fail), **form.place}
    ]
    return Plan(
        desired=form.desired,
        non_drop={(kept.source, kept.target): kept.d for kept in form.non_drop},
        actions=(*ending, *form.actions),
        starved=form.starved,
        react_above=form.react_above,
        backlog_s=form.backlog_s,
        pace_s=form.pace_s,
        stages=form.stages,
        unknown=MappingProxyType(form.unknown) if form.unknown else NOTHING,
    )


# --- Snapshots --------------------------------------------------------------------------------------------------------
# Snapshots to and from their JSON form. Keys that the format does not name travel in `unknown`, both ways.


def snapshot_from_json(obj: Any) -> Snapshot:
    """Return the snapshot that a decoded JSON object describes, completely checked.

    Raises SnapshotError with one line that names the field (`tasks[2].min_accuracy`), its value and what to do.
    """
    snapshot = read(Snapshot, obj, "snapshot")
    snapshot = replace(snapshot, **{table: _rows(table, getattr(snapshot, table), obj[table]) for table in TABLES})
    check_snapshot(snapshot)
    return snapshot


def snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return the JSON form of a snapshot: plain dicts and lists, ready for `json.dumps`."""
    rows = {table: [written(row) for row in getattr(snapshot, table)] for table in TABLES}
    return rows | written(replace(snapshot, **dict.fromkeys(TABLES, ()))) | rows


def _rows(table: str, rows: list[Any], objs: list[Mapping[str, Any]]) -> tuple[Any, ...]:
    known = keys(TABLES[table])
    return tuple(
        [row if known.issuperset(obj) else with_unknown(row, obj) for row, obj in zip(rows, objs, strict=True)]
    )
