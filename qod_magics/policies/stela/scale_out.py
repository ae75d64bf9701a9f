"""Scale-out: which operators get the instances of new machines (Stela, Algorithm 2.2). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from qod_magics.policies.stela.gains import Gains
from qod_magics.policies.stela.job import Job, Rate
from qod_magics.policies.stela.options import DEFAULT, Options


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
    """N: instances for each new machine: as many as the machines have on average, rounded down, at least 1 (R3).

    `machines`: those before the scale-out.
    """
    return max(1, instances // machines)


def scale_out(job: Job, new: Sequence[str], machines: int, options: Options = DEFAULT) -> tuple[Slot, ...]:
    """The instances to start on the `new` machines, in the order in which they are assigned.

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
