"""The order in which nodes are filled (Eq. 5.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from qod_magics.policies.d_storm.problem import Demand, Node


def availability(nodes: Iterable[Node], demands: Sequence[Demand]) -> list[float]:
    """By node, how many average instances it could hold in its scarcer resource; infinite if none is demanded."""
    cpu, memory = sum(demand.cpu for demand in demands), sum(demand.memory for demand in demands)
    return [min(_held(node.cpu, cpu, len(demands)), _held(node.memory, memory, len(demands))) for node in nodes]


def in_order(nodes: Sequence[Node], demands: Sequence[Demand]) -> list[Node]:
    """The nodes by `availability`, the largest first; equal ones in the order given. Sorted once, before packing."""
    available = availability(nodes, demands)
    return [nodes[k] for k in sorted(range(len(nodes)), key=lambda k: -available[k])]


def _held(capacity: float, total: float, n: int) -> float:
    return n * capacity / total if total > 0 else inf
