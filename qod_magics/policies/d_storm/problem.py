"""The packing problem: parameters, what instances demand, what nodes hold, what instances send to each other. Pure.

Demands are those at the workload to plan for: Eq. 5.1, estimated from one window (section 2.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Parameters:
    """Sections 2.4 to 2.7 of the specification; [C]: our choice, where the source gives no value."""

    alpha: float = 10.0  #: weight of the traffic that a placement keeps inside the node now
    beta: float = 1.0  #: weight of the traffic that it may still keep inside
    threshold: float = 0.80  #: D: usage of a node, a fraction of 1, above which `beta` no longer counts; inclusive
    window_s: float = 60.0  #: observation window, over which metrics are averaged
    interval_s: float = 600.0  #: least time between two scheduling rounds
    max_latency_s: float = 0.5  #: l_max, of queries that state no target of their own
    consolidation: float = 0.50  #: theta [C]: usage of a node below which it counts as under-used
    tolerance: float = 0.05  #: tol [C]: throughput below (1 - tol) of the workload does not match it
    relabel: bool = True  #: [C] nodes of one size change their roles so that fewer instances move
    fuse: bool = True  #: [C] co-located tasks become one query, and are separated where they no longer pack
    fixed_memory_mb: float = 0.0  #: [C] intercept of an instance's memory, which does not grow with its input
    node_patience_s: float = 180.0  #: [C] how long a round waits, beyond its start time, for a node that it ordered
    cycle_s: float = 5.0  #: [C] time between two snapshots that do not say when they were measured


DEFAULTS = Parameters()


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
        """Return this problem with other nodes."""
        return Problem(self.demands, tuple(nodes), self.channels)


def total_traffic(channels: Iterable[Channel]) -> float:
    """Return the traffic between all instances, in the unit of the channels."""
    return sum(channel.traffic for channel in channels if channel.source != channel.target)


def inter_node_traffic(channels: Iterable[Channel], placement: Mapping[str, str]) -> float:
    """Return kappa: traffic of the channels whose ends are on different nodes; each directed channel counts once."""
    return sum(channel.traffic for channel in channels if placement[channel.source] != placement[channel.target])


def costs(*sets: Iterable[Node]) -> tuple[float, ...]:
    """Return what each of these sets of nodes costs, to compare them: per hour, or in cores unless all have a price."""
    found = [list(nodes) for nodes in sets]
    priced = all(node.price is not None for nodes in found for node in nodes)
    return tuple(sum((node.price or 0.0) if priced else node.size[0] for node in nodes) for nodes in found)


@dataclass(frozen=True, slots=True)
class Requirement:
    """Demand for each row/s of input, and what does not depend on the input."""

    per_row: float  #: rho, points or MB per row/s
    fixed: float = 0.0  #: intercept, points or MB; 0 in the source

    def at(self, rate: float) -> float:
        """Return the demand at this input rate, rows/s (Eq. 5.1)."""
        return self.fixed + rate * self.per_row


def requirement(measured: float, rate: float, fixed: float = 0.0, last: Requirement | None = None) -> Requirement:
    """Return the requirement from the mean over a window: `measured` points or MB at `rate` rows/s.

    Without input nothing is learned about rows: the last known value stays, and all that it uses is fixed.
    """
    if rate <= 0:
        return Requirement(last.per_row if last is not None else 0.0, measured)
    fixed = min(fixed, measured)
    return Requirement((measured - fixed) / rate, fixed)


def input_rates(tasks: Iterable[str], channels: Iterable[Channel], external: Mapping[str, float]) -> dict[str, float]:
    """Return in(i), rows/s: the sum of its channels, or what a source takes from the outside."""
    rates = {task: external.get(task, 0.0) for task in tasks}
    for channel in channels:
        rates[channel.target] += channel.traffic
    return rates


def growth(
    tasks: Sequence[str],
    channels: Sequence[Channel],
    read: Mapping[str, float],
    workload: Mapping[str, float],
    tolerance: float = 0.0,
) -> dict[str, float]:
    """Return by task the rate to plan for / the rate measured; 1 where it keeps up and so does all above it.

    A task that falls behind holds back all that it feeds, which would be planned at its throttled demand. What several
    tasks feed grows by the shares of their origin.

    Args:
        tasks: sources before their readers.
        channels: measured, rows/s.
        read: by task, rows/s that it processed.
        workload: by source, rows/s that it should process.
        tolerance: how far, as a fraction of 1, what is read may stay behind what arrives.

    """
    arriving = input_rates(tasks, channels, workload)
    feeding: dict[str, list[Channel]] = {task: [] for task in tasks}
    for channel in channels:
        feeding[channel.target].append(channel)
    factors: dict[str, float] = {}
    for task in tasks:
        above = sum(channel.traffic * factors[channel.source] for channel in feeding[task])
        mean = above / arriving[task] if feeding[task] and arriving[task] > 0 else 1.0
        behind = 0 < read[task] < (1.0 - tolerance) * arriving[task]
        factors[task] = mean * (arriving[task] / read[task] if behind else 1.0)
    return factors


def planned(channels: Iterable[Channel], factors: Mapping[str, float]) -> list[Channel]:
    """Return the channels at the rates to plan for: each grows as its source does."""
    return [Channel(each.source, each.target, each.traffic * factors[each.source]) for each in channels]
