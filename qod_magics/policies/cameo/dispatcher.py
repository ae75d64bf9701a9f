"""Cameo as a dispatcher of messages: contexts, replies, and a two-level queue per machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from qod_magics.core.dispatch import CLIENT, Forward, Instruction, Message, Reply, Topology
from qod_magics.core.nanoseconds import MS
from qod_magics.policies.cameo.contexts import ContextPolicy
from qod_magics.policies.cameo.deadlines import DeadlineContexts
from qod_magics.policies.cameo.parameters import Parameters, TokenRates
from qod_magics.policies.cameo.pools import Pools
from qod_magics.policies.cameo.tokens import TokenContexts
from qod_magics.policies.cameo.two_level import TwoLevelQueue


class Cameo(Pools):
    """Runs the message that can wait least, by what travels with it.

    A priority is derived when a message is sent, and never revised. A reply within a machine is taken in at once.
    """

    def __init__(self, contexts: ContextPolicy, name: str = "cameo", quantum: int = MS) -> None:
        self.name = name
        self.contexts = contexts
        self.quantum = quantum  #: an operator keeps a worker for this long at least, ns

    def begin(self, topology: Topology) -> None:
        """Nothing is known of costs and progress yet."""
        super().begin(topology)
        self.contexts.begin(topology)

    def queue(self, operators: Sequence[int], workers: Sequence[int]) -> TwoLevelQueue:
        """The queue of a machine."""
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
    """Cameo with these parameters; by default, the source's."""
    chosen = parameters or Parameters()
    return Cameo(DeadlineContexts(chosen), name, chosen.quantum)


def with_tokens(rates: TokenRates | None = None, name: str = "cameo-tokens", quantum: int = MS) -> Cameo:
    """Cameo that shares the workers in proportion to token rates; by default, in equal parts."""
    return Cameo(TokenContexts(rates or TokenRates()), name, quantum)
