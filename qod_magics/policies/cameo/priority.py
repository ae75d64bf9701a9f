"""Priorities of messages, lower first (5), and costs along the longest path (4). Times in one unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import TypeAlias, TypeVar

Node = TypeVar("Node", int, str)
#: of frontier time, latency target, cost on the target, cost after it
Urgency: TypeAlias = Callable[[int, int, int, int], int]
#: above every time: a message without a token. A number, so that all priorities are compared as such.
LEAST_URGENT = 1 << 80


def start_deadline(frontier_time: int, target: int, cost: int, after: int) -> int:
    """Latest moment at which a message may start: least laxity first, the default (3)."""
    return frontier_time + target - cost - after


def completion_deadline(frontier_time: int, target: int, cost: int, after: int) -> int:
    """Latest moment at which a message may be done: earliest deadline first."""
    return frontier_time + target - after


def shortest_job(frontier_time: int, target: int, cost: int, after: int) -> int:
    """Cost of the message: shortest job first. Knows no deadline."""
    return cost


URGENCY: Mapping[str, Urgency] = {"llf": start_deadline, "edf": completion_deadline, "sjf": shortest_job}


def critical_paths(targets: Mapping[Node, Sequence[Node]], cost: Mapping[Node, int]) -> dict[Node, int]:
    """Largest sum of costs over the paths from the successors of each operator to a sink (4); 0 of a sink.

    Raises:
        graphlib.CycleError: the graph is no DAG.

    """
    order = TopologicalSorter({node: targets.get(node, ()) for node in cost}).static_order()
    found: dict[Node, int] = {}
    for node in order:
        found[node] = max((cost[each] + found[each] for each in targets.get(node, ())), default=0)
    return found
