"""What managers approximate, exactly: latencies of items (Eq. 1), owners of sequences and overlaps of graphs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from qod_magics.core.job_graph import RuntimeGraph, Task
from qod_magics.policies.nephele.latency import ManagerSetup, Path, anchor


def owner(graph: RuntimeGraph, path: Path, sequence: Sequence[Task]) -> str:
    """Return the worker whose manager answers for a runtime sequence, given by its tasks along the path."""
    return graph.worker(sequence[path.index(anchor(graph, path))])


def overlap(setups: Iterable[ManagerSetup]) -> int:
    """Return the sum over ordered pairs of managers of the tasks that both graphs have: the second objective."""
    counts: dict[Task, int] = {}
    for each in setups:
        for task in each.vertices:
            counts[task] = counts.get(task, 0) + 1
    return sum(count * (count - 1) for count in counts.values())


@dataclass(frozen=True, slots=True)
class Crossing:
    """An item on a channel."""

    item: Hashable
    exits: float  #: when it leaves the sender's user code
    enters: float  #: when it enters the receiver's

    @property
    def latency(self) -> float:
        """Channel latency: the output buffer, transport and the receiver's queue."""
        return self.enters - self.exits


@dataclass(frozen=True, slots=True)
class Emission:
    """An item that leaves the user code of a task towards the sequence's next channel."""

    item: Hashable
    exits: float


#: The elements of a sequence in turn: what crossed a channel, or what a task emitted; each in the order of time.
Log: TypeAlias = Sequence[Sequence[Crossing] | Sequence[Emission]]


def task_latency(entered: float, exits: Sequence[float]) -> float:
    """Return the time from when an item enters to the first exit at or after that; infinite if nothing is emitted any
    more.

    `exits` ascend.
    """
    i = bisect_left(exits, entered)
    return exits[i] - entered if i < len(exits) else inf


def element_latencies(log: Log, entry: Crossing) -> list[float]:
    """Return the latency of each element for an item that enters the sequence by its first channel; up to an infinite
    one."""
    found: list[float] = []
    item: Hashable = entry.item
    at = entry.exits
    for element in log:
        if not element:
            return [*found, inf]
        if isinstance(element[0], Crossing):
            crossing = next((c for c in element if c.item == item and isinstance(c, Crossing)), None)
            if crossing is None:
                return [*found, inf]
            found.append(crossing.latency)
            at = crossing.enters
        else:
            exits = [emission.exits for emission in element]
            found.append(task_latency(at, exits))
            if found[-1] == inf:
                return found
            emission = element[bisect_left(exits, at)]
            item, at = emission.item, emission.exits
    return found


def sequence_latencies(log: Log) -> Mapping[Hashable, float | None]:
    """Return the sequence latency of each item that enters by the first channel; None if undefined or infinite
    (N11)."""
    found: dict[Hashable, float | None] = {}
    for entry in log[0] if log else ():
        if isinstance(entry, Crossing):
            total = sum(element_latencies(log, entry))
            found[entry.item] = None if total == inf else total
    return found


def exact_mean(log: Log) -> float | None:
    """Return the mean of Eq. 1 over the items that have a sequence latency; None without any."""
    known = [value for value in sequence_latencies(log).values() if value is not None]
    return sum(known) / len(known) if known else None


def is_violated(latency_ms: float | None, limit_ms: float) -> bool:
    """Return whether a mean is known and above its limit."""
    return latency_ms is not None and latency_ms > limit_ms
