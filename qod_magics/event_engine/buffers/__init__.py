"""Jobs whose channels have output buffers, in virtual time: tasks in threads, buffers on bytes, links and receivers."""

from qod_magics.event_engine.buffers.results import Action, Interval, Results, unbalanced
from qod_magics.event_engine.buffers.scenario import BufferScenario
from qod_magics.event_engine.buffers.simulation import BufferSimulation

__all__ = ["Action", "BufferScenario", "BufferSimulation", "Interval", "Results", "unbalanced"]
