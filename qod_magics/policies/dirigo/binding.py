"""Binding: which worker a message is sent to, decided before it is queued (2.4, 2.5, 2.10).

Static binding runs every function on its own worker. Dynamic binding asks two workers per message and takes the better
one. The centralised baseline lets one worker pass messages on to random others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qod_magics.core.engines import CLIENT, Forward, Instruction, Kind, Message, Reply, Run, Topology
from qod_magics.errors import UsageProblem
from qod_magics.policies.dirigo.base import Dirigo, Draws, Options
from qod_magics.policies.dirigo.queues import Answer, Request, Ticket, Worker, chunks, copy, note


class PriorityBased(Dirigo):
    """Send to the lessor, which runs the earliest deadline first. State is always local; hot functions queue up."""

    name = "dirigo-static"

    def range(self) -> int:
        """Return the lessor alone."""
        return 1


def static_limit(shares: Sequence[float]) -> float:
    """Return the mean utilization of the workers, one per object, at which static binding saturates the hottest one.
    `shares`: of the objects among the messages, fractions of 1."""
    return 1 / (len(shares) * max(shares))


class Asking(Dirigo):
    """Policies that ask other workers. A worker answers at once, also while a message runs (A4)."""

    def begin(self, topology: Topology) -> None:
        """Prepare for a topology, once."""
        super().begin(topology)
        self._questions = 0

    def next_number(self) -> int:
        """Return the number of the next question."""
        self._questions += 1
        return self._questions

    def ask(self, machine: int, operator: int, request: Request) -> Reply:
        """Return a question on its way."""
        self.traffic.requests += 1
        return Reply(machine, operator, request)

    def laxity(self, now: int, worker: Worker, request: Request) -> bool:
        """Return whether what is asked for fits."""
        return worker.fits(request.batch, worker.free_at(now, self.options.account_running))

    def answered(self, now: int, at: int, answer: Answer) -> Iterator[Instruction]:
        """Handle an answer that reached the asker."""
        raise NotImplementedError

    def replied(self, now: int, at: int, operator: int, content: Any) -> Iterable[Instruction]:
        """Answer a question, or handle an answer."""
        if isinstance(content, Answer):
            return self.answered(now, at, content)
        worker = self.workers[at]
        return (self._answer(now, worker, content),)

    def _answer(self, now: int, worker: Worker, request: Request) -> Reply:
        self.traffic.replies += 1
        fits = self.laxity(now, worker, request)
        return Reply(request.asker, CLIENT, Answer(worker.machine, request.number, fits, worker.length))


_CANDIDATES = 2
Channel = tuple[int, int, int, int]  #: machine that sends, operator or CLIENT, its stream, operator that is sent to


def shortest(candidates: Iterable[int], answers: Mapping[int, Answer]) -> int:
    """Return the candidate with the shortest queue; of equal ones, the first drawn."""
    return min(candidates, key=lambda machine: answers[machine].length)


def by_laxity(candidates: Collection[int], answers: Mapping[int, Answer]) -> int:
    """Return the candidate with which the message is on time; if that says nothing, the one with the shortest queue."""
    fitting = [machine for machine in candidates if answers[machine].fits]
    return fitting[0] if len(fitting) == 1 else shortest(candidates, answers)


@dataclass(slots=True)
class _Buffered:
    """A message that waits at its sender."""

    message: Message
    channel: Channel
    candidates: tuple[int, ...]
    answers: dict[int, Answer] = field(default_factory=dict)


class QueueBasedDirect(Asking):
    """The shorter queue of two. A message leaves its sender a round trip later than under static binding, and its
    sender doesn't wait for that.
    """

    name = "dirigo-queue"
    by_lessor = False

    def begin(self, topology: Any) -> None:
        """Prepare for a topology, once."""
        super().begin(topology)
        self._buffered: dict[int, _Buffered] = {}  #: by number of the question
        self._held: dict[Channel, list[Message]] = {}  #: markers behind buffered messages
        self._unsent: dict[Channel, int] = {}  #: buffered messages

    def made(self, now: int, at: int, message: Message) -> Iterator[Instruction]:
        """Draw two workers, and ask both."""
        channel = (at, message.sender, message.source if message.sender == CLIENT else 0, message.operator)
        if message.kind is Kind.MARKER:
            self._held.setdefault(channel, []).append(message)
            yield from self._release(channel)
            return
        ticket = message.context = self.ticket(message)
        allowed = self.allowed(message.operator)
        if len(allowed) < _CANDIDATES:
            self.traffic.data += 1
            yield Forward(message, allowed[0])
            return
        candidates = tuple(self.draws.some(allowed, _CANDIDATES))
        number = self.next_number()
        self._buffered[number] = _Buffered(message, channel, candidates)
        self._unsent[channel] = self._unsent.get(channel, 0) + 1
        request = Request(at, number, ((ticket.deadline, message.cost),))
        for machine in candidates:
            yield self.ask(machine, message.operator, request)

    def received(self, now: int, worker: Worker, message: Message) -> Iterator[Instruction]:
        """Insert it: the sender has asked."""
        return self.insert(now, worker, message)

    def choose(self, candidates: tuple[int, ...], answers: Mapping[int, Answer]) -> int:
        """Return the worker to send to."""
        return shortest(candidates, answers)

    def laxity(self, now: int, worker: Worker, request: Request) -> bool:
        """Return True: lengths of queues alone decide."""
        return True

    def answered(self, now: int, at: int, answer: Answer) -> Iterator[Instruction]:
        """Send once both have answered."""
        buffered = self._buffered[answer.number]
        buffered.answers[answer.machine] = answer
        if len(buffered.answers) < _CANDIDATES:
            return
        del self._buffered[answer.number]
        self._unsent[buffered.channel] -= 1
        self.traffic.data += 1
        yield Forward(buffered.message, self.choose(buffered.candidates, buffered.answers))
        if buffered.channel in self._held:
            yield from self._release(buffered.channel)

    def _release(self, channel: Channel) -> Iterator[Instruction]:
        """Send markers that no buffered message of their window is behind, the oldest first."""
        unsent = [each.message.progress for each in self._buffered.values() if each.channel == channel]
        held = self._held[channel]
        while held and all(progress > held[0].progress for progress in unsent):
            marker = held.pop(0)
            first, *others = self.allowed(marker.operator)
            self.traffic.markers += 1 + len(others)
            copies = [copy(marker, False, self.options.marker_cost) for _ in others]
            yield Forward(note(marker, False, self.options.marker_cost), first)
            for machine, each in zip(others, copies, strict=True):
                yield Forward(each, machine)
        if not held:
            del self._held[channel]


class LaxityBasedDirect(QueueBasedDirect):
    """The worker with which the message and all behind it are on time; if both or none is: the shorter queue."""

    name = "dirigo-laxity"

    def choose(self, candidates: tuple[int, ...], answers: Mapping[int, Answer]) -> int:
        """Return the worker to send to."""
        return by_laxity(candidates, answers)

    def laxity(self, now: int, worker: Worker, request: Request) -> bool:
        """Return whether the batch fits (CHECK)."""
        return worker.fits(request.batch, worker.free_at(now, self.options.account_running))


SCHEDULER = 0  #: the machine that passes messages on


class CentralRandom(Dirigo):
    """All messages go to machine 0, in the order of arrival, and from there to a uniformly random other machine.

    Args:
        decision: CPU of the scheduler per message, ns; 0: it is never a bottleneck.
        options, draws, deadline: as of `Dirigo`.

    """

    name = "central-random"

    def __init__(
        self,
        options: Options | None = None,
        draws: Draws | None = None,
        deadline: Callable[[Message], int] | None = None,
        decision: int = 0,
    ) -> None:
        super().__init__(options, draws, deadline)
        self.decision = decision

    def begin(self, topology: Topology) -> None:
        """Prepare for a topology, once. Raises UsageProblem without a second machine, or with spread windows."""
        super().begin(topology)
        if len(self.workers) < 2:
            raise UsageProblem(
                "central-random needs a machine besides the scheduler's; give it two or more", rule="two machines"
            )
        if any(info.partial for info in topology.operators):
            raise UsageProblem("central-random can't spread windows over workers; bind them to one")
        self._waiting: deque[Message] = deque()
        self._runners = tuple(machine for machine in self.workers if machine != SCHEDULER)

    def allowed(self, operator: int) -> tuple[int, ...]:
        """Return all but the scheduler; one of them for windows."""
        return (self._runners[operator % len(self._runners)],) if self._bound[operator] else self._runners

    def made(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        """Send a message to the scheduler."""
        message.context = self.ticket(message)
        self.traffic.data += 1
        return (Forward(message, SCHEDULER),)

    def arrived(self, now: int, at: int, message: Message) -> Iterator[Instruction]:
        """Decide now, or when the scheduler is free."""
        worker = self.workers[at]
        if at != SCHEDULER:
            yield from self.insert(now, worker, message)
        elif message.kind is Kind.CONTROL:
            worker.running, worker.until = message, now + message.work
            yield Run(worker.number, message)
        elif not self.decision:
            yield self._pass_on(message)
        else:
            self._waiting.append(message)
            if len(self._waiting) == 1:
                yield self._decide(message)

    def finished(self, now: int, worker: int, message: Message) -> Iterator[Instruction]:
        """Pass on the message that the scheduler has decided on; any other worker runs its next message."""
        if self.topology.workers[worker] != SCHEDULER:
            yield from super().finished(now, worker, message)
            return
        self.workers[SCHEDULER].running = None
        yield self._pass_on(self._waiting.popleft())
        if self._waiting:
            yield self._decide(self._waiting[0])

    def _decide(self, message: Message) -> Forward:
        """Return a message of the scheduler to itself that costs it the CPU of one decision."""
        return Forward(
            Message(-1, message.operator, message.operator, cost=self.decision, kind=Kind.CONTROL, work=self.decision),
            SCHEDULER,
        )

    def _pass_on(self, message: Message) -> Forward:
        (machine,) = self.draws.some(self.allowed(message.operator), 1)
        self.traffic.forwards += 1
        return Forward(message, machine)


# --- Optimistic offloading --------------------------------------------------------------------------------------------
# Optimistic offloading: the lessor keeps messages until they would be late, then gives them to lessees (2.6).
#
# Forward-first policies pass such messages on without asking. Check-first policies ask lessees and wait for their
# answers (2RTT).


class ForwardFirst(Dirigo):
    """A message is offered once, and a lessee passes nothing on; one that it sends back stays with the lessor."""

    def begin(self, topology: Topology) -> None:
        """Prepare for a topology, once.

        Raises UsageProblem if windows are spread while lessees may send messages back, which could miss the end.
        """
        super().begin(topology)
        if not self.options.force_migrate and any(info.partial for info in topology.operators):
            raise UsageProblem(
                "force_migrate: off, but windows are spread over workers; switch it on", rule="force_migrate"
            )
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
        if self.fits(now, worker, message) or not self.may_offer(worker, message):
            yield from self.insert(now, worker, message)
        else:
            yield self.forward(worker, message)


class AcceptAndCheck(ForwardFirst):
    """The lessor keeps everything, and after each execution passes on what would be late by then."""

    name = "dirigo-accept-and-check"

    def after(self, now: int, worker: Worker) -> Iterator[Instruction]:
        """Pass on violators."""
        free_at = worker.free_at(now)
        for message in worker.queue.violators(free_at, lambda each: self.may_offer(worker, each)):
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
        found = worker.queue.violators(worker.free_at(now), lambda each: self.may_offer(worker, each))
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
