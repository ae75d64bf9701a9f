"""The placement stage: instances leave task managers that shed, and those that the others can replace. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from qod_magics.core.actions import Move
from qod_magics.core.freshness import is_moving
from qod_magics.core.optional import PRICE, RESTS, STANDBY
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.d_storm.consolidation import Known, consolidation
from qod_magics.policies.stack.demand import Demand
from qod_magics.policies.stack.levers import Lever
from qod_magics.policies.stack.stage import Proposal, View


@dataclass(frozen=True, slots=True)
class Place:
    """Moves an instance from each task manager that is short of CPU to one where it fits, if that takes load off; and
    empties a task manager, to be released, once all have had CPU to spare for a while."""

    after_s: float = 10.0  #: how long a query must be under pressure
    least: float = 5.0  #: CPU that a move must take off a task manager, % of one core
    margin: float = 1.1  #: room that the target must have, as a multiple of the instance's need
    empty_after_s: float = 60.0  #: how long all must have had CPU to spare before a task manager is emptied
    headroom: float = 0.2  #: fraction of the CPU of the others that stays free then
    most: int = 8  #: instances that move for it where more than one task manager is packed anew

    name = "place"
    owns = frozenset({Lever.PLACEMENT, Lever.FUSION})

    def propose(self, view: View) -> Proposal:
        """See `Stage`. Under pressure at most one instance leaves each task manager, and one arrives at each."""
        if view.roomy_s() >= self.empty_after_s:
            return Proposal(emptying_moves(view.snapshot, view.demand, self.headroom, self.most))
        if view.pressed_s() < self.after_s:
            return Proposal()
        moves = helpful_moves(view.snapshot, view.demand, self.least, self.margin)
        if moves:
            return Proposal(moves)
        if view.demand.short > self.least:
            return Proposal(note=f"no move takes load off: {view.demand.short:.0f} % of a core is short everywhere")
        return Proposal()


def helpful_moves(snapshot: Snapshot, demand: Demand, least: float, margin: float) -> tuple[Move, ...]:
    """For each task manager short of CPU, most first, the move that takes most load off it. Where two take as much,
    that of a query, whose pause no other task feels, and of two queries the smaller one. CPU in % of one core."""
    instances, managers = snapshot.instances, snapshot.task_managers
    room = {m: demand.room(m) for m, manager in enumerate(managers) if demand.over(m) == 0 and not STANDBY.of(manager)}
    ends = [not snapshot.downstream[instance.task] for instance in instances]
    found = []
    for home in sorted(range(len(managers)), key=lambda m: (-demand.over(m), managers[m].id)):
        over = demand.over(home)
        if over <= least or not room:
            break
        target = max(room, key=lambda m: (room[m], -m))
        fitting = [
            i
            for i in demand.hosted[home]
            if margin * demand.instance[i] <= room[target]
            and RESTS.of(instances[i]) is None
            and not is_moving(instances[i])
        ]
        if not fitting:
            continue
        chosen = max(fitting, key=lambda i: (min(demand.instance[i], over), ends[i], -demand.instance[i], -i))
        taken = min(demand.instance[chosen], over)
        if taken < least:
            continue
        del room[target]
        why = f"{managers[home].id} lacks {over:.0f} % of a core for full accuracy, {managers[target].id} has room"
        found.append(Move(instances[chosen].id, managers[target].id, why))
    return tuple(found)


def emptying_moves(snapshot: Snapshot, demand: Demand, headroom: float, most: int) -> tuple[Move, ...]:
    """The moves that empty a task manager whose instances fit on the others at full accuracy: the dearest, and of
    equally dear ones that with the least load. Where none is emptied by itself, D-Storm's packing of all instances on
    fewer task managers, if that takes at most `most` moves. () where nothing does, or one is empty already."""
    managers, instances = snapshot.task_managers, snapshot.instances
    up = [m for m, manager in enumerate(managers) if not STANDBY.of(manager)]
    if len(up) < 2 or any(not demand.hosted[m] for m in up):
        return ()
    restless = {each.id for each in instances if RESTS.of(each) is not None or is_moving(each)}
    for leaving in sorted(up, key=lambda m: (-(PRICE.of(managers[m]) or 0.0), demand.needed[m], -m)):
        free = {m: (1 - headroom) * demand.available[m] - demand.needed[m] for m in up if m != leaving}
        homes = _fitting([(demand.instance[i], i) for i in demand.hosted[leaving]], free)
        if homes is not None and restless.isdisjoint(instances[i].id for i in homes):
            why = f"the others hold what {managers[leaving].id} runs at full accuracy, with {headroom:.0%} to spare"
            return tuple(Move(instances[i].id, managers[m].id, why) for i, m in homes.items())
    known = Known(
        {each.id: need for each, need in zip(instances, demand.instance, strict=True)},
        {each.id: cpu for each, cpu in zip(managers, demand.available, strict=True)},
        restless,
    )
    found = consolidation(snapshot, headroom, known=known)
    return found.moves if found is not None and len(found.moves) <= most else ()


def _fitting(needs: list[tuple[float, int]], free: dict[int, float]) -> dict[int, int] | None:
    """Task managers for instances, given as (CPU, position), largest first, each where most is `free`; None where one
    does not fit."""
    if any(left < 0 for left in free.values()):
        return None
    homes = {}
    for need, i in sorted(needs, reverse=True):
        target = max(free, key=lambda m: (free[m], -m))
        if free[target] < need:
            return None
        free[target] -= need
        homes[i] = target
    return homes
