"""The throughput of a job if processing is proportional to instances and queues are unlimited. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from qod_magics.policies.stela.graph import Edge, Graph
from qod_magics.policies.stela.job import Job, Rate


@dataclass(frozen=True, slots=True)
class Proportional:
    """An operator processes the lesser of its input and k_o times what one instance can, rows/s."""

    graph: Graph
    offered: Mapping[str, Rate]  #: by source
    each: Mapping[str, Rate]  #: r_o: what one instance can process
    selectivity: Mapping[Edge, Rate]  #: rows out on an edge for each row in; absent: 1

    def job(self, instances: Mapping[str, int], most: Mapping[str, int]) -> Job:
        """The job as it would be measured with these instances: rates settled, capacities known."""
        processed: dict[str, Rate] = {}
        emitted: dict[Edge, Rate] = {}
        capacity = {op: instances[op] * self.each[op] for op in self.graph.ops}
        for op in self.graph.parents_first:
            parents = self.graph.parents[op]
            arriving = sum(emitted[p, op] for p in parents) if parents else self.offered[op]
            processed[op] = min(arriving, capacity[op])
            for child in self.graph.children[op]:
                emitted[op, child] = processed[op] * self.selectivity.get((op, child), Fraction(1))
        return Job(self.graph, processed, emitted, self.offered, instances, most, capacity)
