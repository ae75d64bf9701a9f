"""The protocols between policies and the engines of single messages and of stored segments, in virtual time.

Sans I/O: neither side knows a clock, and each event carries its time, in whole nanoseconds, so that counts and orders
are exact.

A *dispatcher* decides which message runs next, and where. The engine reports events (a message was made, arrived,
finished; a reply arrived), the dispatcher answers with instructions (run, forward, reply). Within one instant an engine
reports all finished messages (by worker), then all arrivals from other machines (in the order of sending), then what
clients send, then all arrivals within a machine, and at last that the instant is over (`settle`).

A *replication policy* decides which node holds which segment: a time slice of stored data, of which nodes keep copies
in memory. Once a round the engine reports what it measured, and the policy answers with a routing table, loads and
drops. Sizes are whole bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol, TypeAlias

US, MS, S = 1_000, 1_000_000, 1_000_000_000


#: Where messages enter that no operator sent; no machine.
CLIENT = -1
IN_FLIGHT = -2  #: in place of a machine: between two, or at work


class Kind(Enum):
    """What a message is for."""

    DATA = auto()  #: rows, or the result of a window: executed by its operator
    MARKER = auto()  #: an operator will send nothing more of a window
    CONTROL = auto()  #: between dispatchers; costs no CPU unless it says so: then a worker is to run it


@dataclass(slots=True, eq=False)
class Message:
    """A batch of rows on its way to one operator. Compared by identity."""

    id: int  #: in the order of creation; -1 for one that a dispatcher makes: the engine numbers it
    operator: int  #: that executes it
    sender: int  #: operator, or CLIENT
    #: of its channel, once it was executed: later rows of the channel have no lower event time, ns
    progress: int = 0
    event_time: int = -1  #: event time of its rows, ns; -1: the progress
    #: when the newest row that influenced it arrived at the system, ns
    observed: int = 0
    cost: int = 0  #: estimated execution time, ns
    rows: int = 1
    bytes: int = 0
    source: int = -1  #: stream of its rows, by number: one progress map each
    key: int = -1  #: of all its rows; -1: of many
    objects: tuple[Any, ...] = ()  #: names of the state objects that its execution reads
    kind: Kind = Kind.DATA
    work: int = 0  #: the true execution time, ns: for the engine alone
    at: int = CLIENT  #: its machine, kept by the engine; CLIENT before it enters, IN_FLIGHT between machines or at work
    waits: bool = False  #: whether it has arrived and not run: kept by the engine
    context: Any = None  #: the dispatcher's own: priorities, offers
    payload: Any = None  #: the operator's own: partial results


def channel_of(message: Message) -> int:
    """Return the channel by which a message reaches its operator: the sending operator, or that of a client's
    stream."""
    return message.sender if message.sender != CLIENT else stream_channel(message.source)


def stream_channel(source: int) -> int:
    """Return the channel of a client's stream: a number below CLIENT, which no operator has."""
    return CLIENT - 1 - source


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """The facts that a dispatcher may use of an operator before it has run."""

    name: str
    job: int
    machine: int
    targets: tuple[int, ...] = ()  #: operators that it sends to; (): a sink
    max_latency: int = 0  #: target of its job, ns
    slide: int = 0  #: between the ends of two windows, ns of event time; 0: a regular operator
    origin: int = 0  #: of its grid of windows
    length: int = 0  #: of a window; the slide for tumbling ones
    partial: bool = False  #: its windows may be spread over workers: partial results are merged by its target


@dataclass(frozen=True, slots=True)
class Topology:
    """The operators of all jobs, and the workers that execute them."""

    operators: tuple[OperatorInfo, ...]
    workers: tuple[int, ...]  #: machine, by worker
    entries: tuple[tuple[int, ...], ...] = ()  #: operators that read it, by source stream
    delay: int = 0  #: between two different machines, and from clients, ns

    def delay_between(self, one: int, other: int) -> int:
        """Return the one-way delay, ns; 0 within a machine."""
        return 0 if one == other else self.delay


@dataclass(slots=True, eq=False)
class Run:
    """Execute a message on an idle worker, now."""

    worker: int
    message: Message


@dataclass(slots=True, eq=False)
class Forward:
    """Send a message to a machine: it arrives there after the delay of the link."""

    message: Message
    to: int


@dataclass(slots=True, eq=False)
class Reply:
    """Send the content of a reply to a machine (or CLIENT): it is reported there after the delay of the link."""

    to: int
    operator: int  #: that the reply is for; CLIENT for sources
    content: Any


Instruction: TypeAlias = Run | Forward | Reply


class Dispatcher(Protocol):
    """Ranks messages and chooses workers. It has state of its own, but no clock and no randomness that is not seeded.

    An instruction belongs to the machine at which its event was reported. The engine raises RuntimeError for impossible
    ones: to run on a busy worker, or a message that is not at the worker's machine.
    """

    name: str  #: what `--policy` selects

    def begin(self, topology: Topology) -> None:
        """Prepare for a topology; called once, before all events."""
        ...

    def made(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        """Handle a message that was made at a machine, or by a client (CLIENT): send it by `Forward`, now or after
        replies."""
        ...

    def arrived(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        """Handle a message that reached a machine."""
        ...

    def finished(self, now: int, worker: int, message: Message) -> Iterable[Instruction]:
        """Handle the end of a message: its worker is idle; its results are reported by `made`, before this."""
        ...

    def replied(self, now: int, at: int, operator: int, content: Any) -> Iterable[Instruction]:
        """Handle a reply that reached its machine."""
        ...

    def settle(self, now: int) -> Iterable[Instruction]:
        """Act once everything of this instant was reported."""
        ...

    def check(self) -> None:
        """Raise AssertionError where an invariant of its state does not hold: for tests."""
        ...


#: (node, segment)
Copy: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Use:
    """How much one segment was used in a round. A pair is one segment of one query."""

    accesses: int = 0  #: pairs asked
    busy: int = 0  #: time that nodes spent on pairs, ns
    concurrent: int = 0  #: the most pairs that waited or ran at one time


UNUSED = Use()


@dataclass(frozen=True, slots=True)
class Observation:
    """The cluster at the end of a round."""

    segments: tuple[str, ...]  #: that queries may ask for, in declared order
    nodes: tuple[str, ...]  #: in declared order
    #: by node: segments in its memory or on the way there, without those that are about to be dropped
    held: Mapping[str, frozenset[str]]
    use: Mapping[str, Use] = field(default_factory=dict)  #: by segment; absent: unused
    size: Mapping[str, int] = field(default_factory=dict)  #: by segment, bytes; empty: unknown
    weight: Mapping[str, int] = field(default_factory=dict)  #: by node: share of the work (cores); empty: equal nodes
    memory: Mapping[str, int] = field(default_factory=dict)  #: by node, bytes; empty: unlimited


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a round: routing, loads and drops. All loads of a segment are carried out before its drops."""

    routing: Mapping[str, Mapping[str, int]]  #: by segment: the nodes that share its pairs, and in what proportion
    loads: tuple[Copy, ...] = ()
    drops: tuple[Copy, ...] = ()

    def without_loads(self) -> Round:
        """Return the round with what it does without loading: segments that it would load stay where they are."""
        moved = {segment for _, segment in self.loads}
        return Round(self.routing, (), tuple(each for each in self.drops if each[1] not in moved))


class ReplicationPolicy(Protocol):
    """Chooses number and place of the copies. Pure: it has neither a clock nor memory beside its state."""

    name: str  #: what `--policy` selects

    def decide(self, observation: Observation, state: Any) -> tuple[Round, Any]:
        """Return the next layout, and the state for the next round; the first state is None.

        The engine refuses (RuntimeError) to drop the last copy of a segment that queries may ask for.
        """
        ...
