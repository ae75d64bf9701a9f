"""Cameo's baselines: operators in order of arrival (FIFO), and the default scheduler of Orleans 1.5.2 (2.8)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain

from qod_magics.core.engines import MS, Message
from qod_magics.errors import UsageProblem
from qod_magics.policies.cameo.dispatcher import Pools


class ArrivalQueue:
    """Runnable operators in the order in which they became so; messages of each in order of arrival.

    An operator is runnable while it has messages and no worker holds it. `own` bags: one bag of runnable operators per
    worker (Orleans) instead of one queue for all (FIFO).
    """

    __slots__ = (
        "_bags",
        "_holder",
        "_own",
        "_pending",
        "_taken_at",
        "_turn",
        "_workers",
        "holds",
        "quantum",
        "waiting",
    )

    def __init__(self, operators: Iterable[int], workers: Sequence[int], quantum: int, own: bool) -> None:
        self.quantum = quantum  #: ns
        self._own = own
        self.waiting = 0
        self._pending: dict[int, deque[Message]] = {each: deque() for each in operators}
        self._workers = {each: number for number, each in enumerate(workers)}  #: number of a bag, by worker
        self._bags: list[deque[int]] = [deque() for _ in range(max(len(workers), 1) if own else 1)]
        self._turn = 0  #: bag for the next operator that the network makes runnable
        self.holds: dict[int, int] = dict.fromkeys(workers, -1)  #: operator, by worker; -1: none
        self._holder: dict[int, int] = {}  #: worker, by held operator
        self._taken_at: dict[int, int] = dict.fromkeys(workers, 0)  #: when the worker took its operator, ns

    def add(self, message: Message) -> None:
        """Queue a message. One that a worker's operator sent puts its operator into the bag of that worker."""
        self.waiting += 1
        operator = message.operator
        pending = self._pending[operator]
        pending.append(message)
        if len(pending) > 1 or operator in self._holder:
            return
        bags = self._bags
        if not self._own:
            bags[0].append(operator)
            return
        maker = self._holder.get(message.sender)
        if maker is not None:
            bags[self._workers[maker]].append(operator)
        else:
            bags[self._turn].append(operator)
            self._turn = (self._turn + 1) % len(bags)

    def choose(self, worker: int, now: int) -> Message | None:
        """Return the message that an idle worker is to run next; it holds the operator from then on. None: nothing
        waits."""
        operator = self.holds[worker]
        mine = self._workers[worker] if self._own else 0
        if operator >= 0:
            pending = self._pending[operator]
            if pending:
                if now - self._taken_at[worker] < self.quantum or not any(self._bags):
                    self.waiting -= 1
                    return pending.popleft()
                self._bags[mine].append(operator)
            del self._holder[operator]
        operator = self._take(mine)
        self.holds[worker] = operator
        if operator < 0:
            return None
        self._holder[operator] = worker
        self._taken_at[worker] = now
        self.waiting -= 1
        return self._pending[operator].popleft()

    def _take(self, mine: int) -> int:
        """Return the oldest of the queue; of bags the newest of one's own, else the oldest of the next that has any; or
        -1."""
        bags = self._bags
        count = len(bags)
        if bags[mine]:
            return bags[mine].pop() if self._own else bags[mine].popleft()
        for i in range(1, count):
            bag = bags[(mine + i) % count]
            if bag:
                return bag.popleft()
        return -1

    def is_runnable(self) -> bool:
        """Return whether an operator that no worker holds has a message."""
        return any(self._bags)

    def check(self) -> None:
        """Raise AssertionError where an invariant does not hold."""
        holding = {operator: worker for worker, operator in self.holds.items() if operator >= 0}
        assert holding == self._holder, "workers and operators differ about who holds what"
        assert sum(map(len, self._pending.values())) == self.waiting, "messages were lost"
        runnable = sorted(chain.from_iterable(self._bags))
        waiting = [each for each, pending in self._pending.items() if pending and each not in self._holder]
        assert runnable == sorted(waiting), "an operator waits outside of the queue, or twice in it"


class ArrivalOrder(Pools):
    """FIFO and Orleans' default: neither knows a deadline."""

    def __init__(self, name: str, *, own: bool = False, quantum: int = MS) -> None:
        if quantum < 0:
            raise UsageProblem(f"{name}: quantum is {quantum!r}; give nanoseconds, 0 or more")
        self.name = name
        self.own = own  #: bags of runnable operators, one per worker
        self.quantum = quantum

    def queue(self, operators: Sequence[int], workers: Sequence[int]) -> ArrivalQueue:
        """Return the queue of a machine."""
        return ArrivalQueue(operators, workers, self.quantum, self.own)

    def put(self, machine: int, message: Message) -> None:
        """Queue a message."""
        self._queues[machine].add(message)


def fifo() -> ArrivalOrder:
    """Return the dispatcher `fifo`: operators take turns in order of arrival."""
    return ArrivalOrder("fifo")


def orleans() -> ArrivalOrder:
    """Return the dispatcher `orleans`: workers favour operators that their own work made runnable."""
    return ArrivalOrder("orleans", own=True)
