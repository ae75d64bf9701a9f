"""Neighbours that can be one query, and fused tasks that part so that one of them can move. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from qod_magics.core.actions import Fuse, Unfuse
from qod_magics.core.freshness import is_moving
from qod_magics.core.fusion import separable_streams
from qod_magics.core.optional import FUSABLE, RESTS, STATEFUL
from qod_magics.core.placement import takes_instances
from qod_magics.core.snapshot import Instance, Snapshot
from qod_magics.policies.stack.demand import Demand

#: A stream between two tasks, (from, to).
Pair: TypeAlias = tuple[str, str]

#: CPU of one core: an instance uses no more.
CORE = 100.0


def neighbours(snapshot: Snapshot) -> tuple[Pair, ...]:
    """The streams whose ends may be one query: by their declarations, with at most one that keeps state, each instance
    with its counterpart on one task manager, in the same mode, and none of them starting or moving."""
    tasks = {task.id: task for task in snapshot.tasks}
    found = [task for task in snapshot.tasks if FUSABLE.of(task) and len(task.upstream) == 1]
    if not found:
        return ()
    of: dict[str, list[Instance]] = {}
    for instance in snapshot.instances:
        of.setdefault(instance.task, []).append(instance)
    return tuple(
        (task.upstream[0], task.id)
        for task in found
        if not (STATEFUL.of(task) and STATEFUL.of(tasks[task.upstream[0]]))
        and _side_by_side(of.get(task.upstream[0], []), of.get(task.id, []))
    )


def within_a_core(together: Mapping[Pair, float], snapshot: Snapshot, demand: Demand) -> dict[Pair, float]:
    """Of these `neighbours`, those whose query would need no more CPU than the core that an instance can use: a larger
    one would part again at once."""
    if not together:
        return {}
    needs: dict[str, list[tuple[Instance, float]]] = {}
    for instance, need in zip(snapshot.instances, demand.instance, strict=True):
        needs.setdefault(instance.task, []).append((instance, need))
    ordered = {task: [need for _, need in sorted(each, key=lambda one: _order(one[0]))] for task, each in needs.items()}
    return {
        (source, target): since
        for (source, target), since in together.items()
        if all(one + other <= CORE for one, other in zip(ordered[source], ordered[target], strict=True))
    }


def fusing(together: Mapping[Pair, float], now_s: float, after_s: float) -> tuple[Fuse, ...]:
    """One pair to fuse: the one that has been `neighbours` for longest, if that is `after_s` seconds; `together`: since
    when each pair is."""
    since = min(together.items(), key=lambda each: (each[1], each[0]), default=None)
    if since is None or now_s - since[1] < after_s:
        return ()
    (source, target), begun_s = since
    why = f"they have run side by side for {now_s - begun_s:.0f} s, and no query is short of CPU"
    return (Fuse((source, target), why),)


def parting(snapshot: Snapshot, demand: Demand, least: float) -> tuple[Unfuse, ...]:
    """One fused task to part, the largest, at the last stream where it can be: if its task manager lacks CPU and there
    is room elsewhere, each at least `least` % of a core; or if an instance needs more than the core that it can use,
    and its task manager has more of them."""
    room = max((demand.room(m) for m, each in enumerate(snapshot.task_managers) if takes_instances(each)), default=0.0)
    within = {task.id: separable_streams(task) for task in snapshot.tasks}
    found = [
        i
        for i, each in enumerate(snapshot.instances)
        if within[each.task]
        and (
            (demand.over(demand.home[i]) >= least and room >= least)
            or (demand.over(demand.home[i]) == 0 and demand.instance[i] > CORE)
        )
    ]
    if not found:
        return ()
    largest = max(found, key=lambda i: (demand.instance[i], -i))
    instance, home = snapshot.instances[largest], demand.home[largest]
    over = demand.over(home)
    why = (
        f"{instance.task_manager} lacks {over:.0f} % of a core for full accuracy, and no move of {instance.id} helps"
        if over
        else f"{instance.id} needs {demand.instance[largest]:.0f} % of a core, and {instance.task_manager} has more"
    )
    return (Unfuse(within[instance.task][-1], why),)


def _side_by_side(first: list[Instance], second: list[Instance]) -> bool:
    """Whether each instance runs beside its counterpart."""
    return 0 < len(first) == len(second) and all(
        one.task_manager == other.task_manager
        and one.extra.get("mode") == other.extra.get("mode")
        and not any(each.warming_up or is_moving(each) or RESTS.of(each) is not None for each in (one, other))
        for one, other in zip(_in_order(first), _in_order(second), strict=True)
    )


def _in_order(instances: list[Instance]) -> list[Instance]:
    return sorted(instances, key=_order)


def _order(instance: Instance) -> tuple[int, str]:
    return len(instance.id), instance.id
