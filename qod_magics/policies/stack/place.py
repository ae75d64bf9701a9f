"""The placing stage: moves for task managers short of CPU, emptied task managers, fused and separated tasks. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from qod_magics.core.fusing import CORE, separable_streams, within_a_core
from qod_magics.core.plan import AddNode, Fuse, Move, Pair, ReleaseNode, Scale, Unfuse
from qod_magics.core.runtime import takes_instances
from qod_magics.core.snapshot import Snapshot, Spare, TaskManager, is_running, replace
from qod_magics.errors import listed
from qod_magics.policies.d_storm.solver import Known, consolidation
from qod_magics.policies.stack.stage import Demand, Lever, Proposal, View, subject
from qod_magics.policies.stela.job import one_more


@dataclass(frozen=True, slots=True)
class Place:
    """Moves an instance from each task manager that is short of CPU to one where it fits, if that takes load off; and
    empties a task manager, to be released, once all have had CPU to spare for a while. Neighbours that have long been
    on one task manager become one query while all is calm, and are separated where one of them must leave it."""

    after_s: float = 10.0  #: how long a query must be under pressure
    least: float = 5.0  #: CPU that a move must take off a task manager, % of one core
    margin: float = 1.1  #: room that the target must have, as a multiple of the instance's need
    empty_after_s: float = 60.0  #: how long all must have had CPU to spare before a task manager is emptied
    headroom: float = 0.2  #: fraction of the CPU of the others that stays free then
    fuse_after_s: float = 60.0  #: how long neighbours must have been side by side, and no query under pressure
    most: int = 8  #: instances that move for it where more than one task manager is packed again

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
        separated = separating(view.snapshot, view.demand, self.least, self.margin)
        if separated:
            return Proposal(separated)
        if view.demand.short > self.least:
            return Proposal(note=f"no move takes load off: {view.demand.short:.0f} % of a core is short everywhere")
        return Proposal()


def helpful_moves(snapshot: Snapshot, demand: Demand, least: float, margin: float) -> tuple[Move, ...]:
    """Return, for each task manager short of CPU, most first, the moves that take most load off it. Where two take as
    much, that of a query, whose pause no other task feels, and of two queries the smaller one. CPU in % of one core.

    A start costs CPU: one instance for each core arrives at a task manager that has instances, as many as fit at an
    empty one.
    """
    instances, managers = snapshot.instances, snapshot.task_managers
    room = {m: demand.room(m) for m, manager in enumerate(managers) if demand.over(m) == 0 and takes_instances(manager)}
    arrivals = {m: _starts_at_once(managers[m]) if demand.hosted[m] else len(instances) for m in room}
    ends = [not snapshot.downstream[instance.task] for instance in instances]
    found = []
    for home in sorted(range(len(managers)), key=lambda m: (-demand.over(m), managers[m].id)):
        over = demand.over(home)
        staying = [i for i in demand.hosted[home] if instances[i].rests_s is None and is_running(instances[i])]
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


def emptying_moves(snapshot: Snapshot, demand: Demand, headroom: float, most: int) -> tuple[Move, ...]:
    """Return the moves that empty a task manager whose instances fit on the others at full accuracy.

    That is the most expensive one, of equal prices the one with the least load; then further ones in this order. One
    instance for each core arrives at a task manager at once: the others follow in another proposal. Where none is
    emptied by itself: D-Storm's packing of all instances on fewer task managers, if that takes at most `most` moves. ()
    where nothing does, or one is empty already.
    """
    managers, instances = snapshot.task_managers, snapshot.instances
    up = [m for m, manager in enumerate(managers) if takes_instances(manager)]
    if len(up) < 2 or any(not demand.hosted[m] for m in up):
        return ()
    restless = {i for i, each in enumerate(instances) if each.rests_s is not None or not is_running(each)}
    moves = _emptying_moves(snapshot, demand, headroom, up, restless)
    return tuple(moves) if moves else _packing_moves(snapshot, demand, headroom, most, restless)


def _emptying_moves(
    snapshot: Snapshot, demand: Demand, headroom: float, up: Sequence[int], restless: Set[int]
) -> list[Move]:
    """Return the moves that empty the most expensive task manager that can be emptied, and further ones."""
    managers, instances = snapshot.task_managers, snapshot.instances
    free = {m: (1 - headroom) * demand.available[m] - demand.needed[m] for m in up}
    arrivals = {m: _starts_at_once(managers[m]) for m in up}
    moves: list[Move] = []
    used: set[int] = set()
    for leaving in sorted(up, key=lambda m: (-(managers[m].price or 0.0), demand.needed[m], -m)):
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
    return moves


def _packing_moves(
    snapshot: Snapshot, demand: Demand, headroom: float, most: int, restless: Set[int]
) -> tuple[Move, ...]:
    """Return the moves of D-Storm's packing on fewer task managers, if they are few and may start together."""
    managers, instances = snapshot.task_managers, snapshot.instances
    known = Known(
        {each.id: need for each, need in zip(instances, demand.instance, strict=True)},
        {each.id: cpu for each, cpu in zip(managers, demand.available, strict=True)},
        {instances[i].id for i in restless},
    )
    found = consolidation(snapshot, headroom, known=known)
    if found is None or len(found.moves) > most:
        return ()
    arriving = Counter(move.to for move in found.moves)
    return found.moves if all(arriving[each.id] <= _starts_at_once(each) for each in managers) else ()


def _starts_at_once(manager: TaskManager) -> int:
    """Return how many instances may start together on a task manager that has some: one for each core, since starts
    cost CPU."""
    return max(round(manager.cores), 1)


def _fitting(
    needs: Mapping[int, float], free: Mapping[int, float], arrivals: Mapping[int, int]
) -> dict[int, int] | None:
    """Return task managers for instances by position, the largest first, each where most CPU is `free`; as long as they
    fit, no more than `arrivals` at each. None where one does not fit."""
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


def fusing(together: Mapping[Pair, float], now_s: float, after_s: float) -> tuple[Fuse, ...]:
    """Return one pair to fuse: the one that has been `neighbours` for longest, if that is `after_s` seconds;
    `together`: since when each pair is."""
    since = min(together.items(), key=lambda each: (each[1], each[0]), default=None)
    if since is None or now_s - since[1] < after_s:
        return ()
    (source, target), begun_s = since
    why = f"they have run side by side for {now_s - begun_s:.0f} s, and no query is short of CPU"
    return (Fuse((source, target), why),)


def separating(snapshot: Snapshot, demand: Demand, least: float, margin: float = 1.0) -> tuple[Unfuse, ...]:
    """Return one fused task to separate, the largest, at its last separable stream: if its task manager lacks at least
    `least` % of a core, and one half fits elsewhere, with `margin` as a multiple of its need; or if an instance needs
    more than the core that it can use, and its task manager has more of them. None whose instance is to stay for now:
    it may move as a whole later.

    What the two halves need is not known, but one of them needs half of it at most.
    """
    room = max((demand.room(m) for m, each in enumerate(snapshot.task_managers) if takes_instances(each)), default=0.0)
    within = {task.id: separable_streams(task) for task in snapshot.tasks}
    found = [
        i
        for i, each in enumerate(snapshot.instances)
        if within[each.task]
        and each.rests_s is None
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


# --- The scaling stage ------------------------------------------------------------------------------------------------
# The scaling stage: task managers join while queries stay shed or late, and leave when the others suffice. Pure.


@dataclass(frozen=True, slots=True)
class ScaleOutAndIn:
    """Scales out and in: more instances for a task that needs more than one core, more task managers for an application
    that needs more than all have; and fewer again, once fewer have been enough for a while. The placing stage empties
    what is released."""

    after_s: float = 20.0  #: how long a query must be under pressure before more is started
    release_after_s: float = 60.0  #: how long no query may be under pressure before an instance is ended
    empty_s: float = 30.0  #: the same before a task manager without instances is released
    headroom: float = 0.2  #: fraction of the CPU that stays free where an instance fewer does the work
    left: float = 0.05  #: fraction of the CPU that stays free where an empty task manager is released
    target_share: float = 0.8  #: nothing is released while a latency is above this share of its target
    least: float = 5.0  #: CPU that must be short, % of one core

    name = "scale"
    owns = frozenset({Lever.PARALLELISM, Lever.NODES})

    def propose(self, view: View) -> Proposal:
        """See `Stage`."""
        pressed_s = view.pressed_s()
        if pressed_s >= self.after_s:
            return self._out(view, pressed_s)
        if view.eased_s() >= self.empty_s:
            return self._in(view)
        return Proposal()

    def _out(self, view: View, pressed_s: float) -> Proposal:
        snapshot, demand = view.snapshot, view.demand
        lacking = listed([each.words for each in view.pressures.values()])
        short = max(demand.short, *(need - CORE for need in demand.instance), 0.0)
        because = f"{lacking} for {pressed_s:.0f} s, {short:.0f} % of a core is short"
        wider = None if view.proposed or short <= self.least else wider_task(snapshot, demand, because)
        if wider is not None and " ".join(subject(wider)) not in view.refused:
            return Proposal((wider,))
        if demand.short <= self.least:
            if round(demand.short) > 0:
                return Proposal(
                    note=f"{lacking}: {demand.short:.0f} % of a core is short, too little to start more for"
                )
            return Proposal(note=f"{lacking}: CPU is not short, so that no task manager would help")
        kinds = snapshot.spares
        started = enough(kinds, demand.beyond, self.least)
        if not started and not view.proposed and (one := cheapest(kinds, demand.short)) is not None:
            started = (one.kind,)  # there is room, but none of it in one place
        if not started and view.proposed:
            return Proposal()
        if not started:
            return Proposal(note=f"{lacking}: no further task manager may be started (%qod up --max-task-managers)")
        return Proposal(tuple(AddNode(kind, because) for kind in started))

    def _in(self, view: View) -> Proposal:
        late = [
            task.id
            for task in view.snapshot.tasks
            if (target := task.max_latency_s) is not None and (task.latency_p95_s or 0.0) > self.target_share * target
        ]
        if late:
            return Proposal(note=f"nothing is released: {', '.join(late)} is near its latency target")
        calm = view.eased_s() >= self.release_after_s
        narrower = narrower_task(view.snapshot, view.demand, self.headroom) if calm else None
        if narrower is not None:
            return Proposal((narrower,))
        return Proposal(released(view.snapshot, view.demand, self.left) if view.snapshot.is_elastic else ())


def wider_task(snapshot: Snapshot, demand: Demand, why: str) -> Scale | None:
    """Return one more instance for a task whose instances each need more than a core, on the task manager with most
    room: the task that moves throughput most (Stela's effective throughput percentage), else the one that needs most.
    None where no task can have one, or no task manager has room."""
    width, rooms = Counter(instance.task for instance in snapshot.instances), _rooms(snapshot, demand)
    tasks = {task.id: task for task in snapshot.tasks}
    needs: dict[str, float] = {}
    for i, instance in enumerate(snapshot.instances):
        task, need = tasks[instance.task], demand.instance[i]
        if need > CORE and not task.keeps_instances and width[task.id] < (task.max_parallelism or 1.0):
            needs[task.id] = max(needs.get(task.id, 0.0), need)
    if not needs or not rooms:
        return None
    advised = [advice.task for advice in one_more(snapshot) if advice.congested and advice.task in needs]
    name = advised[0] if advised else max(needs, key=needs.__getitem__)
    each = needs[name] * width[name] / (width[name] + 1)
    target = max(rooms, key=lambda m: (rooms[m], -m))
    if rooms[target] < min(each, CORE) / 2:
        return None
    return Scale(name, width[name] + 1, (snapshot.task_managers[target].id,), why)


def narrower_task(snapshot: Snapshot, demand: Demand, headroom: float) -> Scale | None:
    """Return one instance fewer for a task whose other instances can process its share, each within its core and the
    CPU of its task manager; None without such a task."""
    width = Counter(instance.task for instance in snapshot.instances)
    mine: dict[str, list[int]] = {}
    for i, instance in enumerate(snapshot.instances):
        mine.setdefault(instance.task, []).append(i)
    for task in snapshot.tasks:
        k = width[task.id]
        if k < 2 or task.keeps_instances or task.max_parallelism is None:
            continue
        total = sum(demand.instance[i] for i in mine[task.id])
        each = total / (k - 1)
        staying = sorted(mine[task.id], key=lambda i: snapshot.instances[i].id)[:-1]
        more = dict.fromkeys(range(len(demand.available)), 0.0)
        for i in staying:
            more[demand.home[i]] += each - demand.instance[i]
        fits = all(demand.needed[m] + more[m] <= (1 - headroom) * demand.available[m] for m in more if more[m] > 0)
        if each <= (1 - headroom) * CORE and fits:
            why = f"{k - 1} instances hold {task.id} with {headroom:.0%} to spare"
            return Scale(task.id, k - 1, (), why)
    return None


def released(snapshot: Snapshot, demand: Demand, headroom: float) -> tuple[ReleaseNode, ...]:
    """Return the task managers without instances, the most expensive first, as long as the others have the CPU
    and `headroom` of it to spare; one always stays."""
    managers = snapshot.task_managers
    up = [m for m, each in enumerate(managers) if takes_instances(each)]
    empty = [m for m in up if not demand.hosted[m]]
    gone = {m for m, each in enumerate(managers) if not takes_instances(each)}
    found: list[ReleaseNode] = []
    for m in sorted(empty, key=lambda m: (managers[m].price or 0.0, managers[m].id), reverse=True):
        if len(found) + 1 < len(up) and demand.holds_without(gone | {m}, headroom):
            gone.add(m)
            found.append(ReleaseNode(managers[m].id, "nothing runs there, and the others hold everything"))
    return tuple(found)


def enough(kinds: Sequence[Spare], short: float, least: float) -> tuple[str, ...]:
    """Return the kinds of the task managers that make up for the CPU that is `short` (% of one core) up to `least`, one
    by one the `cheapest`; as many as may be started where all do not suffice."""
    found: list[str] = []
    while short > least and (one := cheapest(kinds, short)) is not None:
        found.append(one.kind)
        short -= CORE * one.cores
        kinds = [replace(spare, count=spare.count - (spare is one)) for spare in kinds]
    return tuple(found)


def cheapest(kinds: Sequence[Spare], short: float) -> Spare | None:
    """Return the cheapest kind with the CPU that is `short` (% of one core), else that with the most; None without
    any."""
    kinds = [spare for spare in kinds if spare.count > 0]
    if not kinds:
        return None
    enough = [spare for spare in kinds if CORE * spare.cores >= short]
    if enough:
        return min(enough, key=lambda spare: (spare.price or 0.0, spare.start_s, spare.cores, spare.kind))
    return max(kinds, key=lambda spare: (spare.cores, -(spare.price or 0.0), -spare.start_s, spare.kind))


def _rooms(snapshot: Snapshot, demand: Demand) -> dict[int, float]:
    return {m: demand.room(m) for m, each in enumerate(snapshot.task_managers) if takes_instances(each)}
