"""Clusters in virtual time, seeded: the same seed gives the same run.

`rates` simulates rates of rows: a Runtime with the same applications, controller and policies as a live cluster, exact
in rows. The others are discrete-event engines, whose times are whole nanoseconds and whose events `simpy` keeps:
`messages` runs single messages under a dispatcher (`core.engines`), `buffers` has channels with output buffers under
QoS managers (`core.job_graph`), `segments` has a cluster that replicates segments under queries (`core.engines`).
`engines` lists these three.
"""

from __future__ import annotations

from qod_magics.simulator.rates.cluster import SimulatedCluster
from qod_magics.simulator.rates.run import Run, simulate
from qod_magics.simulator.rates.simulation import Simulation

__all__ = ["Run", "SimulatedCluster", "Simulation", "simulate"]
