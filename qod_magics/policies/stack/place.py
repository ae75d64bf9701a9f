"""The placement stage: instances leave task managers that shed for those that have CPU left. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from qod_magics.core.actions import Move
from qod_magics.core.freshness import is_moving
from qod_magics.core.optional import RESTS, STANDBY
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stack.demand import Demand
from qod_magics.policies.stack.levers import Lever
from qod_magics.policies.stack.stage import Proposal, View


@dataclass(frozen=True, slots=True)
class Place:
    """Moves an instance from each task manager that is short of CPU to one where it fits, if that takes load off."""

    after_s: float = 10.0  #: how long a query must be under pressure
    least: float = 5.0  #: CPU that a move must take off a task manager, % of one core
    margin: float = 1.1  #: room that the target must have, as a multiple of the instance's need

    name = "place"
    owns = frozenset({Lever.PLACEMENT, Lever.FUSION})

    def propose(self, view: View) -> Proposal:
        """See `Stage`. At most one instance leaves each task manager, and at most one arrives at each."""
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
