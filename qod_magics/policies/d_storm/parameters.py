"""The parameters of D-Storm, with the values of its evaluation where the source gives one."""

from __future__ import annotations

from dataclasses import dataclass


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
    fuse: bool = True  #: [C] co-located tasks become one query, and part where they no longer pack
    fixed_memory_mb: float = 0.0  #: [C] intercept of an instance's memory, which does not grow with its input
    node_patience_s: float = 180.0  #: [C] how long a round waits, beyond its start time, for a node that it ordered
    cycle_s: float = 5.0  #: [C] time between two snapshots that do not tell when they were measured


DEFAULTS = Parameters()
