"""Questions to other workers, and answers (2.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from qod_magics.core.dispatch import CLIENT, Instruction, Message, Reply, Topology
from qod_magics.policies.dirigo.base import Dirigo
from qod_magics.policies.dirigo.messages import Answer, Request
from qod_magics.policies.dirigo.worker import Worker


class Asking(Dirigo):
    """Policies that ask other workers. A worker answers at once, or after the running message (A4)."""

    def begin(self, topology: Topology) -> None:
        """Once."""
        super().begin(topology)
        self._questions = 0

    def next_number(self) -> int:
        """Of a question."""
        self._questions += 1
        return self._questions

    def ask(self, machine: int, operator: int, request: Request) -> Reply:
        """A question on its way."""
        self.traffic.requests += 1
        return Reply(machine, operator, request)

    def laxity(self, now: int, worker: Worker, request: Request) -> bool:
        """Whether what is asked for fits."""
        return worker.fits(request.batch, worker.free_at(now, self.options.account_running))

    def answered(self, now: int, at: int, answer: Answer) -> Iterator[Instruction]:
        """An answer reached the asker."""
        raise NotImplementedError

    def replied(self, now: int, at: int, operator: int, content: Any) -> Iterable[Instruction]:
        """A question, or an answer."""
        if isinstance(content, Answer):
            return self.answered(now, at, content)
        worker = self.workers[at]
        if self.options.handle_between_messages and worker.running is not None:
            worker.mailbox.append(content)
            return ()
        return (self._answer(now, worker, content),)

    def finished(self, now: int, worker: int, message: Message) -> Iterator[Instruction]:
        """Answer what has waited, look at the queue, run the next."""
        mine = self.workers[self.topology.workers[worker]]
        if mine.mailbox:
            mine.running = None
            waiting, mine.mailbox = mine.mailbox, []
            for request in waiting:
                yield self._answer(now, mine, request)
        yield from super().finished(now, worker, message)

    def _answer(self, now: int, worker: Worker, request: Request) -> Reply:
        self.traffic.replies += 1
        fits = self.laxity(now, worker, request)
        return Reply(request.asker, CLIENT, Answer(worker.machine, request.number, fits, worker.length))
