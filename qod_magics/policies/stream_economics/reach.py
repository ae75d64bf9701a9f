"""Find the queries that each task reaches, and track their desired accuracies while a cycle lowers them. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any

from qod_magics.core.dag import Topology
from qod_magics.core.load import Hosting, Load
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stream_economics.requirements import Requirements

# --- Queries of each task ---------------------------------------------------------------------------------------------
# All sets together can have tasks x queries members. Three things keep them, and a cycle, near linear: tasks with the
# same set share it; most sets have one member, or few; and queries are numbered in depth-first order, which makes the
# large sets of trees contiguous.

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
        """Return the sets of an application."""
        queries = _depth_first_queries(topology)
        return cls(queries, *_query_sets(topology, queries))


def _depth_first_queries(topology: Topology) -> list[int]:
    """Return the queries' task positions, numbered so that the queries of a task tend to be neighbours."""
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
    """Return whether each task (by position) is one of `tasks` or downstream of one."""
    below = [False] * len(topology.downstream)
    for t in tasks:
        below[t] = True
    for t in topology.order:
        if below[t]:
            for consumer in topology.downstream[t]:
                below[consumer] = True
    return below


def _query_sets(topology: Topology, queries: Sequence[int]) -> tuple[list[int], list[Members]]:
    """Return the number of each task's set, and the sets that have several members.

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
    """Return the number of the union of these sets; a new one is added to `sets` and `known`."""
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


# --- The input of a cycle ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of a cycle. Positions are those in the snapshot."""

    snapshot: Snapshot
    topology: Topology
    reach: Reach
    load: Load
    required: Requirements
    by_costs: Requirements  #: the same by costs alone, without other evidence
    is_open: Sequence[bool]  #: by task manager: its CPU is not limited yet, so that `required` doesn't apply to it
    min_required: list[float]  #: by task: minReq(t), % of one core
    hosting: Hosting


@dataclass(frozen=True, slots=True)
class Minimums:
    """The result for the minimum accuracies."""

    available: list[float]  #: by task manager: CPU left above them, % of one core
    failed: list[int]  #: instances that leave
    starved: list[int]  #: task managers where they do not fit
    place: Mapping[str, str]  #: where the failed go


# --- Desired accuracies of queries ------------------------------------------------------------------------------------

KEPT = 2048  #: large sets up to this size are kept unpacked; beyond, that would take too much memory


class QueryAccuracies:
    """The desired accuracy of every query, fraction of 1, which only ever falls."""

    __slots__ = ("_sets", "_tasks", "limits", "only", "values")

    only: list[int]  #: by task: the number of its only query; negative if it has several (as in `Reach`)
    values: MutableSequence[float]  #: desired(q) by number of the query; for reading
    limits: int  #: how often accuracies may have been lowered; 0: all are 1

    def __init__(self, topology: Topology, reach: Reach, at_minimum: Collection[int] = ()) -> None:
        """All 1, except the queries of the tasks (positions) `at_minimum`, which are at their minimum accuracy."""
        self._tasks = reach.queries
        held = reached(topology, at_minimum) if at_minimum else None
        self.values = [topology.min_accuracy[t] if held and held[t] else 1.0 for t in self._tasks]
        self.limits = 1 if held else 0
        self.only = reach.set_of
        self._sets: list[Any] = reach.sets  # of tuples, and of a _LargeSet for each int
        if any(isinstance(members, int) for members in reach.sets):
            import numpy  # here, so that applications without large sets never wait for its import

            self.values = array("d", self.values)  # read as fast as a list, and numpy works on its memory
            shared = numpy.frombuffer(self.values)
            floor = dict(zip(reach.set_of, topology.min_accuracy, strict=True))
            self._sets = [
                _LargeSet(self.values, shared, members, floor[~k]) if isinstance(members, int) else members
                for k, members in enumerate(reach.sets)
            ]

    def highest(self, t: int) -> float:
        """maxAc(t): the highest desired accuracy among queries(t) (Eq. 3.6)."""
        k = self.only[t]
        values = self.values
        if k >= 0:
            return values[k]
        members = self._sets[~k]
        if isinstance(members, _LargeSet):
            return members.highest()
        found = 0.0
        for q in members:
            if values[q] > found:
                found = values[q]
        return found

    def limit(self, t: int, accuracy: float) -> None:
        """desired(q) = min(desired(q), accuracy) for the queries of t."""
        self.limits += 1
        k = self.only[t]
        values = self.values
        if k >= 0:
            if accuracy < values[k]:
                values[k] = accuracy
            return
        members = self._sets[~k]
        if isinstance(members, _LargeSet):
            members.limit(accuracy)
            return
        for q in members:
            if accuracy < values[q]:
                values[q] = accuracy

    def by_task(self) -> list[float]:
        """Return the desired accuracies by task position; 0 for a task that is not a query."""
        desired = [0.0] * len(self.only)
        for t, value in zip(self._tasks, self.values, strict=True):
            desired[t] = value
        return desired


class _LargeSet:
    """A set of queries as a window on the shared values; scanned only when its highest may have changed."""

    __slots__ = ("_bits", "_first", "_floor", "_highest", "_members", "_shared", "_values", "_window", "_witness")

    def __init__(self, values: MutableSequence[float], shared: Any, bits: int, floor: float):
        """`shared` is numpy's view of `values`; their highest never falls below `floor`."""
        self._values = values
        self._shared = shared
        self._bits: int | None = bits  # relative to `_first` once there is a window; None: `_members` says it all
        self._members: Any = None
        self._floor = floor
        self._first = 0
        self._window: Any = None
        self._witness = bits.bit_length() - 1
        self._highest = 1.0  # true while the witness has this value

    def highest(self) -> float:
        if self._values[self._witness] != self._highest and self._highest > self._floor:
            window, members = self._look()
            at = (window if members is None else window * members).argmax()  # no value is negative
            self._witness = self._first + int(at)
            self._highest = self._values[self._witness]
        return self._highest

    def limit(self, accuracy: float) -> None:
        if accuracy >= self.highest():
            return
        window, members = self._look()
        if members is None:
            window[window > accuracy] = accuracy
        else:
            window[(window * members) > accuracy] = accuracy
        self._highest = accuracy

    def _look(self) -> tuple[Any, Any]:
        """Return the values from the first to the last member, and a 0/1 mask of members; None: all are members."""
        bits = self._bits
        if bits is None:
            return self._window, self._members
        if self._window is None:
            self._first = (bits & -bits).bit_length() - 1
            self._bits = bits = bits >> self._first
            self._window = self._shared[self._first : self._first + bits.bit_length()]
        length = bits.bit_length()
        members = None
        if bits.bit_count() < length:
            import numpy

            packed = numpy.frombuffer(bits.to_bytes((length + 7) // 8, "little"), numpy.uint8)
            members = numpy.unpackbits(packed, count=length, bitorder="little")
        if members is None or length <= KEPT:
            self._members = members
            self._bits = None
        return self._window, members
