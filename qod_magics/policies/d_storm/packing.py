"""Greedy packing of instances into nodes so that traffic stays inside nodes (Algorithm 1), in its incremental form.

Nodes are filled in the order of Eq. 5.4; the instance with the highest priority for the open node (Eq. 5.5) goes next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated

from qod_magics.policies.parameters import Parameter, check

# --- The packing problem ----------------------------------------------------------------------------------------------
# The packing problem: parameters, what instances demand, what nodes hold, what instances send to each other. Pure.
#
# Demands are those at the workload to plan for: Eq. 5.1, estimated from one window (section 2.1).


@dataclass(frozen=True, slots=True)
class Parameters:
    """Sections 2.4 to 2.7 of the specification; [C]: our choice, where the source gives no value."""

    alpha: Annotated[float, Parameter("weight of the traffic that a placement keeps inside the node now", least=0)] = (
        10.0
    )
    beta: Annotated[float, Parameter("weight of the traffic that it may still keep inside", least=0)] = 1.0
    #: D; inclusive
    threshold: Annotated[
        float, Parameter("usage of a node, a fraction of 1, above which `beta` no longer counts", above=0, most=1)
    ] = 0.80
    window_s: Annotated[float, Parameter("observation window, over which metrics are averaged, seconds", above=0)] = (
        60.0
    )
    interval_s: Annotated[float, Parameter("least time between two scheduling rounds, seconds", least=0)] = 600.0
    #: l_max
    max_latency_s: Annotated[
        float, Parameter("target latency of queries that state none of their own, seconds", above=0)
    ] = 0.5
    #: theta [C]
    consolidation: Annotated[
        float, Parameter("usage of a node, a fraction of 1, below which it counts as under-used", least=0, most=1)
    ] = 0.50
    #: tol [C]
    tolerance: Annotated[
        float, Parameter("throughput below 1 - tolerance of the workload does not match it", least=0, most=1)
    ] = 0.05
    #: [C]
    relabel: Annotated[bool, Parameter("nodes of one size change their roles so that fewer instances move")] = True
    #: [C]
    fuse: Annotated[
        bool, Parameter("co-located tasks become one query, and are separated where they no longer pack")
    ] = True
    #: [C] intercept
    fixed_memory_mb: Annotated[
        float, Parameter("memory of an instance that does not grow with its input, MB", least=0)
    ] = 0.0
    #: [C]
    node_patience_s: Annotated[
        float, Parameter("how long a round waits, beyond its start time, for a node that it ordered, seconds", least=0)
    ] = 180.0
    #: [C]
    cycle_s: Annotated[
        float, Parameter("time between two snapshots that do not say when they were measured, seconds", above=0)
    ] = 5.0

    def __post_init__(self) -> None:
        """Raise UsageProblem for a value out of range."""
        check(self)


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
        """Return what nodes that can take each other's place have in common."""
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


SLACK = 1e-9  #: points or MB by which a demand may exceed what is left


@dataclass(frozen=True, slots=True)
class Packing:
    """The result of one scheduling round."""

    placement: Mapping[str, str]  #: node by instance, in the order in which they were placed
    order: tuple[str, ...]  #: the nodes in the order in which they would be filled
    opened: tuple[str, ...]  #: those of them that were tried
    unplaced: tuple[str, ...] = ()  #: instances that fitted nowhere: FAILURE, nothing of it is to be applied

    @property
    def is_complete(self) -> bool:
        """Return whether every instance has a node."""
        return not self.unplaced

    @property
    def used(self) -> tuple[str, ...]:
        """V_used: the opened nodes that hold an instance (Eq. 5.3), not all that the printed listing counts."""
        holding = set(self.placement.values())
        return tuple(node for node in self.opened if node in holding)


@dataclass(frozen=True, slots=True)
class Step:
    """One choice: the open node and the priorities of all instances that fit into it."""

    node: str
    usage: float  #: R(k) before the choice, a fraction of 1
    priorities: Mapping[str, Priority]


def pack(problem: Problem, parameters: Parameters = DEFAULTS, watch: Callable[[Step], None] | None = None) -> Packing:
    """Return the placement of all instances, or which of them fit nowhere. `watch` sees every choice.

    Nodes are filled one by one, each until nothing fits any more, always by the instance with the highest priority.
    O(n ** 2 + channels + m log m) for n instances and m nodes: of each instance, the traffic with the open node (q1)
    and with instances not yet placed (q2) is kept up to date instead of summed again.
    """
    demands = problem.demands
    traffic = _Traffic(demands, problem.channels)
    order = in_order(problem.nodes, demands)
    todo = list(range(len(demands)))
    opened: list[str] = []
    placement: dict[str, str] = {}
    for node in order:
        if not todo:
            break
        opened.append(node.id)
        traffic.open_node()
        filling = _Filling(node, parameters)
        while (best := filling.best(todo, demands, traffic, watch)) is not None:
            todo.remove(best)
            traffic.place(best)
            filling.add(demands[best])
            placement[demands[best].id] = node.id
    return Packing(placement, tuple(node.id for node in order), tuple(opened), tuple(demands[i].id for i in todo))


class _Traffic:
    """q1 and q2 of every instance, by position."""

    def __init__(self, demands: Sequence[Demand], channels: Sequence[Channel]) -> None:
        position = {demand.id: i for i, demand in enumerate(demands)}
        self.neighbours: list[dict[int, float]] = [{} for _ in demands]  #: traffic in both directions
        for channel in channels:
            i, j = position[channel.source], position[channel.target]
            if i != j:
                self.neighbours[i][j] = self.neighbours[i].get(j, 0.0) + channel.traffic
                self.neighbours[j][i] = self.neighbours[j].get(i, 0.0) + channel.traffic
        self.now = [0.0] * len(demands)  #: q1: with instances on the open node
        self.later = [sum(near.values()) for near in self.neighbours]  #: q2: with instances on no node
        self.unplaced = [len(near) for near in self.neighbours]  #: neighbours on no node

    def open_node(self) -> None:
        self.now = [0.0] * len(self.now)

    def place(self, i: int) -> None:
        for j, traffic in self.neighbours[i].items():
            self.now[j] += traffic
            self.unplaced[j] -= 1
            # without neighbours to come it is exactly 0: what subtraction leaves would break ties
            self.later[j] = self.later[j] - traffic if self.unplaced[j] else 0.0


class _Filling:
    """The open node."""

    def __init__(self, node: Node, parameters: Parameters) -> None:
        self.node = node
        self.parameters = parameters
        self.cpu = 0.0  #: used, points
        self.memory = 0.0  #: used, MB

    def add(self, demand: Demand) -> None:
        self.cpu += demand.cpu
        self.memory += demand.memory

    def best(
        self, todo: Sequence[int], demands: Sequence[Demand], traffic: _Traffic, watch: Callable[[Step], None] | None
    ) -> int | None:
        """Return the instance with the highest priority of those that fit, None if none does."""
        node, cpu, memory = self.node, self.cpu, self.memory
        free_cpu, free_memory = node.cpu - cpu + SLACK, node.memory - memory + SLACK
        usage = max(share(cpu, node.cpu), share(memory, node.memory))
        alpha = self.parameters.alpha
        # the usage before the candidate: a state of the node, the same for all of them
        beta = self.parameters.beta if usage <= self.parameters.threshold + EQUAL else 0.0
        now, later = traffic.now, traffic.later
        seen: dict[str, Priority] = {}
        best, best_numerator, best_cost = None, 0.0, 0.0
        for i in todo:
            demand = demands[i]
            if demand.cpu > free_cpu or demand.memory > free_memory:
                continue
            with_it = max(share(cpu + demand.cpu, node.cpu), share(memory + demand.memory, node.memory))
            numerator, cost = alpha * now[i] + beta * later[i], with_it - usage
            if watch is not None:
                seen[demand.id] = Priority(numerator, cost)
            if best is None or exceeds(numerator, cost, best_numerator, best_cost):
                best, best_numerator, best_cost = i, numerator, cost
        if watch is not None and seen:
            watch(Step(node.id, usage, seen))
        return best


def availability(nodes: Iterable[Node], demands: Sequence[Demand]) -> list[float]:
    """Return by node how many average instances it could hold in its scarcer resource; infinite if none is demanded."""
    cpu, memory = sum(demand.cpu for demand in demands), sum(demand.memory for demand in demands)
    return [min(_held(node.cpu, cpu, len(demands)), _held(node.memory, memory, len(demands))) for node in nodes]


def in_order(nodes: Sequence[Node], demands: Sequence[Demand]) -> list[Node]:
    """Return the nodes by `availability`, the largest first; equal ones in the order given. Sorted once, before
    packing."""
    available = availability(nodes, demands)
    return [nodes[k] for k in sorted(range(len(nodes)), key=lambda k: -available[k])]


def _held(capacity: float, total: float, n: int) -> float:
    return n * capacity / total if total > 0 else inf


NOTHING = 1e-12  #: a cost, or a numerator, that counts as 0
EQUAL = 1e-9  #: relative difference of priorities, and difference of costs, that counts as none


@dataclass(frozen=True, slots=True)
class Priority:
    """q(i,k) as its parts, since infinite ones differ in their numerators."""

    numerator: float  #: alpha * q1 + beta * q2, or alpha * q1 above the threshold
    cost: float  #: q3: by how much it raises the usage of the node, a fraction of 1

    @property
    def value(self) -> float:
        """Return the quotient, or its limit where the cost is 0."""
        if self.cost <= NOTHING:
            return inf if self.numerator > NOTHING else 0.0
        return self.numerator / self.cost


def share(used: float, capacity: float) -> float:
    """Return the usage of one resource, a fraction of 1. Where there is none of it: 0 if none is used, else
    infinite."""
    if capacity > 0:
        return used / capacity
    return inf if used > EQUAL else 0.0


def exceeds(numerator: float, cost: float, other_numerator: float, other_cost: float) -> bool:
    """Return whether the first priority wins over the second: it is higher, or equal at a higher cost (larger items
    first)."""
    infinite = cost <= NOTHING < numerator
    other_infinite = other_cost <= NOTHING < other_numerator
    if infinite is not other_infinite:
        return infinite
    if infinite:
        mine, other = numerator, other_numerator
    else:
        mine = numerator / cost if cost > NOTHING else 0.0
        other = other_numerator / other_cost if other_cost > NOTHING else 0.0
    if mine > other:
        if mine - other > EQUAL * mine:
            return True
    elif other - mine > EQUAL * other:
        return False
    return cost > other_cost + EQUAL
