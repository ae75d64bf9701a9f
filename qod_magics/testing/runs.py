"""Watched simulations: the cluster's true state after each cycle, to check the controller's view against."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np

from qod_magics.controller import Cycle
from qod_magics.simulator import SimulatedCluster, Simulation, simulate
from qod_magics.simulator.rates.engine import unbalanced
from qod_magics.simulator.rates.simulation import SimulatedTask

# --- True needs and capacity of a simulation --------------------------------------------------------------------------

Accuracies = Mapping[str, float]
#: A load fits if it needs at most this share of the planned cores, and of one core per instance. The rest drains
#: backlogs, whose CPU counts as need (tests/scenarios/README.md, `alone`).
MARGIN = 0.65


class Truth:
    """The CPU needs of a simulation's tasks. Rates are rows/s, CPU is in cores."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self._rates = {feed.topic: feed.rate for feed in simulation.scenario.topics}

    @cached_property
    def tasks(self) -> Mapping[str, SimulatedTask]:
        """Return the tasks by id, inputs before their readers."""
        return {task.id: task for task in self.simulation.tasks}

    @cached_property
    def queries(self) -> tuple[SimulatedTask, ...]:
        """Return the tasks that nobody reads."""
        return tuple(task for task in self.simulation.tasks if task.min_accuracy is not None)

    def rate(self, at_s: float) -> float:
        """Return the total input rate of all sources."""
        return sum(self._rates[task.topic].rate(at_s) for task in self.simulation.tasks if task.topic is not None)

    def full(self, at_s: float) -> dict[str, float]:
        """Return rows that each task reads per second at full accuracy."""
        found: dict[str, float] = {}
        for task in self.simulation.tasks:
            if task.topic is not None:
                found[task.id] = self._rates[task.topic].rate(at_s)
            else:
                found[task.id] = sum(found[name] * self.tasks[name].selectivity for name in task.upstream)
        return found

    def full_accuracy(self) -> dict[str, float]:
        """Return accuracy 1 for every task."""
        return dict.fromkeys(self.tasks, 1.0)

    def minimum(self) -> dict[str, float]:
        """Return MinAc of every task: the highest minimum accuracy of its queries."""
        return self.upwards({task.id: task.min_accuracy or 0.0 for task in self.queries})

    def upwards(self, queries: Accuracies) -> dict[str, float]:
        """Return the accuracy that every task needs to give the queries these accuracies."""
        found = dict(queries)
        for task in reversed(self.simulation.tasks):
            for name in task.upstream:
                found[name] = max(found.get(name, 0.0), found[task.id])
        return found

    def need(self, accuracy: Accuracies, at_s: float) -> dict[str, float]:
        """Return cores that all instances of each task use together at these accuracies."""
        full = self.full(at_s)
        found = {}
        for task in self.simulation.tasks:
            kept = full[task.id] * accuracy[task.id]
            read = full[task.id] if task.topic is not None else kept
            found[task.id] = task.fixed * task.parallelism + 1e-6 * (task.read_us * read + task.work_us * kept)
        return found

    def fits(self, where: Mapping[str, str], accuracy: Accuracies, at_s: float, margin: float = MARGIN) -> bool:
        """Return whether the placement `where` (task manager by instance) has the CPU for these accuracies, with a
        margin."""
        need = self.need(accuracy, at_s)
        if any(need[task.id] / task.parallelism > margin for task in self.simulation.tasks):
            return False
        load = self.load(where, accuracy, at_s)
        return all(
            load[machine.id] <= margin * machine.planned - machine.background.rate(at_s)
            for machine in self.simulation.machines
        )

    def load(self, where: Mapping[str, str], accuracy: Accuracies, at_s: float) -> dict[str, float]:
        """Return cores that the tasks use on each task manager, in the placement `where`."""
        need = self.need(accuracy, at_s)
        found = dict.fromkeys((machine.id for machine in self.simulation.machines), 0.0)
        for task in self.simulation.tasks:
            for number in range(task.parallelism):
                found[where[f"{task.id}.{number + 1}"]] += need[task.id] / task.parallelism + task.overhead
        return found

    def some_placement_fits(self, accuracy: Accuracies, at_s: float, margin: float = MARGIN) -> bool:
        """Return whether any placement has the CPU for these accuracies."""
        names = [f"{task.id}.{n + 1}" for task in self.simulation.tasks for n in range(task.parallelism)]
        machines = [machine.id for machine in self.simulation.machines]
        return any(
            self.fits(dict(zip(names, where, strict=True)), accuracy, at_s, margin)
            for where in product(machines, repeat=len(names))
        )


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
        """Return the CPU needs of the simulation."""
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
        """Return the final placement: task manager by instance."""
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
