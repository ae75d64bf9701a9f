"""What the policies of this package share: who holds a segment, and which copies are garbage."""

from __future__ import annotations

from collections.abc import Iterator

from qod_magics.core.segments import Copy, Observation


def copies_of(seen: Observation, segment: str) -> list[str]:
    """The nodes that hold a segment, in declared order."""
    return [node for node in seen.nodes if segment in seen.held[node]]


def expired(seen: Observation) -> Iterator[Copy]:
    """Garbage: copies of segments that queries may ask for no longer."""
    wanted = set(seen.segments)
    for node in seen.nodes:
        for segment in sorted(seen.held[node] - wanted):
            yield node, segment
