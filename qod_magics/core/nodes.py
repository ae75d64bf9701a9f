"""Task managers that join, stand by, leave or could be started: two optional keys of snapshots. Pure.

In JSON, `node_states` and `spare_nodes`:

    {"node_states": {"tm2": "standby", "tm3": "starting"},
     "spare_nodes": [{"kind": "large", "count": 2, "cores": 4, "memory_mb": 12288, "price": 0.1168, "start_s": 12}]}

Of the first, only a task manager that leaves is among the snapshot's task managers, too, until its instances have
moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Any

from qod_magics.core.snapshot import Snapshot
from qod_magics.core.wording import show
from qod_magics.errors import SnapshotError

_STATES_KEY = "node_states"


class NodeState(StrEnum):
    """The state of a task manager that is not simply up."""

    STARTING = "starting"  #: joins once it is warm
    PREPARING = "preparing"  #: stands by once it is warm
    STANDBY = "standby"  #: up and warm; hosts nothing
    LEAVING = "leaving"  #: its instances move to the others


def node_states(snapshot: Snapshot) -> Mapping[str, NodeState]:
    """Return the state by task manager, {} where none joins or leaves. Raises SnapshotError, one line."""
    rows = snapshot.extra.get(_STATES_KEY, {})
    if not isinstance(rows, Mapping):
        raise SnapshotError(f"{_STATES_KEY}: {show(rows)} is not an object; give {{task manager: state}}")
    found = {}
    for id, state in rows.items():
        try:
            found[str(id)] = NodeState(state)
        except ValueError:
            raise SnapshotError(
                f"{_STATES_KEY}.{id}: {show(state)} is no state; give one of {', '.join(NodeState)}"
            ) from None
    return found


def node_states_to_json(found: Mapping[str, NodeState]) -> dict[str, Any]:
    """Return the key for `Snapshot.extra`; {} for none."""
    return {_STATES_KEY: {id: state.value for id, state in found.items()}} if found else {}


_SPARES_KEY = "spare_nodes"


@dataclass(frozen=True, slots=True)
class Spare:
    """Task managers of one kind that an `AddNode` can start."""

    kind: str  #: as in `AddNode.kind`
    count: int  #: how many more of it; 1 or more
    cores: float  #: of each, as plans would see it
    memory_mb: float | None = None  #: of each; None: unknown
    price: float | None = None  #: of each, per hour; None: unknown
    start_s: float = 0.0  #: until one is up, seconds; about 0 for one that stands by

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, without the unknown."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in found.items() if value is not None}


def spares(snapshot: Snapshot) -> tuple[Spare, ...]:
    """Return the kinds in the snapshot, () where its cluster starts none. Raises SnapshotError, one line."""
    rows = snapshot.extra.get(_SPARES_KEY, [])
    if not isinstance(rows, list | tuple):
        raise SnapshotError(f"{_SPARES_KEY}: {show(rows)} is not a list; give a list of objects")
    return tuple(_spare(f"{_SPARES_KEY}[{i}]", row) for i, row in enumerate(rows))


def spares_to_json(found: Iterable[Spare]) -> dict[str, Any]:
    """Return the key for `Snapshot.extra`: also for none, where a cluster can start and release task managers at
    all."""
    return {_SPARES_KEY: [spare.to_json() for spare in found if spare.count > 0]}


def is_elastic(snapshot: Snapshot) -> bool:
    """Return whether the snapshot's cluster can start and release task managers, though perhaps no further one now."""
    return _SPARES_KEY in snapshot.extra


def _spare(field: str, row: Any) -> Spare:
    if not isinstance(row, Mapping) or not isinstance(row.get("kind"), str):
        raise SnapshotError(f"{field}: {show(row)} has no kind; give {{kind, count, cores}}")
    count = row.get("count")
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise SnapshotError(f"{field}.count: {show(count)} is not a whole number >= 0; give one")
    return Spare(
        row["kind"],
        count,
        _number(field, row, "cores", None) or 1.0,
        _number(field, row, "memory_mb", None),
        _number(field, row, "price", None),
        _number(field, row, "start_s", 0.0) or 0.0,
    )


def _number(field: str, row: Mapping[str, Any], name: str, default: float | None) -> float | None:
    value = row.get(name, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise SnapshotError(f"{field}.{name}: {show(value)} is not a number >= 0; give one")
    return float(value)
