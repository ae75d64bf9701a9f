"""The simulator as a Runtime: observed and controlled like a live cluster, in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np

from qod_magics.controller.clock import ManualClock
from qod_magics.core.actions import Action, Move, Refusal
from qod_magics.core.placement import Placer, fewest_first
from qod_magics.core.plan import Edge, Plan
from qod_magics.core.runtime import Dials, Event, Observation, refused
from qod_magics.errors import QodError, TaskManagerError, nearest
from qod_magics.simulator.column import Column
from qod_magics.simulator.engine import NOWHERE, Engine
from qod_magics.simulator.observe import Observer
from qod_magics.simulator.placement import what_is_placed
from qod_magics.simulator.reports import Reports
from qod_magics.simulator.simulation import Fault, Simulation
from qod_magics.simulator.wiring import Wiring

#: Back-off between restarts of a failing query, virtual seconds, as on a live cluster; after the last it stays stopped.
BACK_OFF_S = (1.0, 2.0, 4.0, 8.0, 16.0)
#: The reason that events give for a failure.
FAULT = "a fault of the scenario"
#: A query that ran this long has recovered: its failure count is reset.
RECOVERED_AFTER_S = 60.0


#: Number of samples of the arrivals that are kept.
SEEN = 16


@dataclass(frozen=True, slots=True)
class _Move:
    """A move under way, for the event that ends it."""

    source: str
    stopped_at: float
    why: str


class SimulatedCluster:
    """A Runtime whose time passes only in `advance`. Deterministic: the same simulation runs the same, bit for bit.

    Task managers, and applications, without an event of their own start at second 0. `place` places instances.
    """

    supports: frozenset[type[Action]] = frozenset({Move})

    def __init__(self, simulation: Simulation, clock: ManualClock | None = None, place: Placer = fewest_first) -> None:
        self._place = place
        self.simulation = simulation
        self.clock = clock or ManualClock()
        self.wiring = Wiring.of(simulation.tasks)
        self.engine = Engine(simulation, self.wiring)
        self.reports = Reports(self.engine, simulation.metrics, simulation.period_s)
        self._observer = Observer(simulation, self.engine, self.reports, self.clock.wall().timestamp())
        self._random = np.random.default_rng([simulation.scenario.seed, 0])
        self._machine = {machine.id: m for m, machine in enumerate(simulation.machines)}
        self._instance = {name: i for i, name in enumerate(self.wiring.instances)}
        self._task = {task.id: t for t, task in enumerate(simulation.tasks)}
        self._keep = Column[Edge](self.wiring.edges)
        self._accept, self._desired = Column(self._task), Column(self._task)
        self._active = np.zeros(len(simulation.tasks), bool)
        self._events: list[Event] = []
        self._seen = deque([(0.0, self.engine.came[: self.wiring.sources].copy())], maxlen=SEEN)  #: (second, rows)
        self._agenda: list[tuple[float, int, Any]] = []  #: (second, order, call), a heap
        self._order = count()
        self._failures = np.zeros(len(self.wiring.instances), int)
        self._given_up: set[int] = set()  #: instances that failed too often
        self._moves: dict[int, _Move] = {}  #: by instance
        self._pauses = 0  #: broker pauses under way
        self._mutes = np.zeros(len(simulation.machines), int)  #: metrics faults under way, by task manager
        self._until = 0.0  #: virtual second that `advance` was asked to reach
        self._run = np.zeros(len(self.wiring.instances), int)  #: run number; calls for earlier runs are void
        self._schedule()

    def __repr__(self) -> str:
        managers, instances = len(self._machine), len(self._instance)
        return f"simulated cluster of {managers} task managers and {instances} instances at {self.now:.1f} s"

    # -- the protocol --------------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """The current observation. Raises TaskManagerError while no task manager is up."""
        if not self.engine.up.any():
            raise TaskManagerError("No task manager is up.")
        events, self._events = self._events, []
        return self._observer.observe(self._active, events)

    def apply(self, plan: Plan, dials: Dials) -> None:
        """Set the dials after `dial_delay_s`, and begin the moves; a refused move becomes an event."""
        self._at(self.now + self.simulation.metrics.dial_delay_s, lambda: self._turn(plan, dials))
        for move in plan.moves:
            try:
                self._begin_move(move)
            except TaskManagerError as error:
                self._events.append(refused(Refusal(move, str(error))))

    def place_by(self, placer: Placer) -> None:
        """Place instances with `placer` from now on."""
        self._place = placer

    def input_rates(self, over_s: float) -> Mapping[str, float]:
        """Input rate of each source since the last `advance` that ended at least `over_s` seconds ago, rows/s."""
        then, before = next(
            (seen for seen in reversed(self._seen) if seen[0] <= self.now - over_s + 1e-9), self._seen[0]
        )
        sources = self.wiring.sources
        came = (self.engine.came[:sources] - before) / max(self.now - then, 1e-9)
        return (
            {self.wiring.edge_names[e]: float(came[e]) for e in range(sources) if self.engine.listening[e]}
            if self.now > then
            else {}
        )

    # -- time ----------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.engine.now

    def advance(self, seconds: float) -> None:
        """Advance virtual time and the clock. The cluster follows in whole steps."""
        self._until += seconds
        for _ in range(round(self._until / self.engine.step_s) - self.engine.steps):
            while self._agenda and self._agenda[0][0] <= self.now + 1e-9:
                heappop(self._agenda)[2]()
            self.engine.step()
            self.reports.collect(self.engine.batches_over())
        self.clock.advance(seconds)
        self._seen.append((self.now, self.engine.came[: self.wiring.sources].copy()))

    # -- user actions --------------------------------------------------------------------------------------------------

    def start_tasks(self, names: Iterable[str]) -> None:
        """Start these tasks, placed by the policy. They read from the latest offsets on."""
        tasks = {self._task[name] for name in names}
        self._active[sorted(tasks)] = True
        self._listen()
        new = [i for i, t in enumerate(self.wiring.instance_task.tolist()) if t in tasks]
        targets = self._targets({self.wiring.instances[i]: () for i in new})
        self._begin({self._instance[name]: self._machine[target] for name, target in targets.items()})

    def stop_tasks(self, names: Iterable[str]) -> None:
        """Stop these tasks. Their backlog stays; rows that arrive from now on are not kept for them."""
        for name in names:
            t = self._task[name]
            self._active[t] = False
            for i in np.flatnonzero(self.wiring.instance_task == t).tolist():
                self._halt(i)
                self.engine.where[i] = NOWHERE
                self._moves.pop(i, None)
                self._given_up.discard(i)
                self._failures[i] = 0
        self._listen()

    def add_task_manager(self, id: str) -> None:
        """A task manager joins; instances without one start there. Raises TaskManagerError when it is up already, or
        when the simulation has none of that name."""
        machine = self._known(id)
        if self.engine.up[machine]:
            raise TaskManagerError(f"There is a task manager {id!r} already: take another name.")
        self.engine.up[machine] = True
        self._event("task-manager-up", task_manager=id, cores=self.simulation.machines[machine].planned)
        self._place_again()

    def remove_task_manager(self, id: str) -> None:
        """A task manager leaves; its instances move to the others. Raises TaskManagerError when it is not up, or is
        the last one and has instances."""
        machine = self._up(id)
        mine = [i for i in self._placed() if self.engine.where[i] == machine and i not in self._given_up]
        if mine and self.engine.up.sum() == 1:
            raise TaskManagerError(f"{id} is the last task manager and runs {len(mine)} instances: stop them first.")
        targets = self._targets({self.wiring.instances[i]: (id,) for i in mine})
        for name, target in targets.items():
            self._move(self._instance[name], self._machine[target], f"{id} is removed")
        self.engine.up[machine] = False
        self._event("task-manager-removed", task_manager=id)

    def move(self, instance: str, target: str, why: str) -> None:
        """Begin to move an instance. Raises TaskManagerError when there is no such instance or task manager."""
        self._move(self._there(instance), self._up(target), why)

    # -- faults --------------------------------------------------------------------------------------------------------

    def lose(self, id: str) -> None:
        """A task manager is killed; its instances start on the others. Does nothing when it is not up."""
        machine = self._known(id)
        if not self.engine.up[machine]:
            return
        self.engine.up[machine] = False
        orphans = [i for i in self._placed() if self.engine.where[i] == machine]
        names = [self.wiring.instances[i] for i in orphans]
        self._event("task-manager-lost", task_manager=id, instances=names, why="its process ended")
        for instance in orphans:
            self._kill(instance)
            if instance not in self._given_up:
                self.engine.where[instance] = NOWHERE
                self._moves[instance] = _Move(id, self.now, f"{id} was lost")
                self._at_run(instance, self.simulation.moves.detect_s)

    def fail(self, name: str) -> None:
        """An instance's query fails. Does nothing when it does not run."""
        instance = self._instance[name]
        engine = self.engine
        if not engine.running[instance]:
            return
        if engine.now - engine.started_at[instance] > RECOVERED_AFTER_S:
            self._failures[instance] = 0
        failures, ids = int(self._failures[instance]), {"instance": name}
        ids["task_manager"] = self._home(instance)
        self._kill(instance)
        if failures >= len(BACK_OFF_S):
            self._given_up.add(instance)
            self._event("query-failed", **ids, why=FAULT, gave_up=True, failures=failures)
            return
        self._failures[instance] += 1
        self._event("query-failed", **ids, why=FAULT, retry_in_s=BACK_OFF_S[failures])
        self._at_run(instance, BACK_OFF_S[failures])

    # -- inside --------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        scenario = self.simulation.scenario
        first = {event.target: event.action for event in reversed(scenario.events)}
        late = {target for target, action in first.items() if action == "add_task_manager"}
        for machine in self.simulation.machines:
            if machine.id not in late:
                self.add_task_manager(machine.id)
        started = {target for target, action in first.items() if action == "start_application"}
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

    def _up(self, id: str) -> int:
        """The index of a task manager that is up."""
        there = [machine.id for machine, up in zip(self.simulation.machines, self.engine.up, strict=True) if up]
        if id not in there:
            raise TaskManagerError(f"There is no task manager {id!r}.{nearest(id, there)}")
        return self._machine[id]

    def _there(self, name: str) -> int:
        """The index of an instance whose task is started."""
        instance = self._instance.get(name)
        if instance is None or not self._active[self.wiring.instance_task[instance]]:
            there = [known for known, i in self._instance.items() if self._active[self.wiring.instance_task[i]]]
            raise TaskManagerError(f"There is no instance {name!r}.{nearest(name, there)}")
        return instance

    def _begin_move(self, move: Move) -> None:
        """Begin a move of a plan, unless it is under way or done. Raises TaskManagerError."""
        instance, machine = self._there(move.instance), self._up(move.to)
        if self.engine.where[instance] == machine and (self.engine.running[instance] or instance in self._moves):
            return
        if not self.engine.running[instance]:
            raise TaskManagerError(f"{move.instance} does not run now.")
        self._move_soon(instance, machine, move.why)

    def _home(self, instance: int) -> str:
        """The current or last task manager of an instance."""
        where = int(self.engine.where[instance])
        return "?" if where == NOWHERE else self.simulation.machines[where].id

    def _listen(self) -> None:
        self.engine.listening = self._active[self.wiring.edge_target]

    def _happen(self, action: str, target: str) -> None:
        try:
            self._do(action, target)
        except QodError as error:
            self._event("scenario-failed", why=f"{action} {target}: {error}")

    def _do(self, action: str, target: str) -> None:
        if action == "add_task_manager":
            self.add_task_manager(target)
        elif action == "remove_task_manager":
            self.remove_task_manager(target)
        else:
            names = [task.id for task in self.simulation.tasks if task.application == target]
            (self.start_tasks if action == "start_application" else self.stop_tasks)(names)

    def _turn(self, plan: Plan, dials: Dials) -> None:
        engine = self.engine
        engine.turn(
            self._keep.of(dials.keep, engine.keep),
            self._accept.of(dials.accept, engine.accept),
            self._desired.of(plan.desired, engine.desired) if engine.any_loses else engine.desired,
        )

    def _placed(self) -> list[int]:
        """Instances that have, or had, a task manager."""
        found: list[int] = np.flatnonzero(self.engine.where != NOWHERE).tolist()
        return found

    def _targets(self, forbidden: Mapping[str, Collection[str]]) -> Mapping[str, str]:
        """The policy's task managers for these instances."""
        unplaced = {self._instance[name]: refused for name, refused in forbidden.items()}
        return self._place(*what_is_placed(self.simulation, self.engine, self.reports, unplaced))

    def _begin(self, targets: Mapping[int, int]) -> None:
        """These instances begin to work, each on its task manager."""
        for instance, machine in targets.items():
            self.engine.start(instance, machine, fresh=True)
            self._run[instance] += 1
        self.reports.begin(np.array(list(targets), int), self._random.uniform(0.0, 1.0, len(targets)))

    def _halt(self, instance: int) -> None:
        self.engine.stop(instance)
        self.reports.end(instance)
        self._run[instance] += 1

    def _down_s(self) -> float:
        moves = self.simulation.moves
        return float(moves.down_s * self._random.uniform(1.0 - moves.spread, 1.0 + moves.spread))

    def _move_soon(self, instance: int, machine: int, why: str) -> None:
        """Move an instance at the end of its batch, but after `wait_s` at the latest."""
        wait_s = min(float(self.reports.next_at[instance]) - self.now, self.simulation.moves.wait_s)
        if wait_s <= 0.0:
            self._move(instance, machine, why)
            return
        run = int(self._run[instance])

        def stop() -> None:
            if self._run[instance] == run and self.engine.running[instance] and self.engine.up[machine]:
                self._move(instance, machine, why)

        self._at(self.now + wait_s, stop)

    def _move(self, instance: int, machine: int, why: str) -> None:
        if self.engine.running[instance] and machine == self.engine.where[instance]:
            return
        self._moves[instance] = _Move(self._home(instance), self.now, why)
        self._halt(instance)
        self._start_on(instance, machine)

    def _start_on(self, instance: int, machine: int) -> None:
        """Start an instance on a task manager after its downtime, unless it is stopped or started before."""
        self.engine.where[instance] = machine
        self._run[instance] += 1
        run = int(self._run[instance])

        def arrive() -> None:
            if self._run[instance] == run:
                self._begin({instance: machine})
                self._tell_arrival(instance)

        self._at(self.now + self._down_s(), arrive)

    def _tell_arrival(self, instance: int) -> None:
        name, where = self.wiring.instances[instance], self._home(instance)
        move = self._moves.pop(instance, None)
        if move is not None:
            took_s = round(self.now - move.stopped_at, 3)
            self._event("move", instance=name, **{"from": move.source, "to": where}, took_s=took_s, why=move.why)
        elif self._failures[instance]:
            failures = int(self._failures[instance])
            self._event("query-restarted", instance=name, task_manager=where, after=FAULT, failures=failures)

    def _break(self, fault: Fault) -> None:
        if fault.kind == "broker-pause":
            self._pause(1)
            self._at(self.now + fault.for_s, lambda: self._pause(-1))
        elif fault.kind == "slow-metrics":
            machine = self._known(fault.target or "")
            self._mute(machine, 1)
            self._at(self.now + fault.for_s, lambda: self._mute(machine, -1, fault.for_s))
        elif fault.kind == "task-manager-lost":
            self.lose(fault.target or "")
        else:
            self.fail(fault.target or "")

    def _pause(self, more: int) -> None:
        """Pauses of the broker may overlap."""
        self._pauses += more
        self.engine.broker_down = self._pauses > 0

    def _mute(self, machine: int, more: int, after_s: float = 0.0) -> None:
        """Faults of a task manager's metrics may overlap."""
        muted = bool(self._mutes[machine])
        self._mutes[machine] += more
        self.reports.muted[machine] = now = bool(self._mutes[machine])
        if now != muted and self.engine.up[machine]:
            id = self.simulation.machines[machine].id
            if now:
                self._event("metrics-missing", task_manager=id, why=FAULT)
            else:
                self._event("metrics-back", task_manager=id, after_s=after_s)

    def _kill(self, instance: int) -> None:
        """End an instance in the middle of a batch: its work since the last commit is repeated."""
        if self.engine.running[instance]:
            self.engine.give_back(instance, self.reports.committed)
        self._halt(instance)

    def _at_run(self, instance: int, seconds: float) -> None:
        """Restart an instance after this many seconds, unless it is started or stopped before."""
        run = int(self._run[instance])

        def again() -> None:
            if self._run[instance] == run:
                self._restart(instance)

        self._at(self.now + seconds, again)

    def _restart(self, instance: int) -> None:
        """Restart an instance from its checkpoint: on its task manager, or on another if that is down."""
        machine, name = int(self.engine.where[instance]), self.wiring.instances[instance]
        if machine == NOWHERE or not self.engine.up[machine]:
            target = self._targets({name: ()}).get(name)
            if target is None:
                return  # it waits until a task manager joins
            machine = self._machine[target]
        self._start_on(instance, machine)

    def _place_again(self) -> None:
        """Restart the instances of started tasks that have no task manager."""
        where = self.engine.where
        unplaced = self._active[self.wiring.instance_task] & ((where == NOWHERE) | ~self.engine.up[where])
        for instance in np.flatnonzero(unplaced).tolist():
            if instance not in self._given_up:
                self._restart(instance)
