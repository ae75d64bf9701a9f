"""The placement stage: instances leave task managers that shed, and those that the others can replace; neighbours are
fused and parted. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from qod_magics.core.actions import Move
from qod_magics.core.freshness import is_running
from qod_magics.core.neighbours import within_a_core
from qod_magics.core.optional import RESTS
from qod_magics.core.placement import takes_instances
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stack.demand import Demand
from qod_magics.policies.stack.emptying import emptying_moves, starts_at_once
from qod_magics.policies.stack.fusion import fusing, parting
from qod_magics.policies.stack.levers import Lever
from qod_magics.policies.stack.stage import Proposal, View


@dataclass(frozen=True, slots=True)
class Place:
    """Moves an instance from each task manager that is short of CPU to one where it fits, if that takes load off; and
    empties a task manager, to be released, once all have had CPU to spare for a while. Neighbours that have long been
    on one task manager become one query while all is calm, and part where one of them must leave it."""

    after_s: float = 10.0  #: how long a query must be under pressure
    least: float = 5.0  #: CPU that a move must take off a task manager, % of one core
    margin: float = 1.1  #: room that the target must have, as a multiple of the instance's need
    empty_after_s: float = 60.0  #: how long all must have had CPU to spare before a task manager is emptied
    headroom: float = 0.2  #: fraction of the CPU of the others that stays free then
    fuse_after_s: float = 60.0  #: how long neighbours must have been side by side, and no query under pressure
    most: int = 8  #: instances that move for it where more than one task manager is packed anew

    name = "place"
    owns = frozenset({Lever.PLACEMENT, Lever.FUSION})

    def propose(self, view: View) -> Proposal:
        """See `Stage`. Under pressure, instances leave task managers until these have the CPU."""
        if view.roomy_s() >= self.empty_after_s:
            emptied = emptying_moves(view.snapshot, view.demand, self.headroom, self.most)
            if emptied:
                return Proposal(emptied)
        if view.eased_s() >= self.fuse_after_s:
            pairs = within_a_core(view.together, view.snapshot, view.demand.by_instance(view.snapshot))
            together = {pair: view.together[pair] for pair in pairs}
            return Proposal(fusing(together, view.now_s, self.fuse_after_s))
        if view.pressed_s() < self.after_s:
            return Proposal()
        moves = helpful_moves(view.snapshot, view.demand, self.least, self.margin)
        if moves:
            return Proposal(moves)
        parted = parting(view.snapshot, view.demand, self.least, self.margin)
        if parted:
            return Proposal(parted)
        if view.demand.short > self.least:
            return Proposal(note=f"no move takes load off: {view.demand.short:.0f} % of a core is short everywhere")
        return Proposal()


def helpful_moves(snapshot: Snapshot, demand: Demand, least: float, margin: float) -> tuple[Move, ...]:
    """For each task manager short of CPU, most first, the moves that take most load off it. Where two take as much,
    that of a query, whose pause no other task feels, and of two queries the smaller one. CPU in % of one core.

    A start costs CPU: one instance for each core arrives at a task manager that has instances, as many as fit at an
    empty one.
    """
    instances, managers = snapshot.instances, snapshot.task_managers
    room = {m: demand.room(m) for m, manager in enumerate(managers) if demand.over(m) == 0 and takes_instances(manager)}
    arrivals = {m: starts_at_once(managers[m]) if demand.hosted[m] else len(instances) for m in room}
    ends = [not snapshot.downstream[instance.task] for instance in instances]
    found = []
    for home in sorted(range(len(managers)), key=lambda m: (-demand.over(m), managers[m].id)):
        over = demand.over(home)
        staying = [i for i in demand.hosted[home] if RESTS.of(instances[i]) is None and is_running(instances[i])]
        while over > least and room:
            target = max(room, key=lambda m: (room[m], -m))
            fitting = [i for i in staying if margin * demand.instance[i] <= room[target]]
            if not fitting:
                break
            chosen = max(fitting, key=lambda i: (min(demand.instance[i], over), ends[i], -demand.instance[i], -i))
            taken = min(demand.instance[chosen], over)
            if taken < least:
                break
            why = f"{managers[home].id} lacks {over:.0f} % of a core for full accuracy, {managers[target].id} has room"
            found.append(Move(instances[chosen].id, managers[target].id, why))
            staying.remove(chosen)
            over -= taken
            room[target] -= demand.instance[chosen]
            arrivals[target] -= 1
            if arrivals[target] == 0:
                del room[target]
    return tuple(found)
