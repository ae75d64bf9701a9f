"""Scale-out and scale-in: which operators get instances on new machines, and which machines leave. Pure.

Scale-out is Algorithm 2.2; scale-in is Eq. 2.2 and Algorithm 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

from qod_magics.core.plan import Action, Move, ReleaseNode, Scale
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stela.job import DEFAULT, Gains, Graph, Job, Options, Rate, congested, etps


@dataclass(frozen=True, slots=True)
class Slot:
    """One new instance."""

    number: int  #: from 0
    machine: str  #: a new one
    target: str  #: the operator that gets it
    by: Literal["etp", "source"]  #: "source": nothing congested has room
    gains: Gains  #: by the rates projected so far
    before: Job  #: what `gains` was computed from
    after: Job  #: with this instance

    @property
    def etp(self) -> Rate:
        """ETP of the target, a fraction of 1, by the rates projected so far; 0 for a source that is not congested."""
        return self.gains.ranked[0].etp if self.by == "etp" else 0


def slots_per_machine(instances: int, machines: int) -> int:
    """Return N: instances for each new machine: as many as the machines have on average, rounded down, at least 1 (R3).

    `machines`: those before the scale-out.
    """
    return max(1, instances // machines)


def scale_out(job: Job, new: Sequence[str], machines: int, options: Options = DEFAULT) -> tuple[Slot, ...]:
    """Return the instances to start on the `new` machines, in the order in which they are assigned.

    Each goes to the congested operator with the highest ETP; then rates are projected, and the next is chosen by those.
    Where nothing congested has room, sources take turns (R2). Nothing that runs is moved. There are N * len(new) of
    them, fewer where no source has room either. `machines`: their number before; with 0 there is nothing to scale.
    """
    if not machines:
        return ()
    total = sum(map(job.parallelism, job.graph.ops))
    return tuple(_slots(job, new, slots_per_machine(total, machines) * len(new), options))


def _slots(job: Job, new: Sequence[str], count: int, options: Options) -> Iterator[Slot]:
    turn = 0
    for number in range(count):
        gains = Gains.of(job, options)
        if gains.ranked:
            target = gains.ranked[0].op
        else:
            open_ = [source for source in job.graph.sources if job.has_room(source)]
            if not open_:
                return
            target = open_[turn % len(open_)]
            turn += 1
        after = job.grown(target, cap_at_input=options.cap_at_input)
        by: Literal["etp", "source"] = "etp" if gains.ranked else "source"
        yield Slot(number, new[number % len(new)], target, by, gains, job, after)
        job = after


Hosted = tuple[str, str]  #: (instance, its operator)


@dataclass(frozen=True, slots=True)
class Shift:
    """An instance that moves."""

    instance: str
    source: str  #: a machine
    target: str  #: another


@dataclass(frozen=True, slots=True)
class Removal:
    """One machine that goes."""

    machine: str
    scores: Mapping[str, Rate]  #: of every machine at that time
    shifts: tuple[Shift, ...]


@dataclass(frozen=True, slots=True)
class ScaleIn:
    """The machines that go, in their order, and what runs where then."""

    removals: tuple[Removal, ...]
    placement: Mapping[str, tuple[Hosted, ...]]  #: by remaining machine

    @property
    def shifts(self) -> tuple[Shift, ...]:
        """Return each instance that moves, from where it runs to where it ends up: at most once."""
        ends: dict[str, Shift] = {}
        for removal in self.removals:
            for shift in removal.shifts:
                first = ends.get(shift.instance, shift)
                ends[shift.instance] = Shift(shift.instance, first.source, shift.target)
        return tuple(ends.values())


def score(hosted: Iterable[Hosted], value: Mapping[str, Rate]) -> Rate:
    """Return the sum over a machine's instances of their operators' values: ETPSum, where these are ETPs (Eq. 2.2)."""
    return sum((value[op] for _, op in hosted), Fraction(0))


def scale_in(
    placement: Mapping[str, Sequence[Hosted]],
    value: Mapping[str, Rate],
    remove: int,
    among: Collection[str] | None = None,
) -> ScaleIn:
    """Remove machines, each time the one with the lowest score; equal ones go in declared order (R7).

    The instances of a removed machine are distributed over the others, from the lowest score up. Scores are computed
    again after each removal.

    Args:
        placement: the instances on each machine, in placement order, machines in declared order.
        value: ETP of every operator; a baseline gives values of its own.
        remove: number of machines; one always stays.
        among: the machines that may be removed; instances go to the others. None: any.

    """
    left = {machine: list(hosted) for machine, hosted in placement.items()}
    leaving = set(left if among is None else among) & left.keys()
    staying = 1 if among is None else max(1, len(left) - len(leaving))
    removals: list[Removal] = []
    while len(removals) < remove and len(left) > staying:
        scores = {machine: score(hosted, value) for machine, hosted in left.items()}
        ranked = sorted(left, key=scores.__getitem__)
        gone = next(machine for machine in ranked if machine in leaving)
        rest = [machine for machine in ranked if machine != gone and (among is None or machine not in leaving)]
        rest = rest or [machine for machine in ranked if machine != gone]
        shifts = []
        for i, hosted in enumerate(left.pop(gone)):
            target = rest[i % len(rest)]
            shifts.append(Shift(hosted[0], gone, target))
            left[target].append(hosted)
        removals.append(Removal(gone, scores, tuple(shifts)))
    return ScaleIn(tuple(removals), {machine: tuple(hosted) for machine, hosted in left.items()})


# --- Strategies -------------------------------------------------------------------------------------------------------
# Where instances go when a job is scaled: Stela's choice, and the choices that it was compared with. Pure.
#
# The baselines are Storm's default scheduler, which places every instance again, and migration by link load (section
# 2.4).

WORKERS = 4  #: worker slots of a machine, at most (section 2.4)
Order = Literal["least", "most"]


@dataclass(frozen=True, slots=True)
class Deployment:
    """A job and what runs where."""

    job: Job
    instances: tuple[Hosted, ...]  #: in the snapshot's order
    placement: Mapping[str, tuple[Hosted, ...]]  #: by task manager, both in the snapshot's order

    @classmethod
    def of(cls, snapshot: Snapshot, job: Job, names: Collection[str]) -> Deployment:
        """Return the instances on these task managers."""
        there: dict[str, list[Hosted]] = {m.id: [] for m in snapshot.task_managers if m.id in names}
        found = []
        for instance in snapshot.instances:
            if instance.task_manager in there:
                found.append((instance.id, instance.task))
                there[instance.task_manager].append(found[-1])
        return cls(job, tuple(found), {name: tuple(hosted) for name, hosted in there.items()})


class Strategy(Protocol):
    """Where instances go."""

    def scale_out(self, deployment: Deployment, new: tuple[str, ...]) -> tuple[Action, ...]:
        """Use these new task managers; they are part of the deployment."""
        ...

    def scale_in(self, deployment: Deployment, remove: int, among: Collection[str] | None) -> tuple[Action, ...]:
        """Return moves and releases that remove `remove` task managers of `among` (None: of all), but never the last
        one."""
        ...


class ByETP:
    """Stela: new instances for the congested operators with the highest ETP, and the machines with the least go."""

    def __init__(self, options: Options = DEFAULT) -> None:
        self.options = options

    def scale_out(self, deployment: Deployment, new: tuple[str, ...]) -> tuple[Action, ...]:
        """See `Strategy`; one `Scale` for each operator that gains, in the order of its first instance."""
        slots = scale_out(deployment.job, new, len(deployment.placement) - len(new), self.options)
        return scales(slots)

    def scale_in(self, deployment: Deployment, remove: int, among: Collection[str] | None) -> tuple[Action, ...]:
        """See `Strategy`."""
        job = deployment.job
        value = etps(job, frozenset(congested(job, self.options)), self.options.mode)
        return _leaving(
            scale_in(deployment.placement, value, remove, among), lambda total: f"ETPSum {float(total):.2f}"
        )


class ReDeal:
    """Storm's default: every instance is placed again, round robin. It picks machines to remove at random.

    Here that pick is arbitrary but repeatable, by a hash of the names, since decisions have no chance. Storm restarts
    every instance; a plan has moves for those whose task manager changes.
    """

    def scale_out(self, deployment: Deployment, new: tuple[str, ...]) -> tuple[Action, ...]:
        """See `Strategy`."""
        return tuple(self._moves(deployment, tuple(deployment.placement)))

    def scale_in(self, deployment: Deployment, remove: int, among: Collection[str] | None) -> tuple[Action, ...]:
        """See `Strategy`."""
        names = [name for name in deployment.placement if among is None or name in among]
        count = min(remove, len(names), len(deployment.placement) - 1)
        gone = sorted(names, key=_hash)[:count]
        rest = tuple(name for name in deployment.placement if name not in gone and (among is None or name not in among))
        rest = rest or tuple(name for name in deployment.placement if name not in gone)
        why = "it is to leave" if among is not None else "picked regardless of load"
        return (*self._moves(deployment, rest), *(ReleaseNode(name, why) for name in gone))

    @staticmethod
    def _moves(deployment: Deployment, machines: Sequence[str]) -> Iterator[Move]:
        home = _homes(deployment.placement)
        dealt = re_deal(deployment.instances, deployment.job.graph.ops, machines)
        for instance, target in dealt.items():
            if home[instance] != target:
                yield Move(instance, target, f"all instances are dealt out to {len(machines)} task managers")


class ByLinkLoad:
    """Migration by link load, as in work before Stela: as many instances as Stela would add move to the new machines.

    That work has no scale-in: here machines go as with Stela, with link loads in place of ETPs.
    """

    def __init__(self, order: Order = "least") -> None:
        self.order = order

    def scale_out(self, deployment: Deployment, new: tuple[str, ...]) -> tuple[Action, ...]:
        """See `Strategy`."""
        job, before = deployment.job, len(deployment.placement) - len(new)
        if not before:
            return ()
        count = slots_per_machine(sum(map(job.parallelism, job.graph.ops)), before) * len(new)
        load = link_loads(job)
        op_of = dict(deployment.instances)
        picked = by_link_load(deployment.instances, job.graph, load, count, self.order)
        return tuple(
            Move(
                instance,
                new[i % len(new)],
                f"{round(load[op_of[instance]])} rows/s on its links, {self.order} first",
            )
            for i, instance in enumerate(picked)
        )

    def scale_in(self, deployment: Deployment, remove: int, among: Collection[str] | None) -> tuple[Action, ...]:
        """See `Strategy`."""
        load = link_loads(deployment.job)
        if self.order == "most":
            load = {op: -rate for op, rate in load.items()}
        return _leaving(
            scale_in(deployment.placement, load, remove, among),
            lambda total: f"{round(abs(Fraction(total)))} rows/s on links",
        )


def scales(slots: Sequence[Slot]) -> tuple[Scale, ...]:
    """Return one action for each operator, with the machines of its new instances and the reason for the first of
    them."""
    firsts: dict[str, Slot] = {}
    to: dict[str, list[str]] = {}
    for slot in slots:
        firsts.setdefault(slot.target, slot)
        to.setdefault(slot.target, []).append(slot.machine)
    return tuple(
        Scale(op, first.before.parallelism(op) + len(to[op]), tuple(to[op]), _reason(first))
        for op, first in firsts.items()
    )


def _reason(slot: Slot) -> str:
    if slot.by == "source":
        return "no congested task may have another instance: the sources take turns"
    job, op = slot.before, slot.target
    measured = "" if slot.number == 0 else f", as projected for instance {slot.number + 1} of the plan"
    return (
        f"ETP {float(slot.etp):.0%} of {round(job.throughput)} rows/s; it is congested: input "
        f"{round(job.input(op))} rows/s, {round(job.processed[op])} of them read{measured}"
    )


def _leaving(result: ScaleIn, words: Callable[[Rate], str]) -> tuple[Action, ...]:
    """Return the moves, then the releases; `words`: how a machine's score is worded."""
    moves = [Move(shift.instance, shift.target, f"{shift.source} is to leave") for shift in result.shifts]
    releases = [
        ReleaseNode(gone.machine, f"{words(gone.scores[gone.machine])} among {len(gone.scores)} task managers")
        for gone in result.removals
    ]
    return (*moves, *releases)


def _homes(placement: Mapping[str, Sequence[Hosted]]) -> Mapping[str, str]:
    return {instance: machine for machine, hosted in placement.items() for instance, _ in hosted}


def _hash(name: str) -> int:
    """Return the hash FNV-1a, 64 bits: the same in every process."""
    found = 0xCBF29CE484222325
    for byte in name.encode("utf-8", "surrogatepass"):
        found = (found ^ byte) * 0x100000001B3 % 2**64
    return found


def re_deal(
    instances: Sequence[Hosted], ops: Sequence[str], machines: Sequence[str], workers: int | None = None
) -> Mapping[str, str]:
    """Return the machine by instance as Storm's default scheduler assigns it, which places every instance again.

    Instances are listed by operator, then in the given order, and assigned round robin to the worker slots, which are
    listed machine by machine in turn: the first slot of each, then the second of each.

    Args:
        instances: all instances.
        ops: the operators in declared order.
        machines: those that there are now.
        workers: number of worker slots; None: four on each machine.

    """
    rank = {op: i for i, op in enumerate(ops)}
    slots = [machines[slot % len(machines)] for slot in range(workers or WORKERS * len(machines))]
    dealt = sorted(instances, key=lambda hosted: rank[hosted[1]])
    return {instance: slots[i % len(slots)] for i, (instance, _) in enumerate(dealt)}


def link_loads(job: Job) -> Mapping[str, Rate]:
    """Return rows/s on the edges of one instance of each operator: all that the operator receives and sends, / k_o."""
    load: dict[str, Rate] = dict.fromkeys(job.graph.ops, Fraction(0))
    for (source, target), rate in job.emitted.items():
        load[source] += rate
        load[target] += rate
    return {op: rate / job.parallelism(op) for op, rate in load.items()}


def by_link_load(
    instances: Iterable[Hosted], graph: Graph, load: Mapping[str, Rate], count: int, order: Order = "least"
) -> tuple[str, ...]:
    """Return the `count` instances that Least (or Most) Link Load migrates, in the order in which it picks them.

    First the one with the least load; then, again and again, the first remaining one by load whose operator is adjacent
    to that of a picked one, or else the first remaining one. Of equal loads, the first declared operator goes first,
    and its instances in the given order.
    """
    sign = 1 if order == "least" else -1
    rank = {op: i for i, op in enumerate(graph.ops)}
    waiting = sorted(instances, key=lambda hosted: (sign * load[hosted[1]], rank[hosted[1]]))
    picked: list[str] = []
    near: set[str] = set()
    while waiting and len(picked) < count:
        at = next((i for i, (_, op) in enumerate(waiting) if op in near), 0)
        instance, op = waiting.pop(at)
        picked.append(instance)
        near.update(graph.children[op], graph.parents[op])
    return tuple(picked)
