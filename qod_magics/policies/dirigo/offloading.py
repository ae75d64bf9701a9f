"""Optimistic offloading: the lessor keeps messages until they would be late, then gives them to lessees (2.6).

Forward-first policies pass such messages on without asking. Check-first policies ask lessees and wait for their answers
(2RTT).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from qod_magics.core.engines import Forward, Instruction, Message, Topology
from qod_magics.errors import UsageProblem
from qod_magics.policies.dirigo.base import Dirigo
from qod_magics.policies.dirigo.binding import Asking
from qod_magics.policies.dirigo.laxity_queue import chunks
from qod_magics.policies.dirigo.workers import Answer, Request, Ticket, Worker


class ForwardFirst(Dirigo):
    """A message is offered once, and a lessee passes nothing on; one that it sends back stays with the lessor."""

    def begin(self, topology: Topology) -> None:
        """Prepare for a topology, once.

        Raises UsageProblem if windows are spread while lessees may send messages back, which could miss the end.
        """
        super().begin(topology)
        if not self.options.force_migrate and any(info.partial for info in topology.operators):
            raise UsageProblem("force_migrate: off, but windows are spread over workers; switch it on")
        self._known: dict[tuple[int, int], int] = {}  #: length of the queue of a lessee, as a lessor last heard

    def forward(self, worker: Worker, message: Message) -> Forward:
        """Send a message to a lessee: a random one, or the one with the shortest known queue."""
        lessees = self.lessees(message.operator)
        if self.options.random_lessee:
            (lessee,) = self.draws.some(lessees, 1)
        else:
            lessee = min(lessees, key=lambda machine: (self._known.get((worker.machine, machine), 0), machine))
        message.context.offered = True
        self.traffic.forwards += 1
        return Forward(message, lessee)

    def leased(self, now: int, worker: Worker, message: Message) -> Iterator[Instruction]:
        """Insert the message at the lessee, or send it back with the length of the lessee's queue."""
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


@dataclass(slots=True)
class Action:
    """Violators that were taken out of a queue until lessees have answered; they aren't run meanwhile (A9)."""

    machine: int
    batch: list[Message]
    lessees: int  #: asked
    answers: list[Answer] = field(default_factory=list)
    decided: bool = False


class CheckFirst(Asking):
    """Violators are set aside, and their (deadline, cost) pairs sent to lessees."""

    one_at_a_time = True
    offer_delays = 3  # request, answer, message

    def begin(self, topology: Topology) -> None:
        """Prepare for a topology, once."""
        super().begin(topology)
        self._actions: dict[int, Action] = {}  #: by number of the question
        self._open = dict.fromkeys(self.workers, 0)  #: actions that keep a lessor from the next
        self._closing: list[Message] = []  #: markers that wait until all messages of their windows are sent

    def after(self, now: int, worker: Worker) -> Iterator[Instruction]:
        """Set violators aside, and ask."""
        if self.one_at_a_time and self._open[worker.machine]:
            return
        found = worker.queue.violators(worker.free_at(now), lambda each: self.may_offer(now, worker, each))
        if not found:
            return
        for message in found:
            worker.queue.remove(message)
            message.context.offered = True
        # lessees of one function differ from those of another only by their lessor, which is this worker
        lessees = self.draws.some(self.lessees(found[0].operator), self.options.search_range)
        yield from self.search(worker, found, lessees)

    def search(self, worker: Worker, found: list[Message], lessees: Sequence[int]) -> Iterator[Instruction]:
        """Ask all lessees for the whole batch."""
        yield from self.open(worker, found, lessees)

    def open(self, worker: Worker, batch: list[Message], lessees: Sequence[int]) -> Iterator[Instruction]:
        """Ask lessees for a batch."""
        number = self.next_number()
        self._actions[number] = Action(worker.machine, batch, len(lessees))
        self._open[worker.machine] += 1
        request = Request(worker.machine, number, tuple((each.context.deadline, each.cost) for each in batch))
        for machine in lessees:
            yield self.ask(machine, batch[0].operator, request)

    def required(self, action: Action) -> int:
        """Return the number of answers after which the lessor may go on."""
        return min(self.options.reply_required, action.lessees)

    def patient(self) -> bool:
        """Return whether an action goes on while no answer is positive."""
        return False

    def answered(self, now: int, at: int, answer: Answer) -> Iterator[Instruction]:
        """Send the batch to the first that takes it; insert it here if none does."""
        action = self._actions[answer.number]
        action.answers.append(answer)
        count = len(action.answers)
        if count == action.lessees:
            del self._actions[answer.number]
        if count == self.required(action):
            self._open[at] -= 1
        if action.decided or count < self.required(action):
            return
        taker = next((each.machine for each in action.answers if each.fits), None)
        if taker is None and self.patient() and count < action.lessees:
            return
        action.decided = True
        worker = self.workers[at]
        for message in action.batch:
            if taker is None:
                yield from self.insert(now, worker, message)
            else:
                self.traffic.forwards += 1
                yield Forward(message, taker)
        waiting, self._closing = self._closing, []
        for marker in waiting:
            if self.may_close(now, marker):
                yield from self.pass_on(marker)

    def may_close(self, now: int, marker: Message) -> bool:
        """Return whether no message of the window is set aside; else its end waits for that."""
        open_ = (each for action in self._actions.values() if not action.decided for each in action.batch)
        if any(each.operator == marker.operator and each.progress <= marker.progress for each in open_):
            self._closing.append(marker)
            return False
        return True


class Sequential(CheckFirst):
    """One action at a time; the first answers decide."""

    name = "dirigo-2rtt-sequential"


class Pipelined(CheckFirst):
    """As Sequential, but an action goes on while no answer is positive, and the next may begin meanwhile."""

    name = "dirigo-2rtt-pipelined"

    def patient(self) -> bool:
        """Return True: it waits for all answers."""
        return True


class Parallel(CheckFirst):
    """Distributes violators over the lessees; each lessee answers for its share alone."""

    name = "dirigo-2rtt-parallel"
    one_at_a_time = False

    def search(self, worker: Worker, found: list[Message], lessees: Sequence[int]) -> Iterator[Instruction]:
        """Ask each lessee for its chunk."""
        for lessee, chunk in zip(lessees, chunks(found, len(lessees)), strict=True):
            if chunk:
                yield from self.open(worker, chunk, (lessee,))

    def required(self, action: Action) -> int:
        """Return 1: each lessee answers for its part."""
        return 1
