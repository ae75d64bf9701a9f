"""The streams within a task: those that were fused, at which it can be parted."""

from __future__ import annotations

from qod_magics.core.snapshot import Snapshot, Task
from qod_magics.core.wording import show
from qod_magics.errors import SnapshotError

#: Key of a task: the streams within it that an `Unfuse` can name, "from>to", inputs first; absent where there is none.
FUSED = "fused"
#: Key of a task: those of these streams at which it can't be parted now; absent where there is none.
INSEPARABLE = "inseparable"


def fused_streams(task: Task) -> tuple[tuple[str, str], ...]:
    """The streams within a task, (from, to), inputs first. Raises a one-line SnapshotError for anything else."""
    return _streams(task, FUSED)


def separable_streams(task: Task) -> tuple[tuple[str, str], ...]:
    """Those of them at which it can be parted now. Raises as `fused_streams`."""
    whole = _streams(task, INSEPARABLE)
    return tuple(edge for edge in fused_streams(task) if edge not in whole)


def fused_into(snapshot: Snapshot) -> dict[tuple[str, str], str]:
    """By each stream within a task, the task."""
    return {edge: task.id for task in snapshot.tasks if FUSED in task.extra for edge in fused_streams(task)}


def _streams(task: Task, key: str) -> tuple[tuple[str, str], ...]:
    names = task.extra.get(key, ())
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and ">" in name for name in names):
        raise SnapshotError(f'tasks.{key}: {show(names)} is no list of streams; give names like "from>to"')
    return tuple((source, target) for source, _, target in (name.partition(">") for name in names))
