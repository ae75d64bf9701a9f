"""Which operator gains most throughput from one more instance. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from qod_magics.policies.stela.congestion import congested
from qod_magics.policies.stela.etp import etp
from qod_magics.policies.stela.job import Job, Rate
from qod_magics.policies.stela.options import DEFAULT, Options


@dataclass(frozen=True, slots=True)
class Gain:
    """What one more instance of an operator can move."""

    op: str
    etp: Rate  #: fraction of 1 of the job's throughput


@dataclass(frozen=True, slots=True)
class Gains:
    """The congested operators of a job, and those among them that may have one more instance."""

    congested: tuple[str, ...]  #: in declared order
    ranked: tuple[Gain, ...]  #: the most gain first; of equal ones, the first declared (R9)

    @classmethod
    def of(cls, job: Job, options: Options = DEFAULT) -> Gains:
        """Only congested operators are ranked (R4), and none that has its maximum of instances (R12)."""
        full = congested(job, options)
        closed = frozenset(full)
        found = [Gain(op, etp(job, op, closed, options.mode)) for op in full if job.has_room(op)]
        return cls(full, tuple(sorted(found, key=lambda gain: -gain.etp)))
