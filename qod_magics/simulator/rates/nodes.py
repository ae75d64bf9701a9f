"""The task managers of a simulated cluster: which are up, which can be started, and how long they have been up."""

from __future__ import annotations

from typing import Any

import numpy as np

from qod_magics.core.snapshot import Spare
from qod_magics.errors import TaskManagerError, nearest
from qod_magics.simulator.rates.components import Machine
from qod_magics.simulator.rates.engine import Engine
from qod_magics.simulator.rates.instances import Agenda, Events, Instances
from qod_magics.simulator.rates.simulation import Simulation
from qod_magics.simulator.rates.wiring import Array

HOUR_S = 3600.0


class Nodes:
    """Task managers by their position in the simulation. Each is up, starting, standing by, off, or gone for good."""

    def __init__(
        self, simulation: Simulation, engine: Engine, agenda: Agenda, events: Events, instances: Instances
    ) -> None:
        self._machines = simulation.machines
        self._most = simulation.max_task_managers
        self._engine, self._agenda, self._events, self._instances = engine, agenda, events, instances
        self._number = {machine.id: m for m, machine in enumerate(self._machines)}
        #: off or standing by, so that an `AddNode` can start it
        self._startable = np.array([machine.waits for machine in self._machines])
        self._starting: set[int] = set()
        self._warm = np.array([machine.standby for machine in self._machines])  #: standing by
        self._since = np.where(self._warm, 0.0, np.nan)  #: second from which it has been up; NaN: it is not
        self._seconds = np.zeros(len(self._machines))  #: up before that

    def __repr__(self) -> str:
        return f"{int(self._engine.up.sum())} of {len(self._machines)} task managers up"

    # -- state ---------------------------------------------------------------------------------------------------------

    def known(self, id: str) -> int:
        """Return the position of a task manager of the simulation. Raises TaskManagerError."""
        if id not in self._number:
            raise TaskManagerError(
                f"There is no task manager {id!r}.{nearest(id, self._number)}", name=id, rule="exists"
            )
        return self._number[id]

    def up(self, id: str) -> int:
        """Return the position of a task manager that is up. Raises TaskManagerError."""
        there = [machine.id for machine, up in zip(self._machines, self._engine.up, strict=True) if up]
        if id not in there:
            raise TaskManagerError(f"There is no task manager {id!r}.{nearest(id, there)}", name=id, rule="exists")
        return self._number[id]

    def spares(self) -> list[Spare]:
        """Return the task managers that an `AddNode` could start now, by kind; none beyond the maximum."""
        kinds: dict[tuple[Any, ...], list[int]] = {}
        for m in np.flatnonzero(self._startable).tolist():
            machine = self._machines[m]
            kinds.setdefault((machine.kind, machine.planned, machine.memory_mb, machine.price), []).append(m)
        left = len(self._machines) if self._most is None else self._most - self._used
        found = []
        for (kind, cores, memory_mb, price), mine in kinds.items():
            start_s = min(0.0 if self._warm[m] else self._machines[m].start_s for m in mine)
            if min(len(mine), left) > 0:
                found.append(Spare(kind, min(len(mine), left), cores, memory_mb, price, start_s))
        return found

    @property
    def _used(self) -> int:
        """Return the number of task managers that are up or starting, without those that stand by."""
        return int(self._engine.up.sum()) + len(self._starting)

    # -- time and cost -------------------------------------------------------------------------------------------------

    @property
    def up_s(self) -> Array:
        """Return seconds that each task manager has been up, the time standing by included."""
        now: Array = self._seconds + np.nan_to_num(self._engine.now - self._since)
        return now

    @property
    def hours(self) -> float:
        """Hours up, of all task managers."""
        return float(self.up_s.sum()) / HOUR_S

    @property
    def cost(self) -> float | None:
        """Price x hours up, of all task managers with a price; None if none has one."""
        priced = [(m, machine.price) for m, machine in enumerate(self._machines) if machine.price is not None]
        hours = self.up_s / HOUR_S
        return sum(float(hours[m]) * price for m, price in priced) if priced else None

    # -- changes -------------------------------------------------------------------------------------------------------

    def add(self, id: str) -> None:
        """Add a task manager. Raises TaskManagerError if it is up, or unknown."""
        machine = self.known(id)
        if self._engine.up[machine]:
            raise TaskManagerError(
                f"There is a task manager {id!r} already: take another name.", name=id, rule="unique"
            )
        self._join(machine)

    def start(self, kind: str, why: str) -> None:
        """Start a task manager of a kind; one that stands by joins at once. Raises TaskManagerError."""
        able = np.flatnonzero(self._startable).tolist()
        mine = [m for m in able if self._machines[m].kind == kind]
        if not mine:
            kinds = sorted({self._machines[m].kind for m in able})
            there = f"it can start one of kind {', '.join(kinds)}" if kinds else "it can start none now"
            raise TaskManagerError(f"The cluster can't start a task manager of kind {kind!r}: {there}.")
        if self._most is not None and self._used >= self._most:
            raise TaskManagerError(
                f"{self._used} task managers are up or starting: the maximum, max_task_managers, is {self._most}."
            )
        machine = min(mine, key=lambda m: (not self._warm[m], m))
        begun, start_s = self._engine.now, 0.0 if self._warm[machine] else self._machines[machine].start_s
        self._startable[machine] = False
        if start_s <= 0.0:
            self._join(machine, took_s=0.0, why=why)
            return
        self._starting.add(machine)

        def join() -> None:
            if machine in self._starting:
                self._join(machine, took_s=round(self._engine.now - begun, 3), why=why)

        self._agenda.at(begun + start_s, join)

    def _join(self, machine: int, **detail: Any) -> None:
        self._starting.discard(machine)
        self._startable[machine] = self._warm[machine] = False
        self._engine.up[machine] = True
        if np.isnan(self._since[machine]):
            self._since[machine] = self._engine.now
        self._events.tell("task-manager-up", task_manager=self._id(machine), cores=self._of(machine).planned, **detail)
        self._instances.room_came(f"{self._id(machine)} has joined")
        self._instances.place_again()

    def remove(self, id: str, why: str | None = None) -> None:
        """Remove a task manager; its instances move to the others. Raises TaskManagerError when it is not up, or is
        the last one and has instances."""
        machine, instances = self.up(id), self._instances
        mine = [i for i in instances.on(machine) if not instances.stay_stopped(i)]
        if mine and self._engine.up.sum() == 1:
            raise TaskManagerError(
                f"{id} is the last task manager and runs {len(mine)} instances: stop them first.",
                name=id,
                rule="not the last",
            )
        targets = instances.targets(dict.fromkeys(mine, (id,)))
        if len(targets) < len(mine):
            raise TaskManagerError(f"{len(mine) - len(targets)} instances of {id} have nowhere to go: add another one.")
        for instance, target in targets.items():
            instances.move(instance, target, why or f"{id} is removed")
        self._leave(machine)
        self._events.tell("task-manager-removed", task_manager=id, **({"why": why} if why else {}))

    def release(self, id: str, why: str) -> None:
        """Remove a task manager for a policy: it is off then, and can be started again. Raises TaskManagerError, also
        for the last one."""
        machine = self.up(id)
        if self._engine.up.sum() == 1:
            raise TaskManagerError(f"{id} is the last task manager: add another one before releasing it.")
        self.remove(id, why)
        self._startable[machine] = True

    def lose(self, id: str) -> None:
        """Kill a task manager; its instances start on the others. Does nothing when it is not up."""
        machine = self.known(id)
        if self._engine.up[machine]:
            self._leave(machine)
            self._instances.lose(machine)

    def _leave(self, machine: int) -> None:
        self._engine.up[machine] = False
        self._seconds[machine] += self._engine.now - self._since[machine]
        self._since[machine] = np.nan

    def _of(self, machine: int) -> Machine:
        return self._machines[machine]

    def _id(self, machine: int) -> str:
        return self._machines[machine].id
