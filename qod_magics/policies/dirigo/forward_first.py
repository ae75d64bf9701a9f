"""Optimistic offloading, forward-first: the lessor passes on what would be late, without asking (2.6)."""

from __future__ import annotations

from collections.abc import Iterator

from qod_magics.core.dispatch import Forward, Instruction, Message, Topology
from qod_magics.errors import UsageProblem
from qod_magics.policies.dirigo.base import Dirigo
from qod_magics.policies.dirigo.messages import Ticket
from qod_magics.policies.dirigo.worker import Worker


class ForwardFirst(Dirigo):
    """A message is offered once, and a lessee passes nothing on; one that it sends back stays with the lessor."""

    def begin(self, topology: Topology) -> None:
        """Once. UsageProblem if windows are spread while lessees may send messages back, which could miss the end."""
        super().begin(topology)
        if not self.options.force_migrate and any(info.partial for info in topology.operators):
            raise UsageProblem("force_migrate: off, but windows are spread over workers; switch it on")
        self._known: dict[tuple[int, int], int] = {}  #: length of the queue of a lessee, as a lessor last heard

    def forward(self, worker: Worker, message: Message) -> Forward:
        """To a lessee, random or with the shortest queue that is known of."""
        lessees = self.lessees(message.operator)
        if self.options.random_lessee:
            (lessee,) = self.draws.some(lessees, 1)
        else:
            lessee = min(lessees, key=lambda machine: (self._known.get((worker.machine, machine), 0), machine))
        message.context.offered = True
        self.traffic.forwards += 1
        return Forward(message, lessee)

    def leased(self, now: int, worker: Worker, message: Message) -> Iterator[Instruction]:
        """The lessee inserts it, or sends it back with the length of its queue."""
        if self.options.force_migrate or self.fits(now, worker, message):
            yield from self.insert(now, worker, message)
            return
        self.traffic.replies += 1
        ticket: Ticket = message.context
        ticket.length = worker.length
        ticket.lessee = worker.machine
        yield Forward(message, ticket.lessor)

    def insert(self, now: int, worker: Worker, message: Message) -> Iterator[Instruction]:
        """Queue a message; of one that was sent back, note how long that lessee's queue was."""
        ticket: Ticket = message.context
        if ticket.lessee is not None:
            self._known[worker.machine, ticket.lessee] = ticket.length
        return super().insert(now, worker, message)


class RejectSend(ForwardFirst):
    """The lessor checks a message when it arrives; what it keeps never moves."""

    name = "dirigo-reject-send"

    def received(self, now: int, worker: Worker, message: Message) -> Iterator[Instruction]:
        """Keep what fits."""
        if self.fits(now, worker, message) or not self.may_offer(now, worker, message):
            yield from self.insert(now, worker, message)
        else:
            yield self.forward(worker, message)


class AcceptAndCheck(ForwardFirst):
    """The lessor keeps everything, and after each execution passes on what would be late by then."""

    name = "dirigo-accept-and-check"

    def after(self, now: int, worker: Worker) -> Iterator[Instruction]:
        """Pass on violators."""
        free_at = worker.free_at(now)
        for message in worker.queue.violators(free_at, lambda each: self.may_offer(now, worker, each)):
            worker.queue.remove(message)
            yield self.forward(worker, message)
