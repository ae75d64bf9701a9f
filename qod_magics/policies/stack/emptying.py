"""Task managers that the others can replace: the moves that empty them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from qod_magics.core.actions import Move
from qod_magics.core.freshness import is_running
from qod_magics.core.optional import PRICE, RESTS
from qod_magics.core.placement import takes_instances
from qod_magics.core.snapshot import Snapshot, TaskManager
from qod_magics.policies.d_storm.consolidation import Known, consolidation
from qod_magics.policies.stack.demand import Demand


def emptying_moves(snapshot: Snapshot, demand: Demand, headroom: float, most: int) -> tuple[Move, ...]:
    """The moves that empty a task manager whose instances fit on the others at full accuracy: the dearest, and of
    equally dear ones that with the least load; and further ones in this order. One instance for each core arrives at a
    task manager at once: the rest of those that leave follows in another proposal. Where none is emptied by itself,
    D-Storm's packing of all instances on fewer task managers, if that takes at most `most` moves. () where nothing
    does, or one is empty already."""
    managers, instances = snapshot.task_managers, snapshot.instances
    up = [m for m, manager in enumerate(managers) if takes_instances(manager)]
    if len(up) < 2 or any(not demand.hosted[m] for m in up):
        return ()
    restless = {i for i, each in enumerate(instances) if RESTS.of(each) is not None or not is_running(each)}
    free = {m: (1 - headroom) * demand.available[m] - demand.needed[m] for m in up}
    arrivals = {m: starts_at_once(managers[m]) for m in up}
    moves: list[Move] = []
    used: set[int] = set()
    for leaving in sorted(up, key=lambda m: (-(PRICE.of(managers[m]) or 0.0), demand.needed[m], -m)):
        mine = demand.hosted[leaving]
        if leaving in used or not restless.isdisjoint(mine):
            continue
        others = {m: cpu for m, cpu in free.items() if m != leaving}
        homes = _fitting({i: demand.instance[i] for i in mine}, others, arrivals)
        if homes is None:
            continue
        del free[leaving]
        why = f"the others hold what {managers[leaving].id} runs at full accuracy, with {headroom:.0%} to spare"
        before = len(moves)
        for i, m in homes.items():
            free[m] -= demand.instance[i]
            used.add(m)
            if arrivals[m] > 0:
                arrivals[m] -= 1
                moves.append(Move(instances[i].id, managers[m].id, why))
        if len(moves) - before < len(mine):
            break
    if moves:
        return tuple(moves)
    known = Known(
        {each.id: need for each, need in zip(instances, demand.instance, strict=True)},
        {each.id: cpu for each, cpu in zip(managers, demand.available, strict=True)},
        {instances[i].id for i in restless},
    )
    found = consolidation(snapshot, headroom, known=known)
    if found is None or len(found.moves) > most:
        return ()
    arriving = Counter(move.to for move in found.moves)
    return found.moves if all(arriving[each.id] <= starts_at_once(each) for each in managers) else ()


def starts_at_once(manager: TaskManager) -> int:
    """How many instances may start together on a task manager that has some: one for each core, since starts cost
    CPU."""
    return max(round(manager.cores), 1)


def _fitting(
    needs: Mapping[int, float], free: Mapping[int, float], arrivals: Mapping[int, int]
) -> dict[int, int] | None:
    """Task managers for instances by position, the largest first, each where most CPU is `free`; as long as they fit,
    no more than `arrivals` at each. None where one does not fit."""
    left = {m: cpu for m, cpu in free.items() if cpu >= 0}
    count = dict(arrivals)
    homes = {}
    for i in sorted(needs, key=lambda i: (-needs[i], -i)):
        fitting = [m for m, cpu in left.items() if cpu >= needs[i]]
        if not fitting:
            return None
        target = max(fitting, key=lambda m: (count[m] > 0, left[m], -m))
        left[target] -= needs[i]
        count[target] -= 1
        homes[i] = target
    return homes
