"""A worker: one machine that executes one message at a time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from qod_magics.core.dispatch import Message
from qod_magics.policies.dirigo.laxity_queue import LaxityQueue
from qod_magics.policies.dirigo.messages import Request


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
        """E: when the first message of the queue can start, ns (Eq. 4). Where it isn't accounted: now, as printed."""
        if not account_running:
            return now
        begin = now if self.running is None else max(now, self.until)
        return begin + sum(message.cost for message in self.urgent)

    def fits(self, batch: tuple[tuple[int, int], ...], free_at: int) -> bool:
        """Whether all of these, (deadline, cost), fit one after another."""
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
        """AssertionError where an invariant does not hold."""
        self.queue.verify()
        assert self.running is not None or not self.length, f"machine {self.machine} is idle while messages wait"
        assert self.running is None or self.running not in self.queue, "a running message is queued"
        assert not self.mailbox or self.running is not None, "an idle worker leaves requests unanswered"
