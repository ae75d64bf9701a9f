"""Queues of messages by laxity, and the workers that run them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import sub
from typing import Generic, TypeVar

from qod_magics.core.engines import Kind, Message, Topology

# --- The minimum-laxity queue (2.2, 2.3) ------------------------------------------------------------------------------
# Deadlines of messages, and the minimum-laxity queue that checks whether a worker can meet them (2.2, 2.3).
#
# The check asks two things: would a new message be on time, and would it make one behind it late? It needs two sums
# over the queue in order of deadlines: the costs ahead of the message, and the least stored laxity behind it. Both
# combine over neighbouring runs of messages: (c1, l1) and (c2, l2) give (c1 + c2, min(l1, l2 - c1)). So the queue is a
# list of short blocks that keep their pair, as a sorted container does, and nothing behind an insertion has to be
# rewritten, as in Algorithm 6.1 (`benchmarks.dirigo.staircase`). Every operation costs O(block + number of blocks).
# Which of the two is faster at which length: `python -m benchmarks.dirigo 6.21b`.

NEVER = 1 << 60  #: deadline without a latency target, ns


class Deadlines:
    """Deadlines from targets and costs after an operator; those costs are learned: the largest seen counts.

    The time of a message that waits for the end of its window is that at which the end is due: later by what event time
    still lacks (the frontier time, with event time as fast as the clock).
    """

    def __init__(self, topology: Topology) -> None:
        self._operators = topology.operators
        self._costs = [0] * len(topology.operators)
        self._paths: dict[int, int] = {}

    def __call__(self, message: Message) -> int:
        """Return the deadline, t + L - C_path, ns (Eq. 1); NEVER without a target."""
        operator = message.operator
        if message.cost > self._costs[operator]:
            self._costs[operator] = message.cost
            self._paths.clear()
        info = self._operators[operator]
        if not info.max_latency:
            return NEVER
        time = message.observed
        if info.slide:
            event_time = message.event_time if message.event_time >= 0 else message.progress
            time += (info.origin - event_time) % info.slide
        return time + info.max_latency - self.after(operator)

    def after(self, operator: int) -> int:
        """Return C_path: the largest sum of costs on a path behind an operator, ns."""
        found = self._paths.get(operator)
        if found is None:
            targets = self._operators[operator].targets
            found = max((self._costs[target] + self.after(target) for target in targets), default=0)
            self._paths[operator] = found
        return found


Item = TypeVar("Item")


def violators(
    queue: Iterable[tuple[int, int, Item]], free_at: int, may_offer: Callable[[Item], bool] = lambda _: True
) -> list[Item]:
    """Return those that would be late and may be offered, in order of deadlines.

    `queue`: (deadline, cost, message), first to run first, ns; `free_at`: E. The cost of a violator isn't carried on,
    as it will leave; that of a late message that may not leave is.
    """
    found, end = [], free_at
    for deadline, cost, item in queue:
        if end + cost > deadline and may_offer(item):
            found.append(item)
        else:
            end += cost
    return found


def chunks(found: list[Item], number: int) -> list[list[Item]]:
    """Distribute violators one by one over a number of lessees, for 2RTT-Parallel. Chunks may be empty."""
    return [found[first::number] for first in range(number)]


Key = tuple[int, int]  #: deadline, number of the arrival

FAR = 1 << 62  #: beyond all times, ns
SPLIT = 64  #: messages at which a block is halved


class _Block(Generic[Item]):
    """A run of the queue. `keys` and `deadlines`, `costs`, `items` are parallel."""

    __slots__ = ("cost", "costs", "deadlines", "items", "keys", "lowest")

    def __init__(self, keys: list[Key], costs: list[int], items: list[Item]) -> None:
        self.keys, self.costs, self.items = keys, costs, items
        self.deadlines = [deadline for deadline, _ in keys]
        self.cost = sum(costs)
        self.lowest: int | None = None  #: least stored laxity if the block were first; None: not computed

    def low(self) -> int:
        if self.lowest is None:
            self.lowest = min(map(sub, self.deadlines, accumulate(self.costs)), default=FAR)
        return self.lowest

    def low_behind(self, at: int) -> int:
        """Return the least stored laxity of the messages from position `at` on, if they were first."""
        if not at:
            return self.low()
        return min(map(sub, self.deadlines[at:], accumulate(self.costs[at:])), default=FAR)

    def insert(self, at: int, key: Key, cost: int, item: Item) -> None:
        self.keys.insert(at, key)
        self.deadlines.insert(at, key[0])
        self.costs.insert(at, cost)
        self.items.insert(at, item)
        self.cost += cost
        self.lowest = None

    def take(self, at: int) -> tuple[Key, int, Item]:
        del self.deadlines[at]
        key, cost, item = self.keys.pop(at), self.costs.pop(at), self.items.pop(at)
        self.cost -= cost
        self.lowest = None
        return key, cost, item

    def halve(self) -> _Block[Item]:
        """Keep the first half; the second. Its least laxity isn't computed: it has just got a message."""
        middle = len(self.keys) // 2
        other = _Block(self.keys[middle:], self.costs[middle:], self.items[middle:])
        for column in (self.keys, self.deadlines, self.costs, self.items):
            del column[middle:]
        self.cost -= other.cost
        return other


class LaxityQueue(Generic[Item]):
    """Messages by (deadline, arrival): times and costs in ns, on one clock. Items are hashable, each is in once.

    A block of more than `split` messages is halved.
    """

    __slots__ = ("_blocks", "_key_of", "_lasts", "_number", "_split", "cost")

    def __init__(self, split: int = SPLIT) -> None:
        self._split = split
        self._blocks: list[_Block[Item]] = []  #: none is empty
        self._lasts: list[Key] = []  #: last key of each block
        self._key_of: dict[Item, Key] = {}
        self._number = 0
        self.cost = 0  #: of all messages

    def __len__(self) -> int:
        return len(self._key_of)

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the messages, first to run first."""
        for block in self._blocks:
            yield from block.items

    def __contains__(self, item: Item) -> bool:
        return item in self._key_of

    def check(self, deadline: int, cost: int, free_at: int) -> bool:
        """Return whether a message would be on time, and all behind it stay more than on time (Eq. 6).

        `free_at`: E, when the first message can start.
        """
        ahead = 0
        key = (deadline, FAR)
        number = bisect_right(self._lasts, key)
        blocks = self._blocks
        for each in range(number):
            ahead += blocks[each].cost
        if number == len(blocks):
            return free_at + ahead + cost <= deadline
        block = blocks[number]
        at = bisect_right(block.keys, key)
        inside = sum(block.costs[:at])
        ahead += inside
        if free_at + ahead + cost > deadline:
            return False
        least = free_at + cost
        if block.low_behind(at) - ahead <= least:
            return False
        ahead += block.cost - inside
        for each in range(number + 1, len(blocks)):
            block = blocks[each]
            if block.low() - ahead <= least:
                return False
            ahead += block.cost
        return True

    def add(self, deadline: int, cost: int, item: Item) -> None:
        """Insert, behind all of the same deadline. ValueError for one that is in."""
        if item in self._key_of:
            raise ValueError("the message is in the queue already; remove it first")
        self._number += 1
        key = (deadline, self._number)
        self._key_of[item] = key
        self.cost += cost
        blocks, lasts = self._blocks, self._lasts
        if not blocks:
            blocks.append(_Block([key], [cost], [item]))
            lasts.append(key)
            return
        number = min(bisect_right(lasts, key), len(blocks) - 1)
        block = blocks[number]
        block.insert(bisect_left(block.keys, key), key, cost, item)
        if key > lasts[number]:
            lasts[number] = key
        if len(block.keys) > self._split:
            blocks.insert(number + 1, block.halve())
            lasts.insert(number, block.keys[-1])

    def poll(self) -> Item:
        """Take the first. IndexError if there is none."""
        if not self._blocks:
            raise IndexError("the queue is empty; ask for its length first")
        return self._take(0, 0)

    def remove(self, item: Item) -> None:
        """Take a message from anywhere. KeyError for one that is not in."""
        key = self._key_of[item]
        number = bisect_left(self._lasts, key)
        self._take(number, bisect_left(self._blocks[number].keys, key))

    def _take(self, number: int, at: int) -> Item:
        block = self._blocks[number]
        _, cost, item = block.take(at)
        self.cost -= cost
        if not block.keys:
            del self._blocks[number], self._lasts[number]
        elif at == len(block.keys):
            self._lasts[number] = block.keys[-1]
        del self._key_of[item]
        return item

    def lowest(self) -> int:
        """Return the least stored laxity: the latest E with which all are on time, ns; FAR if there is none."""
        ahead, found = 0, FAR
        for block in self._blocks:
            found = min(found, block.low() - ahead)
            ahead += block.cost
        return found

    def stored(self) -> dict[Item, int]:
        """Return the stored laxity by message, first to run first (Eq. 3)."""
        keys = [key for block in self._blocks for key in block.keys]
        costs = accumulate(cost for block in self._blocks for cost in block.costs)
        return {item: deadline - sum_ for item, (deadline, _), sum_ in zip(self, keys, costs, strict=True)}

    def marks(self) -> dict[Item, int]:
        """Return messages whose stored laxity is smaller than that of all behind them (Eq. 7)."""
        found, low = [], FAR
        for item, laxity in reversed(self.stored().items()):
            if laxity < low:
                low = laxity
                found.append((item, laxity))
        return dict(reversed(found))

    def entries(self) -> Iterator[tuple[int, int, Item]]:
        """Yield (deadline, cost, message), first to run first."""
        for block in self._blocks:
            yield from zip(block.deadlines, block.costs, block.items, strict=True)

    def violators(self, free_at: int, may_offer: Callable[[Item], bool] = lambda _: True) -> list[Item]:
        """Return what the function of this name finds, without a walk where no message is late."""
        return violators(self.entries(), free_at, may_offer) if self.lowest() < free_at else []

    def copy(self) -> LaxityQueue[Item]:
        """Return another queue with the same messages."""
        other: LaxityQueue[Item] = LaxityQueue()
        other._blocks = [_Block(block.keys[:], block.costs[:], block.items[:]) for block in self._blocks]
        other._lasts, other._key_of = self._lasts[:], self._key_of.copy()
        other._number, other.cost = self._number, self.cost
        return other

    def verify(self) -> None:
        """Raise AssertionError where an invariant does not hold: for tests."""
        keys = [key for block in self._blocks for key in block.keys]
        assert keys == sorted(keys), "keys are out of order"
        assert self._lasts == [block.keys[-1] for block in self._blocks], "last keys of blocks are wrong"
        assert self.cost == sum(block.cost for block in self._blocks), "the sum of the costs is wrong"
        assert dict(zip(self, keys, strict=True)) == self._key_of, "positions of messages are wrong"
        for block in self._blocks:
            assert 0 < len(block.keys) <= self._split, "a block is empty or too long"
            assert block.cost == sum(block.costs), "the cost of a block is wrong"
            fresh = _Block(block.keys, block.costs, block.items)
            assert block.lowest in (None, fresh.low()), "the least laxity of a block is wrong"


# --- Workers, messages and markers (2.1, 2.8) -------------------------------------------------------------------------
# A worker is one machine that executes one message at a time. A marker is a barrier for a function and window: a worker
# that has all markers of a window runs the messages of that window that it has queued, before all others, and then
# hands on its partial result. Markers come from every sender (queues chosen by the sender), or from the lessor, which
# has them from every sender. Channels keep the order of sending.


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


@dataclass(frozen=True, slots=True)
class Note:
    """The contents of a marker."""

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
