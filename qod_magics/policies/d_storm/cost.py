"""What nodes cost while they are up (section 5.4)."""

from __future__ import annotations

from collections.abc import Iterable

from qod_magics.policies.d_storm.problem import Node


def costs(*sets: Iterable[Node]) -> tuple[float, ...]:
    """What each of these sets of nodes costs, to compare them: per hour, or in cores unless all have a price."""
    found = [list(nodes) for nodes in sets]
    priced = all(node.price is not None for nodes in found for node in nodes)
    return tuple(sum((node.price or 0.0) if priced else node.size[0] for node in nodes) for nodes in found)
