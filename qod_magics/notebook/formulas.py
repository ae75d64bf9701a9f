"""Formulas of the lab about deadlines that no policy computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from math import inf
from typing import TypeVar

Node = TypeVar("Node", int, str)


def critical_paths(targets: Mapping[Node, Sequence[Node]], cost: Mapping[Node, int]) -> dict[Node, int]:
    """Return the largest sum of costs over the paths from the successors of each operator to a sink (4); 0 of a sink.

    Raises:
        graphlib.CycleError: the graph is no DAG.

    """
    order = TopologicalSorter({node: targets.get(node, ()) for node in cost}).static_order()
    found: dict[Node, int] = {}
    for node in order:
        found[node] = max((cost[each] + found[each] for each in targets.get(node, ())), default=0)
    return found


def popularity(number: int, exponent: float) -> list[float]:
    """Return shares of `number` objects, proportional to k^-exponent, the most popular first; infinite: it alone."""
    if exponent == inf:
        return [1.0] + [0.0] * (number - 1)
    weights = [(k + 1) ** -exponent for k in range(number)]
    total = sum(weights)
    return [weight / total for weight in weights]


def static_limit(number: int, exponent: float) -> float:
    """Return the mean utilisation of the workers, one per object, at which static binding saturates the hottest one."""
    return 1 / (number * popularity(number, exponent)[0])
