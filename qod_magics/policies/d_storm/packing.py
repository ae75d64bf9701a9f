"""Greedy packing of instances into nodes so that traffic stays inside nodes (Algorithm 1), in its incremental form.

Nodes are filled in the order of Eq. 5.4; the instance with the highest priority for the open node (Eq. 5.5) goes next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from qod_magics.policies.d_storm.problem import DEFAULTS, Channel, Demand, Node, Parameters, Problem

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
        """Whether every instance has a node."""
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
    def is_infinite(self) -> bool:
        """Whether it gains traffic at no cost of the node's critical resource."""
        return self.cost <= NOTHING < self.numerator

    @property
    def value(self) -> float:
        """The quotient, or its limit where the cost is 0."""
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
