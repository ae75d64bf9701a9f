"""What the evaluation of the source models and measures: proportional throughput, convergence, down time. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, isclose
from statistics import fmean, pstdev

from qod_magics.policies.stela.job import Edge, Graph, Job, Rate


@dataclass(frozen=True, slots=True)
class Proportional:
    """An operator processes the lesser of its input and k_o times what one instance can, rows/s."""

    graph: Graph
    offered: Mapping[str, Rate]  #: by source
    each: Mapping[str, Rate]  #: r_o: what one instance can process
    selectivity: Mapping[Edge, Rate]  #: rows out on an edge for each row in; absent: 1

    def job(self, instances: Mapping[str, int], most: Mapping[str, int]) -> Job:
        """Return the job as it would be measured with these instances: rates settled, capacities known."""
        processed: dict[str, Rate] = {}
        emitted: dict[Edge, Rate] = {}
        capacity = {op: instances[op] * self.each[op] for op in self.graph.ops}
        for op in self.graph.parents_first:
            parents = self.graph.parents[op]
            arriving = sum(emitted[p, op] for p in parents) if parents else self.offered[op]
            processed[op] = min(arriving, capacity[op])
            for child in self.graph.children[op]:
                emitted[op, child] = processed[op] * self.selectivity.get((op, child), Fraction(1))
        return Job(self.graph, processed, emitted, self.offered, instances, most, capacity)


WINDOW_S = 10.0
_WITHIN = 0.05  #: of the mean: the standard deviation up to which throughput has settled
_FLAT = 4  #: samples equal to the mean that count as settled, too


def settled_mean(throughput: Sequence[float]) -> float:
    """Return the mean of the last half of the record (the longer half of an odd one), rows/s."""
    return fmean(throughput[len(throughput) // 2 :])


def convergence_s(throughput: Sequence[float], window_s: float = WINDOW_S) -> float | None:
    """Return seconds from the start of an operation until its throughput has settled; None if it does not within the
    record.

    It has at the end of the first window that closes a run of windows with a standard deviation of at most 5 % of the
    settled mean, in which the throughput rose above that mean twice and fell below it twice, in any order; or where the
    last four windows equal the mean (R8).

    Args:
        throughput: rows/s of each window, the first one being that in which the operation starts.
        window_s: length of a window.

    """
    if not throughput:
        return None
    mean = settled_mean(throughput)
    for j in range(len(throughput)):
        if _is_flat(throughput[: j + 1], mean) or any(
            _oscillates(throughput[i : j + 1], mean) for i in range(j - 3, -1, -1)
        ):
            return (j + 1) * window_s
    return None


def down_s(throughput: Sequence[float], window_s: float = WINDOW_S) -> float:
    """Return the total length of the windows without any throughput, seconds."""
    return window_s * sum(1 for rate in throughput if not rate)


def _is_flat(run: Sequence[float], mean: float) -> bool:
    return len(run) >= _FLAT and all(isclose(rate, mean, rel_tol=1e-9) for rate in run[-_FLAT:])


def _oscillates(run: Sequence[float], mean: float) -> bool:
    above = below = 0
    side = 0
    for rate in run:
        now = (rate > mean) - (rate < mean) or side  # a sample equal to the mean goes on as it was
        if now != side:
            above += now > 0
            below += now < 0
        side = now
    return above >= 2 and below >= 2 and pstdev(run) <= _WITHIN * mean


def chance_of_best(machines: int, best: int, remove: int) -> Fraction:
    """Return the probability that machines removed at random include all of those that are best to remove.

    Section 2.4.4 and R17: 4 of 8, two of which have the lowest ETP: 3/14.

    Args:
        machines: their number before.
        best: the number of those that are best to remove.
        remove: the number of those that are removed.

    """
    return Fraction(comb(machines - best, remove - best), comb(machines, remove)) if remove >= best else Fraction(0)
