"""Task managers that join, stand by or leave: `node_states`, an optional key of snapshots.

An example, in JSON:

    {"node_states": {"tm2": "standby", "tm3": "starting"}}

Only one that leaves is among the snapshot's task managers, too, until its instances have moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from qod_magics.core.snapshot import Snapshot
from qod_magics.core.wording import show
from qod_magics.errors import SnapshotError

KEY = "node_states"


class NodeState(StrEnum):
    """What a task manager does that is not simply up."""

    STARTING = "starting"  #: joins once it is warm
    PREPARING = "preparing"  #: stands by once it is warm
    STANDBY = "standby"  #: up and warm; hosts nothing
    LEAVING = "leaving"  #: its instances move to the others


def node_states(snapshot: Snapshot) -> Mapping[str, NodeState]:
    """State by task manager, {} where none joins or leaves. Raises SnapshotError, one line."""
    rows = snapshot.extra.get(KEY, {})
    if not isinstance(rows, Mapping):
        raise SnapshotError(f"{KEY}: {show(rows)} is not an object; give {{task manager: state}}")
    found = {}
    for id, state in rows.items():
        try:
            found[str(id)] = NodeState(state)
        except ValueError:
            raise SnapshotError(f"{KEY}.{id}: {show(state)} is no state; give one of {', '.join(NodeState)}") from None
    return found


def node_states_to_json(found: Mapping[str, NodeState]) -> dict[str, Any]:
    """The key for `Snapshot.extra`; {} for none."""
    return {KEY: {id: state.value for id, state in found.items()}} if found else {}
