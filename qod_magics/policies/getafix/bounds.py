"""Bounds on the number of copies, by counting, and its exact minimum for small cases. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from qod_magics.errors import UsageProblem
from qod_magics.policies.getafix.allocation import checked_counts
from qod_magics.policies.getafix.packing import capacities

#: Segments up to which the exact minimum is worked out: time grows with their number as 3^m.
MOST_SEGMENTS = 10


def replica_bounds(segments: int, nodes: int) -> tuple[int, int]:
    """Lower bound on the copies of any plan, m, and upper bound on those of ModifiedBestFit, m + n - 1 (4).

    ModifiedBestFit splits a segment only when it fills a node, which it does at most n - 1 times before the end.
    Segments without pairs do not count.
    """
    return segments, segments + nodes - 1 if segments else 0


def most_effective_replication_factor(segments: int, nodes: int) -> float:
    """(m + n - 1) / m, which R / m does not exceed."""
    return (segments + nodes - 1) / segments


def minimum_replicas(counts: Mapping[str, int], nodes: int) -> int:
    """The least number of copies with which no node takes more than ceil(sum of c / n) pairs, of equal nodes.

    Segments that share nodes form a group. One of weight w takes ceil(w / capacity) nodes and, since its copies may be
    taken to form a tree, one copy less than it has segments and nodes. The least sum over all partitions into groups
    that fit on the nodes is the optimum. Raises UsageProblem for more than 10 segments.
    """
    left = checked_counts(counts)
    if len(left) > MOST_SEGMENTS:
        raise UsageProblem(
            f"Getafix: the exact minimum of {len(left)} segments would take too long; give {MOST_SEGMENTS} at most"
        )
    if not left:
        return 0
    (capacity,) = set(capacities(sum(left.values()), [1] * nodes))
    weights, everything = list(left.values()), (1 << len(left)) - 1
    weight = [sum(w for j, w in enumerate(weights) if group >> j & 1) for group in range(everything + 1)]
    # by set of segments: nodes used -> copies beyond one for each segment
    extra: list[dict[int, int]] = [{0: 0}] + [{} for _ in range(everything)]
    for done in range(everything):
        if not extra[done]:
            continue
        rest = everything ^ done
        first = rest & -rest  # the group of the first segment that has none
        others = rest ^ first
        more = others
        while True:
            group = more | first
            takes = -(-weight[group] // capacity)
            for used, copies in extra[done].items():
                if used + takes <= nodes:
                    known = extra[done | group].get(used + takes, inf)
                    extra[done | group][used + takes] = int(min(known, copies + takes - 1))
            if not more:
                break
            more = (more - 1) & others
    return len(left) + min(extra[everything].values())
