"""The other Runtime: the same applications, controller and policies in virtual time, seeded and exact in its books."""

from __future__ import annotations

from qod_magics.simulator.cluster import SimulatedCluster
from qod_magics.simulator.run import Run, simulate
from qod_magics.simulator.simulation import Simulation

__all__ = ["Run", "SimulatedCluster", "Simulation", "simulate"]
