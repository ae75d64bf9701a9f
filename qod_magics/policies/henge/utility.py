"""Utility of a job by how far it attains its target, and the order in which jobs that miss theirs are helped. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

Curve = Callable[[float], float]  #: monotone, from the ratio to which a target is attained to 0..1; 1 from 1 on


@dataclass(frozen=True, slots=True)
class Utility:
    """A job's utility, in units of utility."""

    current: float  #: u
    most: float  #: U: of a job that meets its target

    @property
    def is_met(self) -> bool:
        """Whether the job meets its target: its utility is the maximum."""
        return self.current >= self.most

    @property
    def share(self) -> float:
        """u/U; 1 for a job of no utility."""
        return self.current / self.most if self.most else 1.0


def knee(attained: float) -> float:
    """The built-in curve: in proportion up to the target, flat beyond it."""
    return min(1, attained)


def throughput_utility(juice: float, threshold: float, most: float, curve: Curve = knee) -> float:
    """Equation 1 (3.1 of the source): u = U min(1, J / threshold). All of U without a threshold (0)."""
    return most * curve(juice / threshold) if threshold else most


def latency_utility(latency: float, threshold: float, most: float, curve: Curve = knee) -> float:
    """Equation 2 (3.2 of the source): u = U min(1, threshold / L); both in the same unit. All of U at latency 0."""
    return most * curve(threshold / latency) if latency > 0 else most


def hybrid_utility(by_latency: float, by_throughput: float) -> float:
    """Equation 3: mean of the two, for a job with both targets."""
    return (by_latency + by_throughput) / 2


def current_latency(finished: float | None, oldest: float | None) -> float:
    """L of a job, seconds: latency of the tuples that finished, and if none did the age of the oldest unfinished one.

    An oldest tuple that is older than that counts in any case: it will have at least this latency, and the last results
    may be from long ago. 0: nothing finished, nothing waits.
    """
    return max(finished or 0.0, oldest or 0.0)


def satisfaction(jobs: Iterable[Utility]) -> float:
    """100 W / W* (equation 7), %: utility of all jobs over its maximum. 100 without jobs."""
    each = tuple(jobs)
    most = sum(job.most for job in each)
    return 100 * sum(job.current for job in each) / most if most else 100.0


def farthest_first(jobs: Mapping[str, Utility]) -> list[str]:
    """Jobs that miss their target, farthest from it first; then the larger utility, then by name (equation 11)."""
    missing = [name for name, job in jobs.items() if not job.is_met]
    return sorted(missing, key=lambda name: (jobs[name].share, -jobs[name].most, name))


def priority_first(jobs: Mapping[str, Utility]) -> list[str]:
    """Jobs that miss their target, by maximum utility downwards, then current utility upwards, then by name: the order
    of the authors' prototype (H-R5)."""
    missing = [name for name, job in jobs.items() if not job.is_met]
    return sorted(missing, key=lambda name: (-jobs[name].most, jobs[name].current, name))
