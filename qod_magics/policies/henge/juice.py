"""Juice: the share of a job's input that was processed as far as an operator (Henge, section 3.3). Pure.

Numbers may be floats or Fractions; the result is of the kind that was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter

Upstream = Mapping[str, Sequence[str]]  #: the parents of each operator; (): a spout
Link = tuple[str, str]  #: (parent, operator)


def operator_juice(
    upstream: Upstream,
    sent: Mapping[str, float],
    executed: Mapping[Link, float],
    entry: Mapping[str, float] | None = None,
) -> dict[str, dict[str, float]]:
    """J_o^s of each operator, by the spouts that feed it (equation 4, Eq. 3.3 of the source).

    Args:
        upstream: the job's DAG.
        sent: T of each operator with children: tuples sent in the window, **counting every copy delivered**, on all
            its out-edges together (H-R1). With tuples emitted instead, juice can exceed the number of spouts.
        executed: E of each edge: tuples from the parent that the operator executed in the window.
        entry: J_s^s of spouts, 1 by default: a spout of Storm fetches what it sends. A source of Spark reads a topic,
            in which rows wait.

    An operator that sent nothing passes its juice on in equal parts, so that the total is preserved. A spout that an
    operator is not fed by has no entry (H-R2). Values above 1 are left as they are: a backlog drains (H-R3).

    """
    children: dict[str, int] = dict.fromkeys(upstream, 0)
    for parents in upstream.values():
        for parent in parents:
            children[parent] += 1
    juice: dict[str, dict[str, float]] = {}
    for operator in TopologicalSorter(upstream).static_order():
        parents = upstream[operator]
        if not parents:
            juice[operator] = {operator: 1 if entry is None else entry.get(operator, 1)}
            continue
        mine: dict[str, float] = {}
        for parent in parents:
            total = sent.get(parent, 0)
            for spout, share in juice[parent].items():
                if total:
                    passed = share * executed.get((parent, operator), 0) / total
                else:
                    passed = share / children[parent]
                mine[spout] = mine.get(spout, 0) + passed
        juice[operator] = mine
    return juice


def job_juice(
    upstream: Upstream,
    sent: Mapping[str, float],
    executed: Mapping[Link, float],
    entry: Mapping[str, float] | None = None,
    *,
    clamp: bool = False,
) -> float:
    """J_q: juice of all sinks over the number of spouts (equation 5, Eq. 3.4 of the source); arguments as above.

    `clamp`: at most 1, for display. Raises ValueError for a job without operators.
    """
    if not upstream:
        raise ValueError("a job without operators has no juice: give its DAG")
    juice = operator_juice(upstream, sent, executed, entry)
    feeding = {parent for parents in upstream.values() for parent in parents}
    spouts = sum(not parents for parents in upstream.values())
    total: float = sum(value for sink in upstream if sink not in feeding for value in juice[sink].values())
    found = total / spouts
    return min(found, 1) if clamp else found
