"""What Dirigo keeps with a message, and what its workers tell one another (2.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Ticket:
    """A message's priority, and what has become of it so far."""

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
