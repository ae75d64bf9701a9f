"""Of the moves that the minimum accuracies ask for, those that help. Pure."""

from __future__ import annotations

from qod_magics.core.load import total
from qod_magics.policies.stream_economics.eviction import tolerance
from qod_magics.policies.stream_economics.moves import Movable, ensure_minimums
from qod_magics.policies.stream_economics.scheduler import PlacementRequest, place
from qod_magics.policies.stream_economics.situation import Minimums, Situation

#: Room that a task manager must have, of what an instance needs at its minimum: it takes CPU beside the instance, too,
#: and the next measurement, a little higher, is not to send it on.
MARGIN = 1.2


def only_helpful(situation: Situation, movable: Movable) -> Minimums:
    """A `Moves`: instances that leave go where their minimums fit beside those of the instances that are there.

    Where there is room for none of them they stay, and their task manager is starved: a move costs a start, and on the
    next task manager it would be the same again. One on which an instance warms up takes nobody.
    """
    snapshot, load, required = situation.snapshot, situation.load, situation.min_required
    hosted: list[list[float]] = [[] for _ in snapshot.task_managers]
    for t, manager in zip(load.task_of, load.manager_of, strict=True):
        hosted[manager].append(required[t])
    room = [cpu - total(needs) for cpu, needs in zip(situation.required.available, hosted, strict=True)]
    names = [manager.id for manager in snapshot.task_managers]
    leaving, targets = [], {}
    _, failed, _ = ensure_minimums(situation)
    for i in movable(failed, situation):
        instance, need = snapshot.instances[i], required[load.task_of[i]]
        open_to_it = {name: room[m] for m, name in enumerate(names) if not load.warming[m]}
        placed = place([PlacementRequest(instance.id, need, forbidden=(instance.task_manager,))], open_to_it)
        target = placed.get(instance.id)
        if target is None or open_to_it[target] < MARGIN * need:
            continue
        leaving.append(i)
        targets[instance.id] = target
        room[names.index(target)] -= need
        room[load.manager_of[i]] += need
    short = [m for m, left in enumerate(room) if left < -tolerance(total(hosted[m])) and not load.warming[m]]
    return Minimums([max(left, 0.0) for left in room], leaving, short, targets)
