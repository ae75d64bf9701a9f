"""The simulator as a Runtime: observed and told what to do like a live cluster, in virtual time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np

from qod_magics.controller.clock import ManualClock
from qod_magics.core import snapshot as core
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Dials, Event, Observation
from qod_magics.errors import TaskManagerError, nearest
from qod_magics.policies.stream_economics import UNKNOWN_ESTIMATE, Request, available_cpu, place
from qod_magics.simulator.engine import NOWHERE, Engine
from qod_magics.simulator.observe import Observer
from qod_magics.simulator.reports import Reports
from qod_magics.simulator.simulation import Fault, Simulation
from qod_magics.simulator.wiring import Wiring

#: Virtual seconds after which a query that failed is started again; the next failure doubles it.
BACK_OFF_S = 1.0


class SimulatedCluster:
    """A Runtime whose time passes only in `advance`. The same simulation runs the same, bit for bit.

    Applications without an event of their own are placed at the start, as are task managers.
    """

    def __init__(self, simulation: Simulation, clock: ManualClock | None = None) -> None:
        self.simulation = simulation
        self.clock = clock or ManualClock()
        self.wiring = Wiring.of(simulation.tasks)
        self.engine = Engine(simulation, self.wiring)
        self.reports = Reports(self.engine, simulation.metrics, simulation.period_s)
        self._observer = Observer(simulation, self.engine, self.reports)
        self._random = np.random.default_rng([simulation.scenario.seed, 0])
        self._machine = {machine.id: m for m, machine in enumerate(simulation.machines)}
        self._instance = {name: i for i, name in enumerate(self.wiring.instances)}
        self._task = {task.id: t for t, task in enumerate(simulation.tasks)}
        self._edge = {edge: e for e, edge in enumerate(self.wiring.edges)}
        self._active = np.zeros(len(simulation.tasks), bool)
        self._events: list[Event] = []
        self._agenda: list[tuple[float, int, Any]] = []  #: (second, order, call), a heap
        self._order = count()
        self._leaving: set[int] = set()
        self._failures = np.zeros(len(self.wiring.instances), int)
        self._run = np.zeros(len(self.wiring.instances), int)  #: numbers the runs: what was meant for one ends with it
        self._schedule()

    # -- the protocol --------------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """What can be seen now. Raises TaskManagerError while no task manager is up."""
        if not self.engine.up.any():
            raise TaskManagerError("No task manager is up.")
        events, self._events = self._events, []
        return self._observer.observe(self._active, events)

    def apply(self, plan: Plan, dials: Dials) -> None:
        """Turn the dials, `dial_delay_s` from now, and begin the moves."""
        self._at(self.now + self.simulation.metrics.dial_delay_s, lambda: self._turn(plan, dials))
        for name in plan.fail:
            target = plan.place.get(name)
            instance = self._instance.get(name)
            if target is None or instance is None or not self.engine.running[instance]:
                continue
            machine = self._machine.get(target)
            if machine is None or not self.engine.up[machine] or machine == self.engine.where[instance]:
                continue
            source = self.simulation.machines[int(self.engine.where[instance])].id
            self._move(instance, machine, f"{source} can't give its tasks their minimum accuracies")

    # -- time ----------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.engine.now

    def advance(self, seconds: float) -> None:
        """Let virtual time pass, in whole steps, and with it the clock's."""
        for _ in range(round(seconds / self.engine.step_s)):
            while self._agenda and self._agenda[0][0] <= self.now + 1e-9:
                heappop(self._agenda)[2]()
            self.engine.step()
            self.reports.collect(self.engine.batches_over())
        self.clock.advance(seconds)

    # -- what a user does ----------------------------------------------------------------------------------------------

    def start_tasks(self, names: Iterable[str]) -> None:
        """Start these tasks: their instances are placed by the scheduler."""
        tasks = {self._task[name] for name in names}
        self._active[sorted(tasks)] = True
        new = [i for i, t in enumerate(self.wiring.instance_task.tolist()) if t in tasks]
        for name, target in self._targets({self.wiring.instances[i]: () for i in new}).items():
            self._begin(self._instance[name], self._machine[target])

    def stop_tasks(self, names: Iterable[str]) -> None:
        """Stop these tasks; what waits on their inputs goes on waiting."""
        for name in names:
            t = self._task[name]
            self._active[t] = False
            for i in np.flatnonzero(self.wiring.instance_task == t).tolist():
                self._halt(i)
                self.engine.where[i] = NOWHERE

    def add_task_manager(self, id: str) -> None:
        """A task manager joins; instances without one start there."""
        machine = self._known(id)
        self.engine.up[machine] = True
        self._leaving.discard(machine)
        self._event("task-manager-up", task_manager=id)
        self._replace_homeless()

    def remove_task_manager(self, id: str) -> None:
        """A task manager leaves, once its instances have moved to the others."""
        machine = self._known(id)
        self._leaving.add(machine)
        mine = [i for i in self._placed() if self.engine.where[i] == machine]
        targets = self._targets({self.wiring.instances[i]: (id,) for i in mine})
        for name, target in targets.items():
            self._move(self._instance[name], self._machine[target], f"{id} leaves")
        self.engine.up[machine] = False

    def move(self, instance: str, target: str, why: str) -> None:
        """Begin to move an instance. Raises TaskManagerError when there is no such instance or task manager."""
        if instance not in self._instance:
            raise TaskManagerError(f"There is no instance {instance!r}.{nearest(instance, self._instance)}")
        self._move(self._instance[instance], self._known(target), why)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        scenario = self.simulation.scenario
        late = {event.target for event in scenario.events if event.action == "add_task_manager"}
        for machine in self.simulation.machines:
            if machine.id not in late:
                self.add_task_manager(machine.id)
        started = {event.target for event in scenario.events if event.action == "start_application"}
        self.start_tasks(task.id for task in self.simulation.tasks if task.application not in started)
        for event in scenario.events:
            self._at(event.at_s, lambda event=event: self._happen(event.action, event.target))
        for fault in self.simulation.faults:
            self._at(fault.at_s, lambda fault=fault: self._break(fault))

    def _at(self, second: float, call: Any) -> None:
        heappush(self._agenda, (second, next(self._order), call))

    def _event(self, kind: str, **detail: Any) -> None:
        self._events.append(Event(kind, detail))

    def _known(self, id: str) -> int:
        if id not in self._machine:
            raise TaskManagerError(f"There is no task manager {id!r}.{nearest(id, self._machine)}")
        return self._machine[id]

    def _happen(self, action: str, target: str) -> None:
        if action == "add_task_manager":
            self.add_task_manager(target)
        elif action == "remove_task_manager":
            self.remove_task_manager(target)
        else:
            names = [task.id for task in self.simulation.tasks if task.application == target]
            (self.start_tasks if action == "start_application" else self.stop_tasks)(names)

    def _turn(self, plan: Plan, dials: Dials) -> None:
        engine = self.engine
        for edge, d in dials.keep.items():
            if edge in self._edge:
                engine.keep[self._edge[edge]] = d
        for task, accuracy in dials.accept.items():
            if task in self._task:
                engine.accept[self._task[task]] = accuracy
        for task, accuracy in plan.desired.items():
            if task in self._task:
                engine.desired[self._task[task]] = accuracy

    def _placed(self) -> list[int]:
        """Instances that have, or had, a task manager."""
        found: list[int] = np.flatnonzero(self.engine.where != NOWHERE).tolist()
        return found

    def _targets(self, forbidden: Mapping[str, Collection[str]]) -> Mapping[str, str]:
        """Where these instances go, by Algorithm 3.1."""
        engine, wiring = self.engine, self.wiring
        machines = self.simulation.machines
        there = [m for m in range(len(machines)) if engine.up[m] and m not in self._leaving]
        seconds = np.maximum(self.reports.window_to.at - self.reports.window_from.at, 1e-9)
        cpu = 100.0 * (self.reports.window_to.cpu - self.reports.window_from.cpu) / seconds
        running = [
            core.Instance(
                wiring.instances[i],
                wiring.tasks[wiring.instance_task[i]].id,
                machines[int(engine.where[i])].id,
                0.0,
                float(cpu[i]),
                not self.reports.ever[i],
            )
            for i in self._placed()
            if int(engine.where[i]) in there and wiring.instances[i] not in forbidden
        ]
        by_task = {instance.task: instance.cpu for instance in running if not instance.warming_up}
        managers = [core.TaskManager(machines[m].id, machines[m].planned, 0.0) for m in there]
        load = dict.fromkeys((manager.id for manager in managers), 0.0)
        for instance in running:
            load[instance.task_manager] += instance.cpu
        managers = [core.TaskManager(m.id, m.cores, load[m.id]) for m in managers]
        requests = [
            Request(name, self._estimate(name, by_task), forbidden=refused) for name, refused in forbidden.items()
        ]
        return place(requests, available_cpu(managers, running))

    def _estimate(self, name: str, by_task: Mapping[str, float]) -> float:
        instance = self._instance[name]
        if self.reports.ever[instance]:
            window = self.reports.window_to.at[instance] - self.reports.window_from.at[instance]
            used = self.reports.window_to.cpu[instance] - self.reports.window_from.cpu[instance]
            return float(100.0 * used / max(window, 1e-9))
        return by_task.get(self.wiring.tasks[self.wiring.instance_task[instance]].id, UNKNOWN_ESTIMATE)

    def _begin(self, instance: int, machine: int) -> None:
        """An instance works from now."""
        self.engine.start(instance, machine, fresh=True)
        self._run[instance] += 1
        self.reports.begin(instance, float(self._random.uniform(0.0, 1.0)))

    def _halt(self, instance: int) -> None:
        self.engine.stop(instance)
        self.reports.end(instance)
        self._run[instance] += 1

    def _down_s(self) -> float:
        moves = self.simulation.moves
        return float(moves.down_s * self._random.uniform(1.0 - moves.spread, 1.0 + moves.spread))

    def _move(self, instance: int, machine: int, why: str) -> None:
        source, target = int(self.engine.where[instance]), self.simulation.machines[machine].id
        self._halt(instance)
        self.engine.where[instance] = machine
        took_s, run = self._down_s(), int(self._run[instance])
        name = self.wiring.instances[instance]
        ids = {"from": self.simulation.machines[source].id, "to": target}

        def arrive() -> None:
            if self._run[instance] != run or not self._active[self.wiring.instance_task[instance]]:
                return
            if not self.engine.up[machine]:
                self._lost(instance)
                return
            self._begin(instance, machine)
            self._event("move", instance=name, **ids, took_s=round(took_s, 3), why=why)

        self._at(self.now + took_s, arrive)

    def _break(self, fault: Fault) -> None:
        if fault.kind == "broker-pause":
            self.engine.broker_down = True
            self._at(self.now + fault.for_s, lambda: setattr(self.engine, "broker_down", False))
        elif fault.kind == "slow-metrics":
            machine = self._known(fault.target or "")
            self.reports.muted[machine] = True
            self._at(self.now + fault.for_s, lambda: self._unmute(machine))
        elif fault.kind == "task-manager-lost":
            self._lose(self._known(fault.target or ""))
        else:
            self._fail(self._instance[fault.target or ""])

    def _unmute(self, machine: int) -> None:
        self.reports.muted[machine] = False

    def _kill(self, instance: int) -> None:
        """It ends in the middle of a batch: what it did since its last commit is done again."""
        if self.engine.running[instance]:
            self.engine.give_back(instance, *self.reports.committed(instance))
        self._halt(instance)

    def _lose(self, machine: int) -> None:
        if not self.engine.up[machine]:
            return
        self.engine.up[machine] = False
        self._event("task-manager-lost", task_manager=self.simulation.machines[machine].id, why="it was killed")
        for instance in [i for i in self._placed() if self.engine.where[i] == machine]:
            self._kill(instance)
            self._lost(instance)

    def _lost(self, instance: int) -> None:
        """Place an instance whose task manager is gone, when that has been noticed."""
        run = int(self._run[instance])

        def again() -> None:
            if self._run[instance] != run or not self._active[self.wiring.instance_task[instance]]:
                return
            self._restart(instance)

        self._at(self.now + self.simulation.moves.detect_s, again)

    def _restart(self, instance: int) -> None:
        """Start an instance from its checkpoint: where it was, or elsewhere if that is gone."""
        machine, name = int(self.engine.where[instance]), self.wiring.instances[instance]
        if machine == NOWHERE or not self.engine.up[machine]:
            target = self._targets({name: ()}).get(name)
            if target is None:
                return  # until a task manager joins
            machine = self._machine[target]
        self.engine.where[instance] = machine
        self._run[instance] += 1
        run = int(self._run[instance])

        def arrive() -> None:
            if self._run[instance] != run or not self._active[self.wiring.instance_task[instance]]:
                return
            if not self.engine.up[machine]:
                self._lost(instance)
                return
            self._begin(instance, machine)
            where = self.simulation.machines[machine].id
            self._event("query-restarted", instance=name, task_manager=where)

        self._at(self.now + self._down_s(), arrive)

    def _replace_homeless(self) -> None:
        """Instances of tasks that should run, but have no task manager, start where one is now."""
        for instance in range(len(self.wiring.instances)):
            where = int(self.engine.where[instance])
            wanted = self._active[self.wiring.instance_task[instance]]
            if wanted and (where == NOWHERE or not self.engine.up[where]):
                self._restart(instance)

    def _fail(self, instance: int) -> None:
        if not self.engine.running[instance]:
            return
        name, where = self.wiring.instances[instance], int(self.engine.where[instance])
        self._kill(instance)
        self._failures[instance] += 1
        self._event(
            "query-failed",
            instance=name,
            task_manager=self.simulation.machines[where].id,
            why="a fault of the scenario",
        )
        run = int(self._run[instance])
        back_off_s = BACK_OFF_S * 2 ** (int(self._failures[instance]) - 1)

        def again() -> None:
            if self._run[instance] == run and self._active[self.wiring.instance_task[instance]]:
                self._restart(instance)

        self._at(self.now + back_off_s, again)
