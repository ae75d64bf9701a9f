"""Scale-in: which machines go, and where their instances move (Stela, Eq. 2.2 and Algorithm 2.3). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from qod_magics.policies.stela.job import Rate

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
    """The sum over a machine's instances of their operators' values: ETPSum, where these are ETPs (Eq. 2.2)."""
    return sum((value[op] for _, op in hosted), Fraction(0))


def scale_in(
    placement: Mapping[str, Sequence[Hosted]],
    value: Mapping[str, Rate],
    remove: int,
    among: Collection[str] | None = None,
) -> ScaleIn:
    """Remove machines, each time the one with the lowest score; equal ones go in declared order (R7).

    The instances of a machine that goes are dealt out to the others, from the lowest score up. Scores are computed
    again after each removal.

    Args:
        placement: the instances on each machine, in placement order, machines in declared order.
        value: ETP of every operator; a baseline gives values of its own.
        remove: number of machines; one always stays.
        among: the machines that may go; instances are dealt to the others. None: any.

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
