"""A job as Stela sees it: operators with rates and numbers of instances, measured or projected. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from qod_magics.policies.stela.graph import Edge, Graph

Rate: TypeAlias = Fraction | float  #: rows/s; exact where it is a Fraction, so that equal ETPs are ties


@dataclass(frozen=True)
class Job:
    """Rates of a job's operators, rows/s, and their instances."""

    graph: Graph
    processed: Mapping[str, Rate]  #: P_o, rows that an operator reads, of all its instances
    emitted: Mapping[Edge, Rate]  #: e, by edge
    offered: Mapping[str, Rate] = field(default_factory=dict)  #: input of sources; absent: as processed (R5)
    instances: Mapping[str, int] = field(default_factory=dict)  #: k_o >= 1; absent: 1
    most: Mapping[str, int] = field(default_factory=dict)  #: K_o; absent: no limit
    capacity: Mapping[str, Rate] = field(default_factory=dict)  #: P_o / share of the time at work; absent: P_o

    def input(self, op: str) -> Rate:
        """I_o: what its parents emit to it; of a source what is offered, or else what it processes (R5)."""
        parents = self.graph.parents[op]
        if not parents:
            return self.offered.get(op, self.processed[op])
        return sum(self.emitted[parent, op] for parent in parents)

    @cached_property
    def throughput(self) -> Rate:
        """T, the sum of what the sinks process."""
        return sum(self.processed[sink] for sink in self.graph.sinks)

    def parallelism(self, op: str) -> int:
        """k_o."""
        return self.instances.get(op, 1)

    def has_room(self, op: str) -> bool:
        """Whether k_o < K_o."""
        return op not in self.most or self.parallelism(op) < self.most[op]

    def grown(self, op: str, *, cap_at_input: bool = False) -> Job:
        """The job with one more instance of `op`, projected: it processes and emits (k+1)/k as much (section 2.2.5).

        Its children receive more, but are taken to process what they did. `cap_at_input`: it processes no more than its
        input (R11).
        """
        k = self.parallelism(op)
        factor = Fraction(k + 1, k)
        before = self.processed[op]
        after: Rate = before * factor
        if cap_at_input:
            after = max(before, min(after, self.input(op)))
        emitted = dict(self.emitted)
        for child in self.graph.children[op]:
            emitted[op, child] = emitted[op, child] * after / before if before else emitted[op, child] * factor
        capacity = {**self.capacity, op: self.capacity[op] * factor} if op in self.capacity else self.capacity
        return replace(
            self,
            processed={**self.processed, op: after},
            emitted=emitted,
            instances={**self.instances, op: k + 1},
            capacity=capacity,
        )
