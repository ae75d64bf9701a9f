"""Windows whose messages several workers run: when is one complete (2.8)?

A marker is a barrier for its function and window: a worker that has all of them runs the messages of the window that it
has queued, before all others, and then hands on its partial result. Workers get them from every sender (queues chosen
by the sender), or from the lessor, which has them from every sender. Channels keep the order of sending.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from qod_magics.core.dispatch import Kind, Message, Topology
from qod_magics.policies.dirigo.worker import Worker


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
        """With the senders that operators have: other operators, and streams of clients."""
        senders = dict.fromkeys(range(len(topology.operators)), 0)
        for targets in (*(info.targets for info in topology.operators), *topology.entries):
            for target in targets:
                senders[target] += 1
        return cls(senders)

    def add(self, machine: int, marker: Message) -> bool:
        """Whether this was the last one that the machine waits for."""
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
    """Another one, for another worker."""
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
    """Markers per window on the way to the workers of a function: M*N from the senders, M+N through the lessor."""
    return senders + workers if by_lessor else senders * workers
