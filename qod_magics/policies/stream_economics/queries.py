"""desired(q) while a cycle lowers it, asked for and lowered through the sets `queries(t)`.

`queries(t)` is reachability: all sets together can have tasks x queries members. Three things keep a cycle near linear:
tasks with the same set share it; most sets have one member, or few; and queries are numbered in depth-first order,
which makes the large sets of trees a run of neighbours that numpy scans at memory speed.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, MutableSequence
from typing import Any

from qod_magics.policies.stream_economics.topology import Topology

SMALL = 48  #: sets up to this size are walked in Python

Members = tuple[int, ...] | int  #: numbers of queries, sorted; a large set: an int with the bits of its members set


class QueryAccuracies:
    """The desired accuracy of every query, fraction of 1, which only ever falls."""

    __slots__ = ("_only", "_sets", "_tasks", "_values")

    def __init__(self, topology: Topology, at_minimum: Collection[int] = ()) -> None:
        """All 1, but for the queries of the tasks (positions) `at_minimum`, which are at their minimum accuracy."""
        self._tasks = _depth_first_queries(topology)
        held = _reached(topology, at_minimum)
        values = [topology.min_accuracy[t] if held and held[t] else 1.0 for t in self._tasks]
        set_of, sets = _query_sets(topology, self._tasks)
        singles = len(self._tasks)
        #: by task: the number of its only query, or -1 - the number of its set in `_sets`
        self._only = [k if k < singles else singles - 1 - k for k in set_of]
        self._values: MutableSequence[float] = values
        self._sets: list[tuple[int, ...] | _LargeSet] = []
        if any(isinstance(members, int) for members in sets):
            self._values = array("d", values)  # indexed as fast as a list, and numpy can work on its memory
        floor = dict(zip(set_of, topology.min_accuracy, strict=True)) if sets else {}
        for k, members in enumerate(sets, singles):
            self._sets.append(_LargeSet(self._values, members, floor[k]) if isinstance(members, int) else members)

    def highest(self, t: int) -> float:
        """maxAc(t): the highest desired accuracy among queries(t) (Eq. 3.6)."""
        k = self._only[t]
        values = self._values
        if k >= 0:
            return values[k]
        members = self._sets[-1 - k]
        if isinstance(members, _LargeSet):
            return members.highest()
        return max([values[q] for q in members])

    def limit(self, t: int, accuracy: float) -> None:
        """desired(q) = min(desired(q), accuracy) for the queries of t."""
        k = self._only[t]
        values = self._values
        if k >= 0:
            if accuracy < values[k]:
                values[k] = accuracy
            return
        members = self._sets[-1 - k]
        if isinstance(members, _LargeSet):
            members.limit(accuracy)
            return
        for q in members:
            if accuracy < values[q]:
                values[q] = accuracy

    def by_task(self) -> list[float]:
        """The desired accuracies by task position; 0 where a task is no query."""
        desired = [0.0] * len(self._only)
        for t, value in zip(self._tasks, self._values, strict=True):
            desired[t] = value
        return desired


class _LargeSet:
    """A set of queries as a window on the shared values: a slice where its numbers are neighbours."""

    __slots__ = ("_bits", "_first", "_floor", "_highest", "_length", "_numpy", "_run", "_shared", "_values", "_witness")

    def __init__(self, values: Any, bits: int, floor: float) -> None:
        import numpy  # here, so that applications without large sets never wait for its import

        self._numpy = numpy
        self._values = values
        self._shared = numpy.frombuffer(values)
        self._first = (bits & -bits).bit_length() - 1
        self._length = bits.bit_length() - self._first
        self._bits = bits >> self._first
        run = self._bits.bit_count() == self._length
        self._run = self._shared[self._first : self._first + self._length] if run else None
        self._floor = floor
        self._highest = float("inf")  # at the last scan or limit; holds for as long as the witness has this value
        self._witness = self._first

    def highest(self) -> float:
        if self._values[self._witness] == self._highest or self._highest <= self._floor:
            return self._highest
        if self._run is not None:
            self._witness = self._first + int(self._run.argmax())
        else:
            members = self._members()
            self._witness = int(members[self._shared[members].argmax()])
        self._highest = self._values[self._witness]
        return self._highest

    def limit(self, accuracy: float) -> None:
        if accuracy >= self.highest():
            return
        if self._run is not None:
            self._numpy.minimum(self._run, accuracy, out=self._run)
        else:
            members = self._members()
            self._shared[members] = self._numpy.minimum(self._shared[members], accuracy)
        self._highest = accuracy

    def _members(self) -> Any:
        numpy = self._numpy
        packed = numpy.frombuffer(self._bits.to_bytes((self._length + 7) // 8, "little"), numpy.uint8)
        return numpy.flatnonzero(numpy.unpackbits(packed, bitorder="little")) + self._first


def _depth_first_queries(topology: Topology) -> list[int]:
    """The queries' task positions, numbered so that those a task reaches tend to be neighbours."""
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


def _reached(topology: Topology, tasks: Collection[int]) -> list[bool]:
    """By task: whether it is one of `tasks` or downstream of one; empty if there are none."""
    if not tasks:
        return []
    reached = [False] * len(topology.downstream)
    for t in tasks:
        reached[t] = True
    for t in topology.order:
        if reached[t]:
            for consumer in topology.downstream[t]:
                reached[consumer] = True
    return reached


def _query_sets(topology: Topology, queries: list[int]) -> tuple[list[int], list[Members]]:
    """By task the number of its set, and the sets that have several members.

    Numbers below len(queries) stand for the sets of one query; the others count on from there.
    """
    singles = len(queries)
    set_of = [0] * len(topology.downstream)
    for q, t in enumerate(queries):
        set_of[t] = q
    sets: list[Members] = []
    known: dict[Members, int] = {}
    downstream = topology.downstream
    for t in reversed(topology.order):
        consumers = downstream[t]
        if len(consumers) == 1:
            set_of[t] = set_of[consumers[0]]
        elif consumers:
            parts = {set_of[consumer] for consumer in consumers}
            if len(parts) == 1:
                set_of[t] = parts.pop()
                continue
            members = _union([(k,) if k < singles else sets[k - singles] for k in parts])
            set_of[t] = known.setdefault(members, singles + len(sets))
            if set_of[t] == singles + len(sets):
                sets.append(members)
    return set_of, sets


def _union(parts: Iterable[Members]) -> Members:
    few: set[int] = set()
    large = 0
    for part in parts:
        if isinstance(part, int):
            large |= part
        else:
            few.update(part)
    if not large and len(few) <= SMALL:
        return tuple(sorted(few))
    for q in few:
        large |= 1 << q
    return large
