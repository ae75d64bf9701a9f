"""The books of a run: every pair asked, every copy loaded and dropped, memory over time. Whole numbers throughout."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from qod_magics.core.segments import Use


@dataclass(slots=True)
class Books:
    """Counts since the start, and use since the last round."""

    asked: int = 0  #: pairs
    answered: int = 0
    queries: int = 0
    finished: int = 0
    ordered: int = 0  #: loads
    loaded: int = 0
    loaded_bytes: int = 0
    called_off: int = 0  #: loads that had not begun when their copy was dropped
    dropped: int = 0  #: copies
    on_demand: int = 0  #: loads because a pair found no copy, and none on its way
    late: int = 0  #: segments whose first copy was not there when queries began to ask for them
    rounds: int = 0
    per_segment: Counter[str] = field(default_factory=Counter)  #: pairs asked, by segment
    under_way: Counter[str] = field(default_factory=Counter)  #: pairs without an answer yet, by segment
    _accesses: Counter[str] = field(default_factory=Counter)
    _busy: Counter[str] = field(default_factory=Counter)
    _most: Counter[str] = field(default_factory=Counter)

    def ask(self, segment: str) -> None:
        """A pair was asked."""
        self.asked += 1
        self.per_segment[segment] += 1
        self._accesses[segment] += 1
        self.under_way[segment] += 1
        if self.under_way[segment] > self._most[segment]:
            self._most[segment] = self.under_way[segment]

    def answer(self, segment: str, work: int) -> None:
        """A pair was answered; `work`: its CPU time, ns."""
        self.answered += 1
        self.under_way[segment] -= 1
        self._busy[segment] += work

    def use(self) -> dict[str, Use]:
        """The use of each segment since the last call."""
        names = self._accesses.keys() | self._busy.keys() | self._most.keys()
        found = {name: Use(self._accesses[name], self._busy[name], self._most[name]) for name in sorted(names)}
        self._accesses, self._busy = Counter(), Counter()
        self._most = Counter({name: number for name, number in self.under_way.items() if number})
        return found


@dataclass(slots=True)
class MemoryOverTime:
    """Integrals over time, from the end of the warm-up until that of the duration: copies * ns, bytes * ns."""

    since: int
    until: int
    copies: int = 0
    segments: int = 0
    bytes: int = 0
    largest: int = 0  #: of the node that has most at the time
    most_on_a_node: int = 0  #: bytes, at any time
    length: int = 0  #: ns
    _at: int = 0
    _now: tuple[int, int, int, int] = (0, 0, 0, 0)

    def change(self, at: int, copies: int, segments: int, used: list[int]) -> None:
        """From now on: the number of copies, of segments that have one, and the bytes on each node."""
        self.stop(at)
        self._now = copies, segments, sum(used), max(used)
        if self.since <= at <= self.until:
            self.most_on_a_node = max(self.most_on_a_node, self._now[3])

    def stop(self, at: int) -> None:
        """Count the time until now."""
        took = self._within(at) - self._within(self._at)
        copies, segments, total, largest = self._now
        self.copies += copies * took
        self.segments += segments * took
        self.bytes += total * took
        self.largest += largest * took
        self.length += took
        self._at = at

    def _within(self, at: int) -> int:
        return min(max(at, self.since), self.until)
