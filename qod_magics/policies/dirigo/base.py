"""What all policies of Dirigo share: one queue per worker, each in order of deadlines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from qod_magics.core.dispatch import Forward, Instruction, Kind, Message, Run, Topology
from qod_magics.core.wording import counted
from qod_magics.errors import UsageProblem
from qod_magics.policies.dirigo.allowed import neighbours
from qod_magics.policies.dirigo.deadlines import Deadlines
from qod_magics.policies.dirigo.draws import Draws, Seeded
from qod_magics.policies.dirigo.markers import Markers, copy, note, promote
from qod_magics.policies.dirigo.messages import Ticket, Traffic
from qod_magics.policies.dirigo.options import Options
from qod_magics.policies.dirigo.worker import Worker


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
    offer_delays = 1  #: one-way delays from the decision to offer a message until a lessee has it

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
        """Once. UsageProblem where a machine has not exactly one worker."""
        if sorted(topology.workers) != list(range(len(topology.workers))):
            machines = len(set(topology.workers))
            raise UsageProblem(
                f"{self.name} needs machines with one worker each, not {counted(len(topology.workers), 'worker')} on "
                f"{counted(machines, 'machine')}: give the cluster one worker a machine"
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
        """N; None: all workers."""
        return self.options.parallelism_range

    def allowed(self, operator: int) -> tuple[int, ...]:
        """The machines that may run an operator, its lessor first."""
        lessor = self._lessors[operator]
        if self._bound[operator]:
            return (lessor,)
        found = self._range.get(lessor)
        if found is None:
            found = self._range[lessor] = neighbours(lessor, self.range(), len(self.workers))
        return found

    def lessees(self, operator: int) -> tuple[int, ...]:
        """Those without the lessor."""
        if self._bound[operator]:
            return ()
        lessor = self._lessors[operator]
        found = self._others.get(lessor)
        if found is None:
            found = self._others[lessor] = self.allowed(operator)[1:]
        return found

    def ticket(self, message: Message) -> Ticket:
        """With the priority of a message: no earlier than the one before it, where the order of a channel matters."""
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
        """CHECK (Eq. 6)."""
        free_at = worker.free_at(now, self.options.account_running)
        return worker.queue.check(message.context.deadline, message.cost, free_at)

    def may_offer(self, now: int, worker: Worker, message: Message) -> bool:
        """Whether this worker may offer a message to another: as its lessor, and once."""
        ticket: Ticket = message.context
        lessees = self.lessees(message.operator)
        if ticket.offered or ticket.lessor != worker.machine or not lessees:
            return False
        if not self.options.skip_doomed:
            return True
        delay = min(self.topology.delay_between(worker.machine, machine) for machine in lessees)
        return now + self.offer_delays * delay + message.cost <= ticket.deadline

    # --- hooks of the policies ----------------------------------------------------------------------------------------

    def received(self, now: int, worker: Worker, message: Message) -> Iterator[Instruction]:
        """A message reached its lessor for the first time."""
        return self.insert(now, worker, message)

    def leased(self, now: int, worker: Worker, message: Message) -> Iterator[Instruction]:
        """A message reached another worker than its lessor."""
        return self.insert(now, worker, message)

    def after(self, now: int, worker: Worker) -> Iterator[Instruction]:
        """A worker has executed a message, and not yet chosen the next one."""
        yield from ()

    def may_close(self, now: int, marker: Message) -> bool:
        """Whether the lessor may pass on that a window is complete."""
        return True

    # --- events -------------------------------------------------------------------------------------------------------

    def made(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        """To the lessor, at once."""
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
        """Nobody asks."""
        raise RuntimeError(f"{self.name} asks nothing, but machine {at} got {content!r}")

    def settle(self, now: int) -> Iterable[Instruction]:
        """Nothing is left for the end of an instant."""
        return ()

    def check(self) -> None:
        """AssertionError where an invariant does not hold."""
        for worker in self.workers.values():
            worker.check()

    # --- ends of windows ----------------------------------------------------------------------------------------------

    def marked(self, now: int, worker: Worker, marker: Message) -> Iterator[Instruction]:
        """A marker reached a machine."""
        if marker.context.closing:
            yield from self.close(now, worker, marker)
        elif self.markers.add(worker.machine, marker):
            if not self.by_lessor:
                yield from self.close(now, worker, marker)
            elif self.may_close(now, marker):
                yield from self.pass_on(marker)

    def pass_on(self, marker: Message) -> Iterator[Instruction]:
        """From the lessor to all workers that may have messages of the window."""
        for machine in self.allowed(marker.operator):
            self.traffic.markers += 1
            yield Forward(copy(marker, True, self.options.marker_cost), machine)

    def close(self, now: int, worker: Worker, marker: Message) -> Iterator[Instruction]:
        """Run what is left of a window, then hand on its partial result."""
        yield Forward(promote(worker, marker, len(self.allowed(marker.operator))), worker.machine)
        yield from self.start(now, worker)


def _ordered(topology: Topology) -> list[bool]:
    """Operators whose messages have to be executed in the order of their channels: they lead to a plain window."""
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
