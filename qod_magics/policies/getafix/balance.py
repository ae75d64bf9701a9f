"""Even numbers of copies on the nodes, at the price of even load: optional, after the prototype. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qod_magics.policies.getafix.allocation import Allocation


@dataclass(frozen=True, slots=True)
class Shift:
    """Pairs of a segment that go to another node, with their copy."""

    segment: str
    pairs: int
    source: int  #: node, by position
    target: int


def balance(plan: Allocation, order: Sequence[str]) -> tuple[Allocation, tuple[Shift, ...]]:
    """Move copies until no node has two more than another.

    Each time the node with most copies gives its smallest share to the node with fewest: of equal nodes the first, of
    equal shares the segment that comes first in `order`. Pairs that meet a copy there join it: one copy less.
    """
    bins = [dict(each) for each in plan.bins]
    rank = {segment: j for j, segment in enumerate(order)}
    shifts = []
    while bins:
        nodes = range(len(bins))
        most = max(nodes, key=lambda node: len(bins[node]))
        fewest = min(nodes, key=lambda node: len(bins[node]))
        if len(bins[most]) - len(bins[fewest]) <= 1:
            break
        segment = min(bins[most], key=lambda each: (bins[most][each], rank[each]))
        pairs = bins[most].pop(segment)
        bins[fewest][segment] = bins[fewest].get(segment, 0) + pairs
        shifts.append(Shift(segment, pairs, most, fewest))
    return Allocation(tuple(bins)), tuple(shifts)
