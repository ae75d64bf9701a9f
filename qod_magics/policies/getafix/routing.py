"""Which node answers a pair: nodes share a segment's pairs in the proportion of the routing table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction


def probabilities(shares: Mapping[str, int]) -> dict[str, Fraction]:
    """The chance of each node to get a pair: y_jh / sum over h."""
    total = sum(shares.values())
    return {node: Fraction(share, total) for node, share in shares.items()}


class Router:
    """Deterministic, for one segment: each pair goes to the node that is furthest behind its share."""

    def __init__(self, shares: Mapping[str, int]) -> None:
        self.shares = shares
        self.sent = dict.fromkeys(shares, 0)

    def route(self) -> str:
        """The node of the next pair: greatest y_jh (t + 1) / sum - sent_h, with t pairs routed; of equal the first."""
        total, following = sum(self.shares.values()), sum(self.sent.values()) + 1
        node = max(self.shares, key=lambda each: self.shares[each] * following - self.sent[each] * total)
        self.sent[node] += 1
        return node
