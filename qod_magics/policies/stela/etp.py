"""Effective throughput percentage: the share of a job's throughput that an operator can move (Eq. 2.1). Pure.

Congested operators are the candidates for more instances (section 2.2.3); `Gains` ranks them by ETP. `one_more` gives
the same ranking to policies that decide themselves when to scale; Stela scales only on request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stela.job import CONGESTION_RATE, DEFAULT, NO_SAMPLES, Job, Mode, Options, Rate, Samples


def is_congested(arriving: Rate, processed: Rate, congestion_rate: Rate = CONGESTION_RATE) -> bool:
    """Return whether arriving / processed > congestion_rate, strictly; where nothing is processed, whether anything
    arrives.

    Rates in rows/s. The input is compared with what is processed, not with what is emitted: a filter is not congested.
    """
    return arriving > congestion_rate * processed if processed else arriving > 0


def congested(job: Job, options: Options = DEFAULT) -> tuple[str, ...]:
    """Return C: the congested operators, in declared order. A source is one where its offered rate exceeds what it
    reads (R5)."""
    by_capacity = options.projection == "capacity"
    threshold = options.threshold
    return tuple(
        op
        for op in job.graph.ops
        if is_congested(
            job.input(op), job.capacity.get(op, job.processed[op]) if by_capacity else job.processed[op], threshold
        )
    )


def etp(job: Job, op: str, congested: Collection[str], mode: Mode = "set") -> Rate:
    """Return the ETP of an operator, a fraction of 1: throughput of the sinks that it reaches / throughput of all
    sinks.

    A sink is reached if some path to it has no congested operator after `op`; a sink reaches itself, even if it is
    congested. 0 while the throughput is 0. O(operators + edges). In mode "paths" (Algorithm 2.1, R1) a sink counts once
    for each such path, and the result may exceed 1.
    """
    throughput = job.throughput
    if not throughput:
        return 0
    reached = _by_sinks(job, op, congested) if mode == "set" else _by_paths(job, op, congested)
    return reached / throughput


def etps(job: Job, congested: Collection[str], mode: Mode = "set") -> Mapping[str, Rate]:
    """Return the ETP of every operator, congested or not, as scale-in needs it (section 2.3)."""
    return {op: etp(job, op, congested, mode) for op in job.graph.ops}


def _by_sinks(job: Job, op: str, congested: Collection[str]) -> Rate:
    children = job.graph.children
    seen, waiting = {op}, [op]
    total: Rate = 0
    while waiting:
        at = waiting.pop()
        if not children[at]:
            total += job.processed[at]
        for child in children[at]:
            if child not in congested and child not in seen:
                seen.add(child)
                waiting.append(child)
    return total


def _by_paths(job: Job, op: str, congested: Collection[str]) -> Rate:
    graph = job.graph
    below: dict[str, Rate] = {}
    for at in reversed(graph.parents_first):
        if graph.children[at]:
            below[at] = sum(below[child] for child in graph.children[at] if child not in congested)
        else:
            below[at] = job.processed[at]
        if at == op:
            break
    return below[op]


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
        """Rank congested operators only (R4), and none that has its maximum of instances (R12)."""
        full = congested(job, options)
        closed = frozenset(full)
        found = [Gain(op, etp(job, op, closed, options.mode)) for op in full if job.has_room(op)]
        return cls(full, tuple(sorted(found, key=lambda gain: -gain.etp)))


@dataclass(frozen=True, slots=True)
class Advice:
    """A task that may have one more instance."""

    task: str
    etp: float  #: fraction of 1 of the job's throughput that it can move
    congested: bool  #: False: a source, given where no congested task may have more; nothing waits for it


def one_more(snapshot: Snapshot, options: Options = DEFAULT, samples: Samples | None = None) -> tuple[Advice, ...]:
    """Return the tasks that may have one more instance, the one that moves throughput most first; () if none may.

    Congested tasks in the order of their ETPs; where none of them may have more instances, the sources that may, in
    declared order. A task that sheds is congested once it keeps less than 1 / `congestion_rate` of its input: its
    rates in snapshots are those after its shedder, its streams' those before.

    Args:
        snapshot: a valid one.
        options: the readings of Stela.
        samples: mean rates of several snapshots, the last of which is this one; None: the rates of this one.

    """
    job = (samples or NO_SAMPLES.with_(snapshot)).job(snapshot)
    gains = Gains.of(job, options)
    if gains.ranked:
        return tuple(Advice(gain.op, float(gain.etp), True) for gain in gains.ranked)
    closed = frozenset(gains.congested)
    return tuple(
        Advice(source, float(etp(job, source, closed, options.mode)), False)
        for source in job.graph.sources
        if job.has_room(source)
    )
