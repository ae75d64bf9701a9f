"""Snapshots and plans as JSON, with hints for keys that are nearly right. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from difflib import get_close_matches
from functools import cache
from math import isfinite
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import fields, replace

from qod_magics.core.plan import (
    Action,
    AddNode,
    Edge,
    Fuse,
    Limits,
    Move,
    Plan,
    ReleaseNode,
    Scale,
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
_STEP = re.compile(r"\.([^.\[]*)|\[(\d+|\.\.\.)\]")

#: By what msgspec expected: what a value is not, and what to give.
_WORDS = (
    ("Expected `float | null`", "is not a number; give a finite number, or null"),
    ("Expected `float`", "is not a number; give a finite number"),
    ("Expected `int | null`", "is not an integer; give a whole number, or null"),
    ("Expected `int | array", "is neither a whole number nor a list; give a whole number, or a list of ids"),
    ("Expected `int`", "is not an integer; give a whole number"),
    ("Expected `str", "is not a string; give an id in quotes"),
    ("Expected `bool", "is neither true nor false; give one of them"),
    ("Expected `array` of length", "has another length; give a list of that many values"),
    ("Expected `array", "is not a list; give a list, [] for none"),
    ("Expected `object", "is not an object; give an object"),
    ("Number out of range", "is too large; give a finite number"),
)


@cache
def keys(kind: type[Struct]) -> frozenset[str]:
    """Return the keys of a struct's JSON object."""
    return frozenset(field.encode_name for field in fields(kind))


def read(kind: type[_Kind], obj: Any, name: str) -> _Kind:
    """Return the struct that a decoded JSON object describes; keys that it does not have go to its `unknown`.

    `name`: of the whole, for errors. Raises SnapshotError with one line that names the field, its value and what to do.
    """
    try:
        made = convert(obj, kind)
    except ValidationError as error:
        raise SnapshotError(_worded(str(error), obj, name)) from None
    return with_unknown(made, obj)


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


def _worded(message: str, obj: Any, name: str) -> str:
    """Return msgspec's message in the words of this format."""
    found = _MESSAGE.match(message)
    assert found is not None
    what, path = found["what"], found["path"] or ""
    value, there = obj, ""
    for key, index in _STEP.findall(path):
        if index == "...":  # a key of a mapping, which msgspec does not tell
            break
        value = value[int(index) if index else key]
        there += f"[{index}]" if index else f".{key}"
    there = there.removeprefix(".")
    if what.startswith("Object missing required field"):
        key = what.split("`")[1]
        return f"{there + '.' if there else ''}{key}: missing{_misspelt(key, value) or '; add it'}"
    if ">=" in what or "<=" in what:
        return f"{there or name}: {show(value)} is not a number >= 0; give one"
    words = next((words for start, words in _WORDS if what.startswith(start)), f"can't be read: {what}")
    return f"{there or name}: {show(value)} {words}"


def _misspelt(key: str, obj: Mapping[str, Any]) -> str:
    """Return a hint at a key of the object that looks like the missing one."""
    close = get_close_matches(key, [other for other in obj if isinstance(other, str)], n=1, cutoff=0.75)
    return f"; there is {show(close[0])}: rename it" if close else ""


# --- Plans ------------------------------------------------------------------------------------------------------------
# Moves and stops are written as `fail` (instances that stop) and `place` (where those that move start again), without
# reasons, which are in a recording's events. Other actions are listed under `actions`.

Kind = Literal["name", "names", "count", "seconds", "edge"]

_KEYS = ("current_accuracy", "desired", "non_drop", "fail", "place", "starved")
_ACTIONS = "actions"

#: By an action's JSON name: its class, and the kinds of its fields.
_KINDS: Mapping[str, tuple[type[Action], Mapping[str, Kind]]] = {
    "scale": (Scale, {"task": "name", "parallelism": "count", "to": "names"}),
    "add-node": (AddNode, {"kind": "name"}),
    "release-node": (ReleaseNode, {"id": "name"}),
    "set-batch": (SetBatch, {"task": "name", "seconds": "seconds"}),
    "fuse": (Fuse, {"edge": "edge"}),
    "unfuse": (Unfuse, {"edge": "edge"}),
}
#: Fields that may be left out.
_OPTIONAL = ("to",)


def plan_to_json(plan: Plan, current_accuracy: Mapping[str, float]) -> dict[str, Any]:
    """Return the JSON form, `non_drop` as a list of {"from", "to", "d"}; `current_accuracy` by task, as measured."""
    ending = [action for action in plan.actions if isinstance(action, Move | Stop)]
    others = [action for action in plan.actions if not isinstance(action, Move | Stop)]
    return {
        "current_accuracy": dict(current_accuracy),
        "desired": dict(plan.desired),
        "non_drop": [{"from": a, "to": b, "d": d} for (a, b), d in plan.non_drop.items()],
        "fail": [action.instance for action in ending],
        "place": {action.instance: action.to for action in ending if isinstance(action, Move)},
        "starved": list(plan.starved),
        **({_ACTIONS: [_action_to_json(action) for action in others]} if others else {}),
        **{key: _plain(value) for key in _REQUESTS if (value := getattr(plan, key))},
        **plan.unknown,
    }


def plan_from_json(obj: Any) -> Plan:
    """Return the plan that a decoded JSON object describes; unknown keys go to `unknown`.

    Raises SnapshotError with one line that names the field, its value and what to do.
    """
    if not isinstance(obj, Mapping):
        raise SnapshotError(f"plan: {show(obj)} is not an object; give {{{', '.join(_KEYS)}}}")
    for key in _KEYS:
        if key not in obj:
            raise SnapshotError(f"plan.{key}: missing; add it")
    more = {key: value for key, value in obj.items() if key not in (*_KEYS, _ACTIONS, *_REQUESTS)}
    _fractions("plan.current_accuracy", obj["current_accuracy"])
    return Plan(
        desired=_fractions("plan.desired", obj["desired"]),
        non_drop=_non_drop(obj["non_drop"]),
        actions=(
            *_moves_and_stops(obj["fail"], obj["place"]),
            *(_action(f"plan.actions[{i}]", row) for i, row in enumerate(_list("plan.actions", obj.get(_ACTIONS, [])))),
        ),
        starved=_names("plan.starved", obj["starved"]),
        **{key: read(f"plan.{key}", obj[key]) for key, read in _REQUESTS.items() if key in obj},
        unknown=MappingProxyType(more) if more else NOTHING,
    )


def _moves_and_stops(fail: Any, place: Any) -> list[Action]:
    """Return the instances in `fail`, then those in `place` alone: older recordings hold such moves."""
    targets = {
        instance: _name(f"plan.place.{instance}", manager) for instance, manager in _object("plan.place", place).items()
    }
    instances = dict.fromkeys((*_names("plan.fail", fail), *targets))
    return [Move(name, targets[name]) if name in targets else Stop(name) for name in instances]


def _action_to_json(action: Action) -> dict[str, Any]:
    name = next(name for name, (kind, _) in _KINDS.items() if isinstance(action, kind))
    return {"action": name, **{key: _plain(value) for key, value in asdict(action).items() if value not in ("", ())}}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _action(field: str, row: Any) -> Action:
    if "action" not in _object(field, row):
        raise SnapshotError(f"{field}.action: missing; add it")
    name = row["action"]
    if not isinstance(name, str) or name not in _KINDS:
        raise SnapshotError(f"{field}.action: {show(name)} is no action; give one of {', '.join(_KINDS)}")
    made, kinds = _KINDS[name]
    for key in kinds:
        if key not in row and key not in _OPTIONAL:
            raise SnapshotError(f"{field}.{key}: missing; add it")
    values = {key: _READ[kind](f"{field}.{key}", row[key]) for key, kind in kinds.items() if key in row}
    return made(**values, why=_name(f"{field}.why", row.get("why", "")))


def _count(field: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SnapshotError(f"{field}: {show(value)} is not a whole number above 0; give one")
    return value


def _seconds(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise SnapshotError(f"{field}: {show(value)} is not a number of seconds; give one, 0 or more")
    return float(value)


def _edge(field: str, value: Any) -> tuple[str, str]:
    names = _names(field, value)
    if len(names) != 2:
        raise SnapshotError(f"{field}: {show(value)} is no stream; give [from, to]")
    return names[0], names[1]


def _object(field: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SnapshotError(f"{field}: {show(value)} is not an object; give one, {{}} for none")
    return value


def _list(field: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise SnapshotError(f"{field}: {show(value)} is not a list; give one, [] for none")
    return value


def _name(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise SnapshotError(f"{field}: {show(value)} is not a string; give an id in quotes")
    return value


def _names(field: str, values: Any) -> tuple[str, ...]:
    return tuple(_name(f"{field}[{i}]", value) for i, value in enumerate(_list(field, values)))


def _fraction(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or not 0 <= value <= 1:
        raise SnapshotError(f"{field}: {show(value)} is not a number between 0 and 1; give a fraction of 1")
    return float(value)


def _fractions(field: str, values: Any) -> dict[str, float]:
    return {key: _fraction(f"{field}.{key}", value) for key, value in _object(field, values).items()}


def _non_drop(rows: Any) -> dict[Edge, float]:
    kept: dict[Edge, float] = {}
    for i, row in enumerate(_list("plan.non_drop", rows)):
        field = f"plan.non_drop[{i}]"
        for key in ("from", "to", "d"):
            if key not in _object(field, row):
                raise SnapshotError(f"{field}.{key}: missing; add it")
        source = None if row["from"] is None else _name(f"{field}.from", row["from"])
        kept[source, _name(f"{field}.to", row["to"])] = _fraction(f"{field}.d", row["d"])
    return kept


_READ: Mapping[Kind, Callable[[str, Any], Any]] = {
    "name": _name,
    "names": _names,
    "count": _count,
    "seconds": _seconds,
    "edge": _edge,
}


def _seconds_by(field: str, values: Any) -> dict[str, float]:
    return {key: _seconds(f"{field}.{key}", value) for key, value in _object(field, values).items()}


def _limits(field: str, value: Any) -> Limits | dict[str, Limits]:
    """Return [seconds, seconds], or these by task."""
    if isinstance(value, Mapping):
        return {task: _pair(f"{field}.{task}", pair) for task, pair in value.items()}
    return _pair(field, value)


def _pair(field: str, value: Any) -> Limits:
    found = [_seconds(f"{field}[{i}]", each) for i, each in enumerate(_list(field, value))]
    if len(found) != 2:
        raise SnapshotError(f"{field}: {show(value)} is no pair; give [seconds, seconds]")
    return found[0], found[1]


def _notes(field: str, values: Any) -> dict[str, str]:
    return {stage: _name(f"{field}.{stage}", words) for stage, words in _object(field, values).items()}


#: The requests of a plan: how each is read.
_REQUESTS: Mapping[str, Callable[[str, Any], Any]] = {
    "react_above": _seconds,
    "backlog_s": _limits,
    "pace_s": _seconds_by,
    "stages": _notes,
}


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
