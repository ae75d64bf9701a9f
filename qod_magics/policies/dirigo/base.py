"""The dispatcher that all policies of Dirigo share: options, random draws, and one queue per worker.

`Dirigo` sends each message to the lessor of its function and keeps queues in order of deadlines. Policies override its
hooks: `received`, `leased`, `after`, `may_close`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from zlib import crc32

from qod_magics.core.engines import Forward, Instruction, Kind, Message, Run, Topology
from qod_magics.errors import UsageProblem, counted
from qod_magics.policies.dirigo.queues import Deadlines, Markers, Ticket, Traffic, Worker, copy, note, promote


@dataclass(frozen=True, slots=True)
class Options:
    """Parameters of the policies. Raises UsageProblem, one line, for other values."""

    parallelism_range: int | None = None  #: N: workers that may run a function, its lessor included; None: all
    account_running: bool = True  #: E is the end of the running message; off: always now, as printed (E7)
    force_migrate: bool = True  #: a lessee takes what it is sent without a check
    random_lessee: bool = True  #: off: the one with the shortest queue by the last that is known of it
    search_range: int = 2  #: lessees asked per action, check-first
    reply_required: int = 1  #: replies after which an action is decided
    marker_cost: int = 0  #: CPU of a worker per marker that reaches it, ns (ours: the source gives none)
    seed: int = 0  #: of the draws

    def __post_init__(self) -> None:
        if self.parallelism_range is not None and self.parallelism_range < 1:
            raise UsageProblem(
                f"parallelism_range: {self.parallelism_range} is below 1; give a number of workers",
                name="parallelism_range",
                rule="count",
            )
        if self.search_range < 1:
            raise UsageProblem(
                f"search_range: {self.search_range} is below 1; give a number of lessees to ask",
                name="search_range",
                rule="count",
            )
        if not 1 <= self.reply_required <= self.search_range:
            raise UsageProblem(
                f"reply_required: {self.reply_required} is not within 1 and search_range, {self.search_range}",
                name="reply_required",
                rule="range",
            )


_ALL = (1 << 64) - 1


class Draws(Protocol):
    """Draws workers."""

    def some(self, workers: Sequence[int], number: int) -> Sequence[int]:
        """Return different workers, at most as many as there are."""
        ...


class Seeded:
    """Uniform draws from a seed, by SplitMix64: the same on every platform, and without a state outside of it."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _ALL

    def below(self, number: int) -> int:
        """Draw one of 0 to number - 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _ALL
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _ALL
        return ((mixed ^ (mixed >> 31)) * number) >> 64

    def some(self, workers: Sequence[int], number: int) -> Sequence[int]:
        """Return different workers, at most as many as there are."""
        count = len(workers)
        if number == 1:
            return (workers[self.below(count)],)
        if number == 2 and count > 1:
            first, second = self.below(count), self.below(count - 1)
            return (workers[first], workers[second + (second >= first)])
        left = list(workers)
        for at in range(min(number, count)):
            other = at + self.below(count - at)
            left[at], left[other] = left[other], left[at]
        return left[:number]


def lessor(address: str, workers: int) -> int:
    """Return the worker that a function is bound to, by a stable hash of its address."""
    return crc32(address.encode()) % workers


def neighbours(lessor: int, parallelism_range: int | None, workers: int) -> tuple[int, ...]:
    """Return the workers that may run a function, lessor first: as many as the range says, upwards and around (Eq.
    8)."""
    number = workers if parallelism_range is None else min(parallelism_range, workers)
    return tuple((lessor + k) % workers for k in range(number))


class Dirigo:
    """Senders send to the lessor, which decides in `received` and `after`. A worker knows its own queue, and of others
    only what their replies said.

    Args:
        options: parameters.
        draws: random choices; None: from the seed.
        deadline: of a message, ns; None: Eq. 1.

    """

    name = "dirigo"
    by_lessor = True  #: whether the lessor passes markers on; else the senders send one to each worker

    def __init__(
        self,
        options: Options | None = None,
        draws: Draws | None = None,
        deadline: Callable[[Message], int] | None = None,
    ) -> None:
        self.options = options or Options()
        self.draws = draws or Seeded(self.options.seed)
        self.traffic = Traffic()
        self._deadline = deadline

    def begin(self, topology: Topology) -> None:
        """Prepare for a topology, once. Raises UsageProblem where a machine has not exactly one worker."""
        if sorted(topology.workers) != list(range(len(topology.workers))):
            machines = len(set(topology.workers))
            raise UsageProblem(
                f"{self.name} needs machines with one worker each, not {counted(len(topology.workers), 'worker')} on "
                f"{counted(machines, 'machine')}: give the cluster one worker a machine",
                rule="one worker a machine",
            )
        self.topology = topology
        self.workers = {machine: Worker(machine, number) for number, machine in enumerate(topology.workers)}
        self.markers = Markers.of(topology)
        self._due = self._deadline or Deadlines(topology)
        self._lessors = [info.machine for info in topology.operators]
        self._range: dict[int, tuple[int, ...]] = {}
        self._others: dict[int, tuple[int, ...]] = {}
        #: windows whose parts no one merges, and all before them, are executed by their lessors alone, in order
        self._bound = _ordered(topology)
        self._latest: dict[tuple[int, int, int], int] = {}  #: deadline by sender, stream and bound operator

    # --- who may run what ---------------------------------------------------------------------------------------------

    def range(self) -> int | None:
        """Return N, the parallelism range; None: all workers."""
        return self.options.parallelism_range

    def allowed(self, operator: int) -> tuple[int, ...]:
        """Return the machines that may run an operator, its lessor first."""
        lessor = self._lessors[operator]
        if self._bound[operator]:
            return (lessor,)
        found = self._range.get(lessor)
        if found is None:
            found = self._range[lessor] = neighbours(lessor, self.range(), len(self.workers))
        return found

    def lessees(self, operator: int) -> tuple[int, ...]:
        """Return the machines that may run an operator, without its lessor."""
        if self._bound[operator]:
            return ()
        lessor = self._lessors[operator]
        found = self._others.get(lessor)
        if found is None:
            found = self._others[lessor] = self.allowed(operator)[1:]
        return found

    def ticket(self, message: Message) -> Ticket:
        """Return a ticket with the priority of a message: no earlier than the one before it, where the order of a
        channel matters."""
        operator, due = message.operator, self._due(message)
        if self._bound[operator]:
            channel = (message.sender, message.source, operator)
            due = self._latest[channel] = max(due, self._latest.get(channel, due))
        return Ticket(due, self._lessors[operator])

    # --- the queue of a worker ----------------------------------------------------------------------------------------

    def start(self, now: int, worker: Worker) -> Iterator[Instruction]:
        """Run the next message, if the worker is idle and has one."""
        message = worker.next(now)
        if message is not None:
            yield Run(worker.number, message)

    def insert(self, now: int, worker: Worker, message: Message) -> Iterator[Instruction]:
        """Queue a message without a check."""
        worker.queue.add(message.context.deadline, message.cost, message)
        return self.start(now, worker)

    def fits(self, now: int, worker: Worker, message: Message) -> bool:
        """Return whether a worker can run a message in time: CHECK (Eq. 6)."""
        free_at = worker.free_at(now, self.options.account_running)
        return worker.queue.check(message.context.deadline, message.cost, free_at)

    def may_offer(self, worker: Worker, message: Message) -> bool:
        """Return whether this worker may offer a message to another: as its lessor, and once."""
        ticket: Ticket = message.context
        return not ticket.offered and ticket.lessor == worker.machine and bool(self.lessees(message.operator))

    # --- hooks of the policies ----------------------------------------------------------------------------------------

    def received(self, now: int, worker: Worker, message: Message) -> Iterator[Instruction]:
        """Handle a message that reached its lessor for the first time."""
        return self.insert(now, worker, message)

    def leased(self, now: int, worker: Worker, message: Message) -> Iterator[Instruction]:
        """Handle a message that reached another worker than its lessor."""
        return self.insert(now, worker, message)

    def after(self, now: int, worker: Worker) -> Iterator[Instruction]:
        """Act after a worker has executed a message, before it chooses the next one."""
        yield from ()

    def may_close(self, now: int, marker: Message) -> bool:
        """Return whether the lessor may pass on that a window is complete."""
        return True

    # --- events -------------------------------------------------------------------------------------------------------

    def made(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        """Send a message to its lessor at once."""
        lessor = self._lessors[message.operator]
        if message.kind is Kind.MARKER:
            self.traffic.markers += 1
            return (Forward(note(message, False, self.options.marker_cost), lessor),)
        message.context = self.ticket(message)
        self.traffic.data += 1
        return (Forward(message, lessor),)

    def arrived(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        """Queue it, or send it elsewhere."""
        worker = self.workers[at]
        if message.kind is Kind.CONTROL and not message.work:
            return self.marked(now, worker, message)
        if message.kind is not Kind.DATA:
            worker.urgent.append(message)
            return self.start(now, worker)
        ticket: Ticket = message.context
        if at != ticket.lessor:
            return self.leased(now, worker, message)
        return self.insert(now, worker, message) if ticket.offered else self.received(now, worker, message)

    def finished(self, now: int, worker: int, message: Message) -> Iterator[Instruction]:
        """Look at the queue, then run the next."""
        mine = self.workers[self.topology.workers[worker]]
        mine.running = None
        if message.kind is Kind.CONTROL:
            yield from self.marked(now, mine, message)
        yield from self.after(now, mine)
        yield from self.start(now, mine)

    def replied(self, now: int, at: int, operator: int, content: Any) -> Iterable[Instruction]:
        """Raise RuntimeError: this policy asks nothing."""
        raise RuntimeError(f"{self.name} asks nothing, but machine {at} got {content!r}")

    def settle(self, now: int) -> Iterable[Instruction]:
        """Do nothing: nothing is left for the end of an instant."""
        return ()

    def check(self) -> None:
        """Raise AssertionError where an invariant does not hold."""
        for worker in self.workers.values():
            worker.check()

    # --- ends of windows ----------------------------------------------------------------------------------------------

    def marked(self, now: int, worker: Worker, marker: Message) -> Iterator[Instruction]:
        """Handle a marker that reached a machine."""
        if marker.context.closing:
            yield from self.close(now, worker, marker)
        elif self.markers.add(worker.machine, marker):
            if not self.by_lessor:
                yield from self.close(now, worker, marker)
            elif self.may_close(now, marker):
                yield from self.pass_on(marker)

    def pass_on(self, marker: Message) -> Iterator[Instruction]:
        """Send a marker from the lessor to all workers that may have messages of the window."""
        for machine in self.allowed(marker.operator):
            self.traffic.markers += 1
            yield Forward(copy(marker, True, self.options.marker_cost), machine)

    def close(self, now: int, worker: Worker, marker: Message) -> Iterator[Instruction]:
        """Run what is left of a window, then hand on its partial result."""
        yield Forward(promote(worker, marker, len(self.allowed(marker.operator))), worker.machine)
        yield from self.start(now, worker)


def _ordered(topology: Topology) -> list[bool]:
    """Return the operators whose messages have to be executed in the order of their channels: they lead to a plain
    window."""
    operators = topology.operators
    before: dict[int, list[int]] = {}
    for number, info in enumerate(operators):
        for target in info.targets:
            before.setdefault(target, []).append(number)
    found = [bool(info.slide) and not info.partial for info in operators]
    left = [number for number, window in enumerate(found) if window]
    while left:
        for number in before.get(left.pop(), ()):
            if not found[number]:
                found[number] = True
                left.append(number)
    return found
