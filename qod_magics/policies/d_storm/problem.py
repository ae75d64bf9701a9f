"""The packing problem: what instances demand, what nodes can hold, what instances send to each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Demand:
    """Demand of one task of the source, an instance here."""

    id: str
    cpu: float  #: w_c(i), points: % of one core
    memory: float = 0.0  #: w_m(i), MB


@dataclass(frozen=True, slots=True)
class Node:
    """A node that can hold instances: a task manager, or one that the cluster could start."""

    id: str
    cpu: float  #: W_c(k), points: 100 for each core that is free for the instances
    memory: float = inf  #: W_m(k), MB; infinite: unknown, so no limit
    price: float | None = None  #: per hour; None: unknown
    cores: float | None = None  #: its nominal size, whatever is free of it; None: that of `cpu`
    kind: str | None = None  #: as in `AddNode.kind`, of a node that would have to be started; None: it is up

    @property
    def size(self) -> tuple[float, float, float | None]:
        """What nodes that can take each other's place have in common."""
        return (self.cpu / 100.0 if self.cores is None else self.cores, self.memory, self.price)


@dataclass(frozen=True, slots=True)
class Channel:
    """A directed stream between two instances."""

    source: str
    target: str
    traffic: float  #: xi(i,j), rows/s or bytes/s: one of them for all channels of a problem


@dataclass(frozen=True, slots=True)
class Problem:
    """The input of one scheduling round. Order matters: it settles ties."""

    demands: Sequence[Demand]
    nodes: Sequence[Node]
    channels: Sequence[Channel]

    def with_nodes(self, nodes: Iterable[Node]) -> Problem:
        """The same with other nodes."""
        return Problem(self.demands, tuple(nodes), self.channels)
