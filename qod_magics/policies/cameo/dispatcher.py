"""Cameo as a dispatcher: a two-level run queue per machine, workers that take from it, and replies to senders.

`Pools` binds operators to machines and lets idle workers choose; Cameo and its baselines build on it. `TwoLevelQueue`
orders operators by the message at their head, and messages within each operator (2.7).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any, Protocol

from qod_magics.core.engines import CLIENT, MS, Forward, Instruction, Message, Reply, Run, Topology
from qod_magics.errors import UsageProblem
from qod_magics.policies.cameo.contexts import ContextPolicy, DeadlineContexts, Parameters, TokenContexts, TokenRates


class Queue(Protocol):
    """Waiting messages of one machine."""

    waiting: int  #: their number
    holds: dict[int, int]  #: operator, by worker; -1: none

    def choose(self, worker: int, now: int) -> Message | None:
        """Return the message that an idle worker is to run next; None: nothing waits for it."""
        ...

    def is_runnable(self) -> bool:
        """Return whether an operator that no worker holds has a message."""
        ...

    def check(self) -> None:
        """Raise AssertionError where an invariant does not hold."""
        ...


class Pools:
    """Idle workers choose once everything of an instant was reported, by number. Operators never move (A13)."""

    name = ""

    def begin(self, topology: Topology) -> None:
        """Begin with idle workers and empty queues."""
        self._machines = [each.machine for each in topology.operators]
        self._machine_of_worker = list(topology.workers)
        workers: dict[int, list[int]] = {}
        for worker, machine in enumerate(topology.workers):
            workers.setdefault(machine, []).append(worker)
        operators: dict[int, list[int]] = {machine: [] for machine in workers}
        for operator, machine in enumerate(self._machines):
            operators.setdefault(machine, []).append(operator)
        #: by machine; one without workers has a queue that nobody empties
        self._queues = {each: self.queue(operators[each], workers.get(each, [])) for each in operators}
        self._idle = {each: [*workers.get(each, [])] for each in operators}  #: workers by machine, sorted
        self._changed: dict[int, None] = {}  #: machines at which idle workers have to choose
        self._started = [0] * len(topology.workers)  #: when a worker began its message, ns
        self._running: list[Message | None] = [None] * len(topology.operators)

    def queue(self, operators: Sequence[int], workers: Sequence[int]) -> Any:
        """Return the queue of a machine with these operators and workers."""
        raise NotImplementedError

    def put(self, machine: int, message: Message) -> None:
        """Queue a message that arrived at its machine."""
        raise NotImplementedError

    def made(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        """Send a message to the machine of its operator at once."""
        return (Forward(message, self._machines[message.operator]),)

    def arrived(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        """Queue a message that arrived."""
        self.put(at, message)
        self._changed[at] = None
        return ()

    def finished(self, now: int, worker: int, message: Message) -> Iterable[Instruction]:
        """Mark a worker idle: it chooses once everything of this instant is known."""
        machine = self._machine_of_worker[worker]
        insort(self._idle[machine], worker)
        self._changed[machine] = None
        self._running[message.operator] = None
        return ()

    def replied(self, now: int, at: int, operator: int, content: Any) -> Iterable[Instruction]:
        """Ignore a reply."""
        return ()

    def settle(self, now: int) -> Iterable[Instruction]:
        """Let idle workers choose."""
        changed = self._changed
        if not changed:
            return ()
        runs: list[Instruction] = []
        for machine in changed:
            idle, queue = self._idle[machine], self._queues[machine]
            holds = queue.holds
            left = []
            for worker in idle:
                message = queue.choose(worker, now) if queue.waiting or holds[worker] >= 0 else None
                if message is None:
                    left.append(worker)
                else:
                    self._started[worker] = now
                    self._running[message.operator] = message
                    runs.append(Run(worker, message))
            self._idle[machine] = left
        changed.clear()
        return runs

    def check(self) -> None:
        """Raise AssertionError where an invariant does not hold."""
        for machine, queue in self._queues.items():
            queue.check()
            idle = self._idle[machine]
            assert idle == sorted(set(idle)), "a worker is idle twice"
            chosen = machine not in self._changed  # since the last event
            assert not (chosen and idle and queue.is_runnable()), "a worker is idle beside a runnable operator"
        busy = len(self._machine_of_worker) - sum(map(len, self._idle.values()))
        assert sum(each is not None for each in self._running) == busy, "an operator runs on two workers"


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
        """Queue a message, ranked within its operator by `local`; by `priority`, once it is at the head."""
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
        """Return the message that an idle worker is to run next; it holds the operator from then on. None: nothing
        waits."""
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
        """Return whether an operator still has that message at its head, and no worker holds it."""
        pending = self._pending[rank[2]]
        return bool(pending) and pending[0][1] == rank[1] and rank[2] not in self._held

    def _best(self) -> tuple[int, int, int] | None:
        """Return the lowest rank of an operator that no worker holds."""
        ranks = self._ranks
        while ranks:
            best = ranks[0]
            pending = self._pending[best[2]]
            if pending and pending[0][1] == best[1] and best[2] not in self._held:
                return best
            heappop(ranks)
        return None

    def is_runnable(self) -> bool:
        """Return whether an operator that no worker holds has a message."""
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


class Cameo(Pools):
    """Runs the message that can wait least, by what travels with it.

    A priority is derived when a message is sent, and never revised. A reply within a machine is taken in at once.
    """

    def __init__(self, contexts: ContextPolicy, name: str = "cameo", quantum: int = MS) -> None:
        self.name = name
        self.contexts = contexts
        self.quantum = quantum  #: an operator keeps a worker for this long at least, ns

    def begin(self, topology: Topology) -> None:
        """Begin without knowledge of costs and progress."""
        super().begin(topology)
        self.contexts.begin(topology)

    def queue(self, operators: Sequence[int], workers: Sequence[int]) -> TwoLevelQueue:
        """Return the queue of a machine."""
        return TwoLevelQueue(operators, workers, self.quantum)

    def put(self, machine: int, message: Message) -> None:
        """Queue a message by the priorities that came with it."""
        context = message.context
        self._queues[machine].add(message, context.local, context.priority)

    def made(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        """Give a message its context, and send it."""
        sender = message.sender
        if sender == CLIENT:
            message.context = self.contexts.build_at_source(now, message)
        else:
            message.context = self.contexts.build_at_operator(message, self._running[sender])
        return (Forward(message, self._machines[message.operator]),)

    def finished(self, now: int, worker: int, message: Message) -> Iterable[Instruction]:
        """Profile the operator, and acknowledge the message with what its sender does not know yet."""
        super().finished(now, worker, message)
        reply = self.contexts.prepare_reply(message, now - self._started[worker])
        if reply is None:
            return ()
        sender = message.sender
        to = self._machines[sender] if sender >= 0 else CLIENT
        if to == self._machine_of_worker[worker]:
            self.contexts.process_reply(reply)
            return ()
        return (Reply(to, sender, reply),)

    def replied(self, now: int, at: int, operator: int, content: Any) -> Iterable[Instruction]:
        """Learn what the operators downstream cost."""
        self.contexts.process_reply(content)
        return ()


def with_deadlines(parameters: Parameters | None = None, name: str = "cameo") -> Cameo:
    """Return Cameo with these parameters; by default, the source's."""
    chosen = parameters or Parameters()
    return Cameo(DeadlineContexts(chosen), name, chosen.quantum)


def with_tokens(rates: TokenRates | None = None, quantum: int = MS) -> Cameo:
    """Return Cameo that shares the workers in proportion to token rates; by default, in equal parts."""
    return Cameo(TokenContexts(rates or TokenRates()), "cameo-tokens", quantum)


# --- Baselines --------------------------------------------------------------------------------------------------------
# Cameo's baselines: operators in order of arrival (FIFO), and the default scheduler of Orleans 1.5.2 (2.8).


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
