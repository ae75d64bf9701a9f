"""A dispatcher for tests: each machine runs its messages in the order of arrival, on any idle worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from qod_magics.core.engines import Forward, Instruction, Message, Run, Topology


class InOrder:
    """First come, first served, per machine; several messages of an operator may run at once."""

    name = "in-order"

    def begin(self, topology: Topology) -> None:
        machines = range(max(topology.workers) + 1)
        self.topology = topology
        self.waiting: list[deque[Message]] = [deque() for _ in machines]
        self.idle = [[w for w, at in enumerate(topology.workers) if at == machine] for machine in machines]

    def made(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        return (Forward(message, self.topology.operators[message.operator].machine),)

    def arrived(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        self.waiting[at].append(message)
        return ()

    def finished(self, now: int, worker: int, message: Message) -> Iterable[Instruction]:
        self.idle[self.topology.workers[worker]].append(worker)
        return ()

    def replied(self, now: int, at: int, operator: int, content: Any) -> Iterable[Instruction]:
        return ()

    def settle(self, now: int) -> Iterable[Instruction]:
        run = []
        for waiting, idle in zip(self.waiting, self.idle, strict=True):
            while waiting and idle:
                run.append(Run(idle.pop(0), waiting.popleft()))
        return run

    def check(self) -> None:
        for waiting, idle in zip(self.waiting, self.idle, strict=True):
            assert not (waiting and idle), "a worker is idle while a message waits"
