"""Effective throughput percentage: the share of a job's throughput that an operator can move (Stela, Eq. 2.1). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from qod_magics.policies.stela.job import Job, Rate
from qod_magics.policies.stela.options import Mode


def etp(job: Job, op: str, congested: Collection[str], mode: Mode = "set") -> Rate:
    """ETP of an operator, a fraction of 1: throughput of the sinks that it reaches / throughput of all sinks.

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
    """The same for every operator, congested or not, as scale-in needs it (section 2.3)."""
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
