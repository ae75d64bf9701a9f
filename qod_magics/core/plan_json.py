"""Plans from their JSON form, as recordings hold them; `Plan.to_json` is the way there."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any

from qod_magics.core.plan import Edge, Plan
from qod_magics.core.snapshot import NOTHING
from qod_magics.core.wording import show
from qod_magics.errors import SnapshotError

_KEYS = ("current_accuracy", "desired", "non_drop", "fail", "place", "starved")


def plan_from_json(obj: Any) -> Plan:
    """The plan that a decoded JSON object describes; keys of other policies go to `extra`.

    Raises SnapshotError with one line that names the field, its value and what to do.
    """
    if not isinstance(obj, Mapping):
        raise SnapshotError(f"plan: {show(obj)} is not an object; give {{{', '.join(_KEYS)}}}")
    for key in _KEYS:
        if key not in obj:
            raise SnapshotError(f"plan.{key}: missing; add it")
    more = {key: value for key, value in obj.items() if key not in _KEYS}
    return Plan(
        current_accuracy=_fractions("plan.current_accuracy", obj["current_accuracy"]),
        desired=_fractions("plan.desired", obj["desired"]),
        non_drop=_non_drop(obj["non_drop"]),
        fail=_names("plan.fail", obj["fail"]),
        place={
            instance: _name(f"plan.place.{instance}", manager)
            for instance, manager in _object("plan.place", obj["place"]).items()
        },
        starved=_names("plan.starved", obj["starved"]),
        extra=MappingProxyType(more) if more else NOTHING,
    )


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
