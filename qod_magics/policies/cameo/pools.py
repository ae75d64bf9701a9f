"""The base of Cameo and its baselines: operators fixed to machines, with a run queue and workers on each."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from qod_magics.core.dispatch import Forward, Instruction, Message, Run, Topology


class Queue(Protocol):
    """Waiting messages of one machine."""

    waiting: int  #: their number
    holds: dict[int, int]  #: operator, by worker; -1: none

    def choose(self, worker: int, now: int) -> Message | None:
        """The message that an idle worker is to run next; None: nothing waits for it."""
        ...

    def is_runnable(self) -> bool:
        """Whether an operator that no worker holds has a message."""
        ...

    def check(self) -> None:
        """Raise AssertionError where an invariant does not hold."""
        ...


class Pools:
    """Idle workers choose once everything of an instant was reported, by number. Operators never move (A13)."""

    name = ""

    def begin(self, topology: Topology) -> None:
        """Workers are idle, queues empty."""
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
        """The queue of a machine with these operators and workers."""
        raise NotImplementedError

    def put(self, machine: int, message: Message) -> None:
        """Queue a message that arrived at its machine."""
        raise NotImplementedError

    def made(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        """A message goes to the machine of its operator at once."""
        return (Forward(message, self._machines[message.operator]),)

    def arrived(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        """It waits there."""
        self.put(at, message)
        self._changed[at] = None
        return ()

    def finished(self, now: int, worker: int, message: Message) -> Iterable[Instruction]:
        """A worker has to choose, once everything of this instant is known."""
        machine = self._machine_of_worker[worker]
        insort(self._idle[machine], worker)
        self._changed[machine] = None
        self._running[message.operator] = None
        return ()

    def replied(self, now: int, at: int, operator: int, content: Any) -> Iterable[Instruction]:
        """Nothing is made of replies."""
        return ()

    def settle(self, now: int) -> Iterable[Instruction]:
        """Idle workers choose."""
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
