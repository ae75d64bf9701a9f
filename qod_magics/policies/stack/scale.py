"""The scaling stage: task managers join while queries stay shed or late, and leave when the others suffice. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from qod_magics.core.copying import replace
from qod_magics.core.fusion import CORE
from qod_magics.core.nodes import Spare
from qod_magics.core.plan import AddNode, ReleaseNode, Scale
from qod_magics.core.runtime import takes_instances
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.wording import listed
from qod_magics.policies.stack.stage import Demand, Lever, Proposal, View
from qod_magics.policies.stack.under_way import subject
from qod_magics.policies.stela.etp import one_more


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
        if need > CORE and not task.stateful and width[task.id] < (task.max_parallelism or 1.0):
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
        if k < 2 or task.stateful or task.max_parallelism is None:
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
    """Return the task managers without instances, the dearest first, as long as the others have the CPU and `headroom`
    of it to spare; one always stays."""
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
