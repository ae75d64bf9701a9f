"""Watched simulations: the cluster's true state after each cycle, to check the controller's view against."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from qod_magics.controller import Cycle
from qod_magics.simulator import SimulatedCluster, Simulation, simulate
from qod_magics.simulator.rates.engine import unbalanced
from qod_magics.testing.truth import Truth

#: Where the scenario of a failing example is saved.
FAILING = Path("build/closed-loop")


@dataclass(frozen=True, slots=True)
class Look:
    """The cluster's true state after a cycle."""

    at_s: float
    where: Mapping[str, str]  #: task manager by instance
    kept: Mapping[str, int]  #: rows that each task processed since the start
    waiting: int  #: backlog of all edges, rows


@dataclass(slots=True)
class Watched:
    """A run with its observations."""

    simulation: Simulation
    cycles: Sequence[Cycle] = ()
    looks: list[Look] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)  #: accounting errors

    @property
    def truth(self) -> Truth:
        """The CPU needs of the simulation."""
        return Truth(self.simulation)

    def served(self, task: str, cycles: int) -> float:
        """Return the share of the rows due at full accuracy that a task processed in the last `cycles`, at constant
        rates."""
        last, first = self.looks[-1], self.looks[-1 - cycles]
        due = self.truth.full(last.at_s)[task] * (last.at_s - first.at_s)
        return (last.kept[task] - first.kept[task]) / due

    def desired(self, task: str, cycles: int) -> list[float]:
        """Return the planned accuracies of a task in the last `cycles`."""
        return [cycle.plan.desired[task] for cycle in self.cycles[-cycles:] if cycle.plan is not None]

    def moves(self, instance: str) -> list[str]:
        """Return the task managers that an instance was on, in order."""
        found: list[str] = []
        for look in self.looks:
            if instance in look.where and (not found or found[-1] != look.where[instance]):
                found.append(look.where[instance])
        return found

    @property
    def where(self) -> Mapping[str, str]:
        """The final placement: task manager by instance."""
        return self.looks[-1].where


def processed(cluster: SimulatedCluster) -> dict[str, int]:
    """Return rows that each task has processed since the start."""
    wiring = cluster.wiring
    kept = np.bincount(wiring.instance_task[wiring.channel_instance], cluster.engine.kept, len(wiring.tasks))
    return {task.id: int(k) for task, k in zip(wiring.tasks, kept.tolist(), strict=True)}


def watch(simulation: Simulation) -> Watched:
    """Run a simulation and look at the cluster after each cycle."""
    watched = Watched(simulation)

    def look(cluster: SimulatedCluster, cycle: Cycle) -> None:
        engine, wiring = cluster.engine, cluster.wiring
        watched.looks.append(
            Look(
                engine.now,
                {
                    name: simulation.machines[w].id
                    for name, w in zip(wiring.instances, engine.where.tolist(), strict=True)
                    if w >= 0
                },
                processed(cluster),
                int(engine.waiting.sum() + engine.held.sum()),
            )
        )
        watched.wrong += unbalanced(engine)
        if (engine.busy > engine.cores * engine.now * (1 + 1e-9)).any():
            watched.wrong.append(f"second {engine.now:g}: {engine.busy} CPU seconds used")

    watched.cycles = simulate(simulation, inspect=look).cycles
    return watched


def replay(simulation: Simulation, name: str) -> str:
    """Save the scenario to a file. Returns the command that replays it."""
    FAILING.mkdir(parents=True, exist_ok=True)
    path = FAILING / f"{name}.json"
    path.write_text(json.dumps(simulation.to_json(), indent=1) + "\n", "utf-8")
    return f"python -m qod_magics simulate {path}"
