"""What a user asks of a cluster's size: task managers that joined, and those that are to leave. Pure."""

from __future__ import annotations

from collections.abc import Collection

from qod_magics.core.placement import takes_instances
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.wording import show
from qod_magics.errors import SnapshotError

#: An optional key of snapshots: the task managers to end, by id, or how many of them.
LEAVING = "leaving"


def leaving(snapshot: Snapshot) -> tuple[str, ...] | int:
    """The task managers that are to leave: their ids, or their number; 0 if none. Raises SnapshotError, one line.

    An id that is not there has left already.
    """
    found = snapshot.extra.get(LEAVING, 0)
    if isinstance(found, list | tuple) and all(isinstance(name, str) for name in found):
        return tuple(found)
    if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
        return found
    raise SnapshotError(
        f"{LEAVING}: {show(found)} is neither a list of task managers nor a number of them; give one or the other"
    )


def machines(snapshot: Snapshot) -> tuple[str, ...]:
    """The task managers that instances may be placed on, in the snapshot's order: all but those on standby."""
    return tuple(manager.id for manager in snapshot.task_managers if takes_instances(manager))


def joined(snapshot: Snapshot, known: Collection[str]) -> tuple[str, ...]:
    """The machines that are not known, host nothing and are not to leave: a scale-out is asked for (section 2.2.6)."""
    wanted = leaving(snapshot)
    excluded = {instance.task_manager for instance in snapshot.instances}.union(known)
    if not isinstance(wanted, int):
        excluded.update(wanted)
    return tuple(name for name in machines(snapshot) if name not in excluded)
