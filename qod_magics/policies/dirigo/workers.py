"""Workers, the messages between them, and the markers that close windows (2.1, 2.8).

A worker is one machine that executes one message at a time. A marker is a barrier for a function and window: a worker
that has all markers of a window runs the messages of that window that it has queued, before all others, and then hands
on its partial result. Markers come from every sender (queues chosen by the sender), or from the lessor, which has them
from every sender. Channels keep the order of sending.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from qod_magics.core.engines import Kind, Message, Topology
from qod_magics.policies.dirigo.laxity_queue import LaxityQueue


@dataclass(slots=True)
class Ticket:
    """The priority of a message, and whether it was offered to a lessee or sent back."""

    deadline: int  #: when its execution should end, ns (Eq. 1)
    lessor: int
    offered: bool = False  #: to a lessee: it is never offered again
    lessee: int | None = None  #: that sent it back
    length: int = 0  #: of its queue then


@dataclass(frozen=True, slots=True)
class Request:
    """SCHEDULE_REQUEST: would these be on time with you?"""

    asker: int  #: machine, or CLIENT
    number: int  #: of the question
    batch: tuple[tuple[int, int], ...]  #: (deadline, cost), ns


@dataclass(frozen=True, slots=True)
class Answer:
    """SCHEDULE_REPLY."""

    machine: int
    number: int
    fits: bool
    length: int  #: messages queued and running


@dataclass(slots=True)
class Traffic:
    """Messages sent so far, by purpose."""

    data: int = 0  #: sent on by their sender
    requests: int = 0
    replies: int = 0  #: messages that a lessee sends back are replies, too
    forwards: int = 0  #: from a lessor to a lessee, or by the central scheduler
    markers: int = 0  #: on the way to workers that run the function; to the final aggregator not counted


@dataclass(slots=True)
class Worker:
    """What a worker knows of itself."""

    machine: int
    number: int  #: among the workers of the engine
    queue: LaxityQueue[Message] = field(default_factory=LaxityQueue)
    urgent: deque[Message] = field(default_factory=deque)  #: of windows that are being closed: run before the queue
    running: Message | None = None
    until: int = 0  #: when the running message should end, ns
    mailbox: list[Request] = field(default_factory=list)  #: requests that wait for the end of the running message

    @property
    def length(self) -> int:
        """Messages queued and running."""
        return len(self.queue) + len(self.urgent) + (self.running is not None)

    def free_at(self, now: int, account_running: bool = True) -> int:
        """Return E: when the first message of the queue can start, ns (Eq. 4). Where it isn't accounted: now, as
        printed."""
        if not account_running:
            return now
        begin = now if self.running is None else max(now, self.until)
        return begin + sum(message.cost for message in self.urgent)

    def fits(self, batch: tuple[tuple[int, int], ...], free_at: int) -> bool:
        """Return whether all of these, (deadline, cost), fit one after another."""
        if len(batch) == 1:
            return self.queue.check(*batch[0], free_at)
        scratch: LaxityQueue[object] = self.queue.copy()  # type: ignore[assignment]
        for deadline, cost in sorted(batch):
            if not scratch.check(deadline, cost, free_at):
                return False
            scratch.add(deadline, cost, object())
        return True

    def next(self, now: int) -> Message | None:
        """Take the message to run now; None if there is none, or one runs."""
        if self.running is not None or not (self.urgent or self.queue):
            return None
        message = self.urgent.popleft() if self.urgent else self.queue.poll()
        self.running, self.until = message, now + message.cost
        return message

    def check(self) -> None:
        """Raise AssertionError where an invariant does not hold."""
        self.queue.verify()
        assert self.running is not None or not self.length, f"machine {self.machine} is idle while messages wait"
        assert self.running is None or self.running not in self.queue, "a running message is queued"
        assert not self.mailbox or self.running is not None, "an idle worker leaves requests unanswered"


@dataclass(frozen=True, slots=True)
class Note:
    """What a marker says."""

    closing: bool  #: whether it speaks for all senders
    work: int  #: of handing on a partial result, ns


@dataclass(slots=True)
class Markers:
    """The markers that machines have, and how many a function waits for."""

    senders: dict[int, int]  #: by operator: M
    _arrived: dict[tuple[int, int, int], int] = field(default_factory=dict)  #: by machine, operator and end

    @classmethod
    def of(cls, topology: Topology) -> Markers:
        """Return the markers with the senders that operators have: other operators, and streams of clients."""
        senders = dict.fromkeys(range(len(topology.operators)), 0)
        for targets in (*(info.targets for info in topology.operators), *topology.entries):
            for target in targets:
                senders[target] += 1
        return cls(senders)

    def add(self, machine: int, marker: Message) -> bool:
        """Return whether this was the last one that the machine waits for."""
        key = (machine, marker.operator, marker.progress)
        count = self._arrived.pop(key, 0) + 1
        if count == self.senders[marker.operator]:
            return True
        self._arrived[key] = count
        return False


def note(marker: Message, closing: bool, cost: int) -> Message:
    """Make it a message between dispatchers, which costs its receiver this CPU, ns."""
    work = marker.work if marker.context is None else marker.context.work
    marker.kind, marker.work, marker.cost = Kind.CONTROL, cost, cost
    marker.context = Note(closing, work)
    return marker


def copy(marker: Message, closing: bool, cost: int) -> Message:
    """Return a copy of a marker, for another worker."""
    return note(replace(marker, id=-1), closing, cost)


def promote(worker: Worker, marker: Message, parts: int) -> Message:
    """Move the queued messages of a window, or an earlier one, before all others; the marker to run behind them.

    `parts`: workers that hand on a partial result.
    """
    found = [each for each in worker.queue if each.operator == marker.operator and each.progress <= marker.progress]
    for message in found:
        worker.queue.remove(message)
        message.context.offered = True  # it stays
        worker.urgent.append(message)
    work = marker.context.work
    return replace(marker, id=-1, kind=Kind.MARKER, work=work, cost=work, context=None, payload=parts)


def marker_count(senders: int, workers: int, by_lessor: bool) -> int:
    """Return the markers per window on the way to the workers of a function: M*N from the senders, M+N through the
    lessor."""
    return senders + workers if by_lessor else senders * workers
