"""What Stela was compared with: Storm's default scheduler and migration by link load (section 2.4). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import comb
from typing import Literal

from qod_magics.policies.stela.graph import Graph
from qod_magics.policies.stela.job import Job, Rate
from qod_magics.policies.stela.scale_in import Hosted

WORKERS = 4  #: worker slots of a machine, at most (section 2.4)

Order = Literal["least", "most"]


def re_deal(
    instances: Sequence[Hosted], ops: Sequence[str], machines: Sequence[str], workers: int | None = None
) -> Mapping[str, str]:
    """Storm's default: every instance is placed anew. The machine by instance.

    Instances are listed by operator, then in the given order, and dealt round robin over the worker slots, which are
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
    """Rows/s on the edges of one instance of each operator: all that the operator receives and sends, / k_o."""
    load: dict[str, Rate] = dict.fromkeys(job.graph.ops, Fraction(0))
    for (source, target), rate in job.emitted.items():
        load[source] += rate
        load[target] += rate
    return {op: rate / job.parallelism(op) for op, rate in load.items()}


def by_link_load(
    instances: Iterable[Hosted], graph: Graph, load: Mapping[str, Rate], count: int, order: Order = "least"
) -> tuple[str, ...]:
    """The `count` instances that Least (or Most) Link Load migrates, in the order in which it picks them.

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


def chance_of_best(machines: int, best: int, remove: int) -> Fraction:
    """The probability that machines removed at random include all of those that are best to remove.

    Section 2.4.4 and R17: 4 of 8, two of which have the lowest ETP: 3/14.

    Args:
        machines: their number before.
        best: the number of those that are best to remove.
        remove: the number of those that are removed.

    """
    return Fraction(comb(machines - best, remove - best), comb(machines, remove)) if remove >= best else Fraction(0)
