"""A node: segments in memory, a queue of pairs before its cores, loads from deep storage; and the accounting of a run.

The counters hold every pair asked, every copy loaded and dropped, and memory over time, in whole numbers.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simpy import Environment

from qod_magics.core.engines import S, Use
from qod_magics.simulator.segments.scenario import NodeInfo


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
        """Count a pair that was asked."""
        self.asked += 1
        self.per_segment[segment] += 1
        self._accesses[segment] += 1
        self.under_way[segment] += 1
        if self.under_way[segment] > self._most[segment]:
            self._most[segment] = self.under_way[segment]

    def answer(self, segment: str, work: int) -> None:
        """Count a pair that was answered; `work`: its CPU time, ns."""
        self.answered += 1
        self.under_way[segment] -= 1
        self._busy[segment] += work

    def use(self) -> dict[str, Use]:
        """Return the use of each segment since the last call."""
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
        """Set the number of copies, of segments that have one, and the bytes on each node, from now on."""
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


@dataclass(slots=True, eq=False)
class Query:
    """A query under way."""

    at: int  #: when it was asked, ns
    left: int  #: pairs that have no answer yet


@dataclass(slots=True, eq=False)
class Pair:
    """One segment of one query."""

    query: Query
    segment: str
    work: int  #: CPU time, ns


class Node:
    """First come, first served, by as many cores as it has; loads come one at a time, beside that."""

    def __init__(
        self,
        env: Environment,
        info: NodeInfo,
        load_latency: int,
        load_rate: int,
        answered: Callable[[Node, Pair], None],
        loaded: Callable[[Node, str], None],
    ) -> None:
        self.env, self.info, self.name = env, info, info.name
        self.holds: dict[str, int] = {}  #: bytes in memory, by segment
        self.queue: deque[Pair] = deque()
        self.running: set[Pair] = set()
        self.pinned: Counter[str] = Counter()  #: pairs that wait or run here, by segment
        self.loads: deque[tuple[str, int]] = deque()  #: (segment, bytes), the first one under way
        self.busy = 0  #: CPU time used, ns
        self._load_latency, self._load_rate = load_latency, load_rate
        self._answered, self._loaded = answered, loaded

    @property
    def used(self) -> int:
        """Bytes in memory."""
        return sum(self.holds.values())

    def ask(self, pair: Pair) -> None:
        """Queue a pair of a segment that is in memory."""
        if pair.segment not in self.holds:
            raise RuntimeError(f"{self.name} does not hold {pair.segment}: a pair of it can't be answered there")
        self.pinned[pair.segment] += 1
        if len(self.running) < self.info.cores:
            self._run(pair)
        else:
            self.queue.append(pair)

    def _run(self, pair: Pair) -> None:
        self.running.add(pair)
        self.env.timeout(pair.work, pair).callbacks.append(self._done)

    def _done(self, event: Any) -> None:
        pair: Pair = event.value
        self.running.remove(pair)
        self.busy += pair.work
        self.pinned[pair.segment] -= 1
        if self.queue:
            self._run(self.queue.popleft())
        self._answered(self, pair)

    def is_loading(self, segment: str) -> bool:
        """Return whether a segment is on its way from deep storage."""
        return any(name == segment for name, _ in self.loads)

    def load(self, segment: str, size: int, first: bool = False) -> None:
        """Fetch a segment after those that were ordered before, or as the next one."""
        if segment in self.holds or self.is_loading(segment):
            raise RuntimeError(f"{self.name} holds or loads {segment} already")
        self.loads.insert(1 if first else len(self.loads), (segment, size))
        if len(self.loads) == 1:
            self._fetch()

    def cancel(self, segment: str) -> bool:
        """Call off a load that has not begun; whether there was one."""
        for each in list(self.loads)[1:]:
            if each[0] == segment:
                self.loads.remove(each)
                return True
        return False

    def _fetch(self) -> None:
        _, size = self.loads[0]
        took = self._load_latency + -(-size * S // self._load_rate)
        self.env.timeout(took).callbacks.append(self._fetched)

    def _fetched(self, _: Any) -> None:
        segment, size = self.loads.popleft()
        self.holds[segment] = size
        if self.loads:
            self._fetch()
        self._loaded(self, segment)

    def drop(self, segment: str) -> None:
        """Free the memory of a segment that no pair waits for here."""
        if self.pinned[segment]:
            raise RuntimeError(f"{self.name} has {self.pinned[segment]} pairs of {segment}: it can't be dropped yet")
        del self.holds[segment]
