"""Getafix: few copies of popular segments, placed so that queries end as early as with full replication.

Each round (`policy`) packs the accesses of the segments into the nodes and gives the resulting sets to nodes so that
little is loaded (`packing`). `policy` also has Scarlett and uniform replication, to compare with. Source: Le Xu,
dissertation, 2021, chapters 1, 4 and 7; where it is silent, the authors' public prototype (a fork of Druid, 2017).

Where the source contradicts itself or leaves a choice, the modules name the reading:

- G-R1: the packing does not always make the fewest copies, whatever the source proves: 3, 3, 2, 2, 2, 2 accesses on two
  nodes get 7, and 6 are enough. Bounds and the exact minimum of small cases are in `packing`; the makespan is the least
- G-R2: nodes may differ by more than one pair: capacities are rounded up
- G-R3: of segments with as many pairs left, the first declared
- G-R4: line 8 of the algorithm is read as one iteration, one copy
- G-R5 to G-R7: figures of the source that contradict one another; `python -m benchmarks.getafix` tells
- G-R8: a load costs one copy, or its bytes (`Parameters.cost`)
- G-R9: the prototype keeps one segment for each node in the matching, and then does not use the result; here it is the
  source's matching
- G-R10: rounds, decay, routing, new segments and garbage are the prototype's
- G-R11: a node's capacity is of compute; of memory only with `Parameters.memory_limit`

Ours, where both are silent: of equal matchings the lexicographically least; on unequal nodes a set goes to a node of
the weight that it was planned for; a segment without accesses keeps the copy on the first node that holds it.
"""

from __future__ import annotations

from qod_magics.policies.getafix.packing import Parameters
from qod_magics.policies.getafix.policy import Getafix, Memory, Scarlett, Uniform

__all__ = ["Getafix", "Memory", "Parameters", "Scarlett", "Uniform"]
