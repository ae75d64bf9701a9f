"""A node: the segments in its memory, a queue of pairs before its cores, and loads from deep storage."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simpy import Environment

from qod_magics.core.nanoseconds import S
from qod_magics.event_engine.segments.scenario import NodeInfo


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
        """Whether a segment is on its way from deep storage."""
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
