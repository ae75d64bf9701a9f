"""What a node gives up when its memory is nearly full: optional, after the prototype. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from qod_magics.core.segments import Copy


def guard(
    planned: Mapping[str, Collection[str]],
    popularity: Mapping[str, int],
    size: Mapping[str, int],
    memory: Mapping[str, int],
    limit: float,
) -> tuple[Copy, ...]:
    """Copies to leave out of a plan: while a node would use more than `limit` of its memory, its least popular one.

    The last copy of a segment stays, so a node may keep more than its limit. Nodes in the order of `planned`; of equal
    segments the first by name. Nodes without an entry in `memory` have no limit.
    """
    copies = Counter(segment for there in planned.values() for segment in there)
    left_out = []
    for node, there in planned.items():
        if node not in memory:
            continue
        used = sum(size[segment] for segment in there)
        for segment in sorted(there, key=lambda each: (popularity.get(each, 0), each)):
            if used <= limit * memory[node]:
                break
            if copies[segment] > 1:
                copies[segment] -= 1
                used -= size[segment]
                left_out.append((node, segment))
    return tuple(left_out)
