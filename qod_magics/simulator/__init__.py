"""The simulated Runtime: the same applications, controller and policies in virtual time, seeded, exact in rows."""

from __future__ import annotations

from qod_magics.simulator.cluster import SimulatedCluster
from qod_magics.simulator.inputs.simulation import Simulation
from qod_magics.simulator.run import Run, simulate

__all__ = ["Run", "SimulatedCluster", "Simulation", "simulate"]
