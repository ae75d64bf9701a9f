"""A cluster that keeps time slices of data in memory and answers queries over them, in virtual time.

Nodes load segments from deep storage, a broker sends each pair of a query and a segment to a node that holds it, and a
policy of `core.engines` chooses number and place of the copies every few seconds. Times are whole nanoseconds; the
same seed gives the same queries under every policy.
"""

from __future__ import annotations

from qod_magics.simulator.segments.cluster import Results, SegmentCluster, begun, run, simulated
from qod_magics.simulator.segments.scenario import SegmentScenario

__all__ = ["Results", "SegmentCluster", "SegmentScenario", "begun", "run", "simulated"]
