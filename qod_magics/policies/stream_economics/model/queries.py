"""desired(q) while a cycle lowers it, read and lowered through the sets `queries(t)`."""

from __future__ import annotations

from array import array
from collections.abc import Collection, MutableSequence
from typing import Any

from qod_magics.core.dag import Topology
from qod_magics.policies.stream_economics.model.reach import Reach, reached

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
        """The desired accuracies by task position; 0 where a task is no query."""
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
        """The values from the first to the last member, and a 0/1 mask of members; None: all are members."""
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
