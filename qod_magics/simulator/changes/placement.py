"""The input of a policy that places instances of a simulated cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from qod_magics.core.placement import Unplaced
from qod_magics.core.snapshot import Instance, TaskManager
from qod_magics.simulator.engine.engine import NOWHERE, Engine
from qod_magics.simulator.inputs.simulation import Simulation
from qod_magics.simulator.metrics.reports import Reports


def what_is_placed(
    simulation: Simulation, engine: Engine, reports: Reports, forbidden: Mapping[int, Collection[str]]
) -> tuple[list[Unplaced], list[TaskManager], list[Instance]]:
    """The instances to place, the task managers that are up, and the other instances on them, with their last CPU.

    `forbidden`: by the index of an instance to place, the task managers that are excluded.
    """
    wiring, machines = engine.wiring, simulation.machines
    there = dict.fromkeys(np.flatnonzero(engine.up).tolist())
    ever = reports.ever
    seconds = np.maximum(reports.window_to.at - reports.window_from.at, 1e-9)
    cpu: list[float] = (100.0 * (reports.window_to.cpu - reports.window_from.cpu) / seconds).tolist()

    def task(i: int) -> str:
        name: str = wiring.tasks[wiring.instance_task[i]].id
        return name

    running = [
        Instance(wiring.instances[i], task(i), machines[int(engine.where[i])].id, 0.0, cpu[i], not ever[i])
        for i in np.flatnonzero(engine.where != NOWHERE).tolist()
        if int(engine.where[i]) in there and i not in forbidden
    ]
    load = dict.fromkeys((machines[m].id for m in there), 0.0)
    for instance in running:
        load[instance.task_manager] += instance.cpu
    managers = [TaskManager(machines[m].id, machines[m].planned, load[machines[m].id]) for m in there]
    unplaced = [
        Unplaced(wiring.instances[i], task(i), cpu[i] if ever[i] else None, frozenset(closed))
        for i, closed in forbidden.items()
    ]
    return unplaced, managers, running
