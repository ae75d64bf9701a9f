"""Neighbours that can be one query, and fused tasks that part so that one of them can move. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from qod_magics.core.actions import Fuse, Unfuse
from qod_magics.core.freshness import is_running
from qod_magics.core.fusion import separable_streams
from qod_magics.core.neighbours import CORE, Pair
from qod_magics.core.optional import RESTS
from qod_magics.core.placement import takes_instances
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stack.demand import Demand


def fusing(together: Mapping[Pair, float], now_s: float, after_s: float) -> tuple[Fuse, ...]:
    """One pair to fuse: the one that has been `neighbours` for longest, if that is `after_s` seconds; `together`: since
    when each pair is."""
    since = min(together.items(), key=lambda each: (each[1], each[0]), default=None)
    if since is None or now_s - since[1] < after_s:
        return ()
    (source, target), begun_s = since
    why = f"they have run side by side for {now_s - begun_s:.0f} s, and no query is short of CPU"
    return (Fuse((source, target), why),)


def parting(snapshot: Snapshot, demand: Demand, least: float, margin: float = 1.0) -> tuple[Unfuse, ...]:
    """One fused task to part, the largest, at the last stream where it can be: if its task manager lacks at least
    `least` % of a core, and a part fits elsewhere, with `margin` as a multiple of its need; or if an instance needs
    more than the core that it can use, and its task manager has more of them. None whose instance is to stay for now:
    it may move as a whole later.

    What the parts need is not known, but one of two needs half of it at most.
    """
    room = max((demand.room(m) for m, each in enumerate(snapshot.task_managers) if takes_instances(each)), default=0.0)
    within = {task.id: separable_streams(task) for task in snapshot.tasks}
    found = [
        i
        for i, each in enumerate(snapshot.instances)
        if within[each.task]
        and RESTS.of(each) is None
        and is_running(each)
        and (
            (demand.over(demand.home[i]) >= least and room >= max(margin * demand.instance[i] / 2, least))
            or (demand.over(demand.home[i]) < least and demand.instance[i] > CORE)
        )
    ]
    if not found:
        return ()
    largest = max(found, key=lambda i: (demand.instance[i], -i))
    instance, home = snapshot.instances[largest], demand.home[largest]
    over = demand.over(home)
    why = (
        f"{instance.task_manager} lacks {over:.0f} % of a core for full accuracy, and no move of {instance.id} helps"
        if over >= least
        else f"{instance.id} needs {demand.instance[largest]:.0f} % of a core, and {instance.task_manager} has more"
    )
    return (Unfuse(within[instance.task][-1], why),)
