"""Snapshots and plans as JSON, with hints for keys that are nearly right. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert, field, to_builtins
from msgspec.structs import fields, replace

from qod_magics.core.misfit import misfit
from qod_magics.core.plan import (
    AddNode,
    Fraction,
    Fuse,
    Lend,
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
from qod_magics.errors import SnapshotError

# --- Structs ----------------------------------------------------------------------------------------------------------
# Structs from their JSON form, with errors that name the field, show its value and say what to give. Pure.

_Kind = TypeVar("_Kind", bound=Struct)


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
        wrong = misfit(kind, error, obj)
        where = prefix + wrong.path.removeprefix(".") if wrong.path else name
        raise SnapshotError(wrong.said(where), **wrong.attributes(where)) from None
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
    actions: tuple[Scale | AddNode | ReleaseNode | SetBatch | Lend | Fuse | Unfuse, ...] = ()
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
