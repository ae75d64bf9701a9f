"""`queries(t)` for every task: the queries it reaches, in as few and small sets as possible.

All sets together can have tasks x queries members. Three things keep them, and a cycle, near linear: tasks with the
same set share it; most sets have one member, or few; and queries are numbered in depth-first order, which makes the
large sets of trees contiguous.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from qod_magics.core.dag import Topology

SMALL = 48  #: sets up to this size are tuples

Members = tuple[int, ...] | int  #: numbers of queries, sorted; a large set: an int with the bits of its members set


@dataclass(frozen=True, slots=True)
class Reach:
    """queries(t) for every task position t."""

    queries: list[int]  #: by number of the query: its task position
    set_of: list[int]  #: by task: k >= 0: query k alone; negative: sets[~k]
    sets: list[Members]

    @classmethod
    def of(cls, topology: Topology) -> Reach:
        """The sets of an application."""
        queries = _depth_first_queries(topology)
        return cls(queries, *_query_sets(topology, queries))


def _depth_first_queries(topology: Topology) -> list[int]:
    """The queries' task positions, numbered so that the queries of a task tend to be neighbours."""
    downstream = topology.downstream
    seen = [False] * len(downstream)
    queries = []
    for source in topology.order:
        if seen[source]:
            continue
        stack = [source]
        seen[source] = True
        while stack:
            t = stack.pop()
            consumers = downstream[t]
            if not consumers:
                queries.append(t)
            for consumer in consumers:
                if not seen[consumer]:
                    seen[consumer] = True
                    stack.append(consumer)
    return queries


def reached(topology: Topology, tasks: Collection[int]) -> list[bool]:
    """By task position: whether it is one of `tasks` or downstream of one."""
    below = [False] * len(topology.downstream)
    for t in tasks:
        below[t] = True
    for t in topology.order:
        if below[t]:
            for consumer in topology.downstream[t]:
                below[consumer] = True
    return below


def _query_sets(topology: Topology, queries: Sequence[int]) -> tuple[list[int], list[Members]]:
    """By task the number of its set, and the sets that have several members.

    Set k >= 0 is that of query k alone (`queries` are task positions); the others count down from -1.
    """
    set_of = [0] * len(topology.downstream)
    for q, t in enumerate(queries):
        set_of[t] = q
    sets: list[Members] = []
    known: dict[Members, int] = {}
    downstream = topology.downstream
    last: Sequence[int] = ()
    number = 0
    for t in reversed(topology.order):
        consumers = downstream[t]
        if len(consumers) == 1:
            set_of[t] = set_of[consumers[0]]
        elif consumers:
            if consumers != last:  # neighbours often feed the same tasks
                last = consumers
                number = _number({set_of[consumer] for consumer in consumers}, sets, known)
            set_of[t] = number
    return set_of, sets


def _number(parts: set[int], sets: list[Members], known: dict[Members, int]) -> int:
    """The number of the union of these sets; a new one is added to `sets` and `known`."""
    if len(parts) == 1:
        return parts.pop()
    members: Members
    if min(parts) >= 0 and len(parts) <= SMALL:
        members = tuple(sorted(parts))
    else:
        members = _union(parts, sets)
    number = known.get(members)
    if number is None:
        known[members] = number = ~len(sets)
        sets.append(members)
    return number


def _union(parts: Collection[int], sets: Sequence[Members]) -> Members:
    few: set[int] = set()
    large = 0
    for k in parts:
        if k >= 0:
            few.add(k)
            continue
        part = sets[~k]
        if isinstance(part, int):
            large |= part
        else:
            few.update(part)
    if not large and len(few) <= SMALL:
        return tuple(sorted(few))
    if few:
        lowest = min(few)
        bits = bytearray((max(few) - lowest) // 8 + 1)
        for q in few:
            bits[(q - lowest) >> 3] |= 1 << ((q - lowest) & 7)
        large |= int.from_bytes(bits, "little") << lowest
    return large
