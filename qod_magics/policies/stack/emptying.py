"""Task managers that the others can replace: the moves that empty them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from qod_magics.core.actions import Move
from qod_magics.core.freshness import is_moving
from qod_magics.core.optional import PRICE, RESTS, STANDBY
from qod_magics.core.snapshot import Snapshot, TaskManager
from qod_magics.policies.d_storm.consolidation import Known, consolidation
from qod_magics.policies.stack.demand import Demand


def emptying_moves(snapshot: Snapshot, demand: Demand, headroom: float, most: int) -> tuple[Move, ...]:
    """The moves that empty a task manager whose instances fit on the others at full accuracy: the dearest, and of
    equally dear ones that with the least load; and further ones in this order, as long as no more instances arrive at a
    task manager than twice its cores. Where none is emptied by itself, D-Storm's packing of all instances on fewer task
    managers, if that takes at most `most` moves. () where nothing does, or one is empty already."""
    managers, instances = snapshot.task_managers, snapshot.instances
    up = [m for m, manager in enumerate(managers) if not STANDBY.of(manager)]
    if len(up) < 2 or any(not demand.hosted[m] for m in up):
        return ()
    restless = {i for i, each in enumerate(instances) if RESTS.of(each) is not None or is_moving(each)}
    free = {m: (1 - headroom) * demand.available[m] - demand.needed[m] for m in up}
    arrivals = {m: 2 * starts_at_once(managers[m]) for m in up}
    moves: list[Move] = []
    used: set[int] = set()
    for leaving in sorted(up, key=lambda m: (-(PRICE.of(managers[m]) or 0.0), demand.needed[m], -m)):
        mine = demand.hosted[leaving]
        if leaving in used or not restless.isdisjoint(mine):
            continue
        targets = {m: left for m, left in free.items() if m != leaving}
        homes = _fitting({i: demand.instance[i] for i in mine}, targets, arrivals if moves else None)
        if homes is None:
            continue
        del free[leaving]
        for i, m in homes.items():
            free[m] -= demand.instance[i]
            arrivals[m] -= 1
            used.add(m)
        why = f"the others hold what {managers[leaving].id} runs at full accuracy, with {headroom:.0%} to spare"
        moves += (Move(instances[i].id, managers[m].id, why) for i, m in homes.items())
    if moves:
        return tuple(moves)
    known = Known(
        {each.id: need for each, need in zip(instances, demand.instance, strict=True)},
        {each.id: cpu for each, cpu in zip(managers, demand.available, strict=True)},
        {instances[i].id for i in restless},
    )
    found = consolidation(snapshot, headroom, known=known)
    return found.moves if found is not None and len(found.moves) <= most else ()


def starts_at_once(manager: TaskManager) -> int:
    """How many instances may start together on a task manager that has some: one for each core, since starts cost
    CPU."""
    return max(round(manager.cores), 1)


def _fitting(
    needs: Mapping[int, float], free: Mapping[int, float], arrivals: Mapping[int, int] | None
) -> dict[int, int] | None:
    """Task managers for instances by position, the largest first, each where most CPU is `free`; at most `arrivals` at
    each. None where one does not fit."""
    if any(left < 0 for left in free.values()):
        return None
    left = {m: cpu for m, cpu in free.items() if arrivals is None or arrivals[m] > 0}
    count = dict.fromkeys(left, 0)
    homes = {}
    for i in sorted(needs, key=lambda i: (-needs[i], -i)):
        target = max(left, key=lambda m: (left[m], -m), default=None)
        if target is None or left[target] < needs[i]:
            return None
        left[target] -= needs[i]
        homes[i] = target
        count[target] += 1
        if arrivals is not None and count[target] == arrivals[target]:
            del left[target]
    return homes
