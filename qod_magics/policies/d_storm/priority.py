"""The priority of an instance for the open node (Eq. 5.5), and when one exceeds another."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

NOTHING = 1e-12  #: a cost, or a numerator, that counts as 0
EQUAL = 1e-9  #: relative difference of priorities, and difference of costs, that counts as none


@dataclass(frozen=True, slots=True)
class Priority:
    """q(i,k) as its parts, since infinite ones differ in their numerators."""

    numerator: float  #: alpha * q1 + beta * q2, or alpha * q1 above the threshold
    cost: float  #: q3: by how much it raises the usage of the node, a fraction of 1

    @property
    def is_infinite(self) -> bool:
        """Whether it gains traffic at no cost of the node's critical resource."""
        return self.cost <= NOTHING < self.numerator

    @property
    def value(self) -> float:
        """The quotient, or its limit where the cost is 0."""
        if self.cost <= NOTHING:
            return inf if self.numerator > NOTHING else 0.0
        return self.numerator / self.cost


def share(used: float, capacity: float) -> float:
    """The usage of one resource, a fraction of 1. Where there is none of it: 0 if none is used, else infinite."""
    if capacity > 0:
        return used / capacity
    return inf if used > EQUAL else 0.0


def exceeds(numerator: float, cost: float, other_numerator: float, other_cost: float) -> bool:
    """Whether the first priority wins over the second: it is higher, or equal at a higher cost (larger items first)."""
    infinite = cost <= NOTHING < numerator
    other_infinite = other_cost <= NOTHING < other_numerator
    if infinite is not other_infinite:
        return infinite
    if infinite:
        mine, other = numerator, other_numerator
    else:
        mine = numerator / cost if cost > NOTHING else 0.0
        other = other_numerator / other_cost if other_cost > NOTHING else 0.0
    if mine > other:
        if mine - other > EQUAL * mine:
            return True
    elif other - mine > EQUAL * other:
        return False
    return cost > other_cost + EQUAL
