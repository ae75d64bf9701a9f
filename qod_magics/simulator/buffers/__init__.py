"""Jobs whose channels have output buffers, in virtual time: tasks in threads, buffers on bytes, links and receivers."""

from qod_magics.simulator.buffers.results import Action, Interval, Results, unbalanced
from qod_magics.simulator.buffers.scenario import BufferScenario
from qod_magics.simulator.buffers.simulation import BufferSimulation

__all__ = ["Action", "BufferScenario", "BufferSimulation", "Interval", "Results", "unbalanced"]
