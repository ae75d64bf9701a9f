"""The centralised baseline: one worker does nothing but pass messages on, each to a random other (2.10)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from qod_magics.core.dispatch import Forward, Instruction, Kind, Message, Run, Topology
from qod_magics.errors import UsageProblem
from qod_magics.policies.dirigo.base import Dirigo
from qod_magics.policies.dirigo.draws import Draws
from qod_magics.policies.dirigo.options import Options

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
        """Once. UsageProblem without a second machine, or with windows that are spread."""
        super().begin(topology)
        if len(self.workers) < 2:
            raise UsageProblem("central-random needs a machine besides the scheduler's; give it two or more")
        if any(info.partial for info in topology.operators):
            raise UsageProblem("central-random can't spread windows over workers; bind them to one")
        self._waiting: deque[Message] = deque()
        self._runners = tuple(machine for machine in self.workers if machine != SCHEDULER)

    def allowed(self, operator: int) -> tuple[int, ...]:
        """All but the scheduler; one of them for windows."""
        return (self._runners[operator % len(self._runners)],) if self._bound[operator] else self._runners

    def made(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        """To the scheduler."""
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
        """The scheduler has decided; any other worker runs its next message."""
        if self.topology.workers[worker] != SCHEDULER:
            yield from super().finished(now, worker, message)
            return
        self.workers[SCHEDULER].running = None
        yield self._pass_on(self._waiting.popleft())
        if self._waiting:
            yield self._decide(self._waiting[0])

    def _decide(self, message: Message) -> Forward:
        """A decision costs the scheduler CPU, as a message to itself."""
        return Forward(
            Message(-1, message.operator, message.operator, cost=self.decision, kind=Kind.CONTROL, work=self.decision),
            SCHEDULER,
        )

    def _pass_on(self, message: Message) -> Forward:
        (machine,) = self.draws.some(self.allowed(message.operator), 1)
        self.traffic.forwards += 1
        return Forward(message, machine)
