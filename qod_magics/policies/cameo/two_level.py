"""The scheduler of one machine: operators by the message at their head, and messages within each operator (2.7)."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from qod_magics.core.dispatch import Message

#: Ranks that no longer hold are dropped at once when there are more than twice as many as operators, and this.
SPARE = 64


class TwoLevelQueue:
    """Waiting messages of the operators of a machine, and which worker holds which operator.

    Adding and choosing cost O(log n). Ranks of operators that got another head, or are held, stay in the heap until
    they come up, or outnumber the operators.
    """

    __slots__ = ("_held", "_pending", "_ranks", "_taken_at", "added", "holds", "quantum", "waiting")

    def __init__(self, operators: Iterable[int], workers: Iterable[int], quantum: int) -> None:
        self.quantum = quantum  #: ns
        self.added = 0
        self.waiting = 0
        #: by operator: (PRI_local, arrival number, PRI_global, message)
        self._pending: dict[int, list[tuple[int, int, int, Message]]] = {each: [] for each in operators}
        #: (PRI_global, arrival number, operator). At any given time, the head of every operator that waits is in it.
        self._ranks: list[tuple[int, int, int]] = []
        self._held: set[int] = set()
        self.holds: dict[int, int] = dict.fromkeys(workers, -1)  #: operator, by worker; -1: none
        self._taken_at: dict[int, int] = dict.fromkeys(self.holds, 0)  #: when the worker took its operator, ns

    def add(self, message: Message, local: int, priority: int) -> None:
        """A message waits, ranked within its operator by `local`; by `priority`, once it is at the head."""
        operator = message.operator
        number = self.added
        self.added = number + 1
        self.waiting += 1
        pending = self._pending[operator]
        entry = (local, number, priority, message)
        heappush(pending, entry)
        if pending[0] is entry and operator not in self._held:
            self._rank(priority, number, operator)

    def choose(self, worker: int, now: int) -> Message | None:
        """The message that an idle worker is to run next; it holds the operator from then on. None: nothing waits."""
        operator = self.holds[worker]
        if operator >= 0:
            pending = self._pending[operator]
            if pending:
                head = pending[0]
                best = None if now - self._taken_at[worker] < self.quantum else self._best()
                if best is None or not best[0] < head[2]:
                    self.waiting -= 1
                    return heappop(pending)[3]
                self._held.discard(operator)
                self._rank(head[2], head[1], operator)
            else:
                self._held.discard(operator)
        best = self._best()
        if best is None:
            self.holds[worker] = -1
            return None
        heappop(self._ranks)
        operator = best[2]
        self.holds[worker] = operator
        self._held.add(operator)
        self._taken_at[worker] = now
        self.waiting -= 1
        return heappop(self._pending[operator])[3]

    def _rank(self, priority: int, number: int, operator: int) -> None:
        ranks = self._ranks
        if len(ranks) > 2 * len(self._pending) + SPARE:
            ranks[:] = {rank for rank in ranks if self._holds_true(rank)}
            heapify(ranks)
        heappush(ranks, (priority, number, operator))

    def _holds_true(self, rank: tuple[int, int, int]) -> bool:
        """Whether an operator still has that message at its head, and no worker holds it."""
        pending = self._pending[rank[2]]
        return bool(pending) and pending[0][1] == rank[1] and rank[2] not in self._held

    def _best(self) -> tuple[int, int, int] | None:
        """The lowest rank of an operator that no worker holds."""
        ranks = self._ranks
        while ranks:
            best = ranks[0]
            pending = self._pending[best[2]]
            if pending and pending[0][1] == best[1] and best[2] not in self._held:
                return best
            heappop(ranks)
        return None

    def is_runnable(self) -> bool:
        """Whether an operator that no worker holds has a message."""
        return self._best() is not None

    def check(self) -> None:
        """Raise AssertionError where an invariant does not hold."""
        holding = [operator for operator in self.holds.values() if operator >= 0]
        assert len(holding) == len(set(holding)), "an operator is held by two workers"
        assert set(holding) == self._held, "an operator is held by nobody"
        assert sum(map(len, self._pending.values())) == self.waiting, "messages were lost"
        ranks = set(self._ranks)
        for operator, pending in self._pending.items():
            assert all(pending[(i - 1) // 2] <= each for i, each in enumerate(pending) if i), "no heap"
            if pending and operator not in self._held:
                assert (pending[0][2], pending[0][1], operator) in ranks, "an operator waits unranked"
        assert len(self._ranks) <= 2 * len(self._pending) + SPARE + 1, "ranks that no longer hold pile up"
