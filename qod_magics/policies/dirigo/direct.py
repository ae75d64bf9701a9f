"""Dynamic binding: the sender asks two workers, and sends to the better one (2.5)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from qod_magics.core.dispatch import CLIENT, Forward, Instruction, Kind, Message
from qod_magics.policies.dirigo.asking import Asking
from qod_magics.policies.dirigo.markers import copy, note
from qod_magics.policies.dirigo.messages import Answer, Request
from qod_magics.policies.dirigo.worker import Worker

CANDIDATES = 2
Channel = tuple[int, int, int, int]  #: machine that sends, operator or CLIENT, its stream, operator that is sent to


def shortest(candidates: Iterable[int], answers: Mapping[int, Answer]) -> int:
    """The candidate with the shortest queue; of equal ones, the first drawn."""
    return min(candidates, key=lambda machine: answers[machine].length)


def by_laxity(candidates: Collection[int], answers: Mapping[int, Answer]) -> int:
    """The candidate with which the message is on time; if that says nothing, the one with the shortest queue."""
    fitting = [machine for machine in candidates if answers[machine].fits]
    return fitting[0] if len(fitting) == 1 else shortest(candidates, answers)


@dataclass(slots=True)
class Buffered:
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
        """Once."""
        super().begin(topology)
        self._buffered: dict[int, Buffered] = {}  #: by number of the question
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
        if len(allowed) < CANDIDATES:
            self.traffic.data += 1
            yield Forward(message, allowed[0])
            return
        candidates = tuple(self.draws.some(allowed, CANDIDATES))
        number = self.next_number()
        self._buffered[number] = Buffered(message, channel, candidates)
        self._unsent[channel] = self._unsent.get(channel, 0) + 1
        request = Request(at, number, ((ticket.deadline, message.cost),))
        for machine in candidates:
            yield self.ask(machine, message.operator, request)

    def received(self, now: int, worker: Worker, message: Message) -> Iterator[Instruction]:
        """Insert it: the sender has asked."""
        return self.insert(now, worker, message)

    def choose(self, candidates: tuple[int, ...], answers: Mapping[int, Answer]) -> int:
        """The worker to send to."""
        return shortest(candidates, answers)

    def laxity(self, now: int, worker: Worker, request: Request) -> bool:
        """Lengths alone decide."""
        return True

    def answered(self, now: int, at: int, answer: Answer) -> Iterator[Instruction]:
        """Send once both have answered."""
        buffered = self._buffered[answer.number]
        buffered.answers[answer.machine] = answer
        if len(buffered.answers) < CANDIDATES:
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
        """The worker to send to."""
        return by_laxity(candidates, answers)

    def laxity(self, now: int, worker: Worker, request: Request) -> bool:
        """CHECK."""
        return worker.fits(request.batch, worker.free_at(now, self.options.account_running))
