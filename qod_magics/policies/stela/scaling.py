"""Scale-out and scale-in: which operators get instances on new machines, and which machines leave. Pure.

Scale-out is Algorithm 2.2; scale-in is Eq. 2.2 and Algorithm 2.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from qod_magics.policies.stela.etp import Gains
from qod_magics.policies.stela.job import DEFAULT, Job, Options, Rate


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
        """Each instance that moves, from where it runs to where it ends up: at most once."""
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
