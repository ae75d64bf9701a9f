"""Questions about a snapshot: which tasks could be fused, and which streams lie within fused tasks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from qod_magics.core.plan import Pair
from qod_magics.core.snapshot import Instance, Snapshot, Task, is_running
from qod_magics.errors import SnapshotError, show

#: CPU of one core: an instance uses no more.
CORE = 100.0


def fused_streams(task: Task) -> tuple[Pair, ...]:
    """Return the streams within a task, (from, to), inputs first. Raises a one-line SnapshotError for anything else."""
    return _streams(task.fused)


def separable_streams(task: Task) -> tuple[Pair, ...]:
    """Return the streams within a task at which it can be unfused now. Raises as `fused_streams`."""
    whole = _streams(task.inseparable)
    return tuple(edge for edge in fused_streams(task) if edge not in whole)


def fused_into(snapshot: Snapshot) -> dict[Pair, str]:
    """Return the fused task by stream within it."""
    return {edge: task.id for task in snapshot.tasks for edge in fused_streams(task)}


def _streams(names: Sequence[str]) -> tuple[Pair, ...]:
    for name in names:
        if ">" not in name:
            raise SnapshotError(f'tasks.fused: {show(name)} is no stream; give names like "from>to"', rule="edge")
    return tuple((source, target) for source, _, target in (name.partition(">") for name in names))


def neighbours(snapshot: Snapshot) -> tuple[Pair, ...]:
    """Return the streams whose ends may be one query: by their declarations, with at most one that keeps state, each
    instance with its counterpart on one task manager, in the same mode, and all of them running."""
    tasks = {task.id: task for task in snapshot.tasks}
    found = [task for task in snapshot.tasks if task.fusable and len(task.upstream) == 1]
    if not found:
        return ()
    of = _in_order(snapshot)
    return tuple(
        (task.upstream[0], task.id)
        for task in found
        if not (task.stateful and tasks[task.upstream[0]].stateful)
        and _side_by_side(of.get(task.upstream[0], []), of.get(task.id, []))
    )


def within_a_core(pairs: Collection[Pair], snapshot: Snapshot, needs: Mapping[str, float]) -> tuple[Pair, ...]:
    """Return those of these `neighbours` whose query would need no more CPU than the core that an instance can use: a
    larger one would be unfused again at once. `needs`: by instance, CPU in % of one core."""
    if not pairs:
        return ()
    of = _in_order(snapshot)
    return tuple(
        (source, target)
        for source, target in pairs
        if all(needs[one.id] + needs[other.id] <= CORE for one, other in zip(of[source], of[target], strict=True))
    )


def _side_by_side(first: list[Instance], second: list[Instance]) -> bool:
    """Return whether each instance runs beside its counterpart."""
    return 0 < len(first) == len(second) and all(
        one.task_manager == other.task_manager
        and one.mode == other.mode
        and not any(each.warming_up or not is_running(each) or each.rests_s is not None for each in (one, other))
        for one, other in zip(first, second, strict=True)
    )


def _in_order(snapshot: Snapshot) -> dict[str, list[Instance]]:
    """Return the instances of each task in the order of their numbers."""
    of: dict[str, list[Instance]] = {}
    for instance in sorted(snapshot.instances, key=lambda each: (len(each.id), each.id)):
        of.setdefault(instance.task, []).append(instance)
    return of
