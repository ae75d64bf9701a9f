"""The life of instances in a simulated cluster: placement, start, move, failure, restart, stop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np

from qod_magics.core import runtime
from qod_magics.core.runtime import Placer, Unplaced
from qod_magics.core.snapshot import Instance, TaskManager
from qod_magics.errors import TaskManagerError, nearest
from qod_magics.lifecycle.events import (
    BatchEnded,
    Event,
    Failed,
    FirstReported,
    Instructions,
    MoveAsked,
    MoveCalledOff,
    MoveStopped,
    PlaceAsked,
    Refuse,
    RetryAt,
    RoomCame,
    RunEnded,
    ServerLost,
    StartAsked,
    Started,
    StartOn,
    State,
    StopForMove,
    SuspendAsked,
    Suspended,
    Tell,
)
from qod_magics.lifecycle.query import QueryLife
from qod_magics.simulator.rates.engine import NOWHERE, Engine
from qod_magics.simulator.rates.reports import Reports
from qod_magics.simulator.rates.simulation import Simulation

# --- Calls and events -------------------------------------------------------------------------------------------------


class Agenda:
    """Calls by the second they are due; those of the same second in the order in which they were added."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, int, Callable[[], object]]] = []  #: (second, order, call), a heap
        self._order = count()

    def __repr__(self) -> str:
        return f"agenda of {len(self._calls)} calls"

    def at(self, second: float, call: Callable[[], object]) -> None:
        """Add a call."""
        heappush(self._calls, (second, next(self._order), call))

    def run(self, now: float) -> None:
        """Make the calls that are due."""
        while self._calls and self._calls[0][0] <= now + 1e-9:
            heappop(self._calls)[2]()


class Events:
    """Events since the last observation."""

    def __init__(self) -> None:
        self._events: list[runtime.Event] = []

    def __repr__(self) -> str:
        return f"{len(self._events)} events"

    def tell(self, kind: str, **detail: Any) -> None:
        """Add an event."""
        self._events.append(runtime.Event(kind, detail))

    def add(self, event: runtime.Event) -> None:
        """Add an event."""
        self._events.append(event)

    def take(self) -> tuple[runtime.Event, ...]:
        """Return the events so far; the next call gives those after them."""
        events, self._events = tuple(self._events), []
        return events


#: The reason that events give for a failure.
FAULT = "a fault of the scenario"


class Instances:
    """The instances of a cluster, and their state. `place` places those without a task manager."""

    def __init__(
        self, simulation: Simulation, engine: Engine, reports: Reports, agenda: Agenda, events: Events, place: Placer
    ) -> None:
        self.place = place
        self._simulation, self._engine, self._reports = simulation, engine, reports
        self._agenda, self._events = agenda, events
        self._random = np.random.default_rng([simulation.scenario.seed, 0])
        wiring = engine.wiring
        self._machine = {machine.id: m for m, machine in enumerate(simulation.machines)}
        self.number = {name: i for i, name in enumerate(wiring.instances)}
        self.active = np.zeros(len(wiring.tasks), bool)  #: started, by task
        self.parallelism = np.array([task.parallelism for task in wiring.tasks])  #: by task
        self._lives = [QueryLife() for _ in wiring.instances]
        self.run = np.zeros(len(wiring.instances), int)  #: run number; calls for earlier runs are void
        self.started: list[Callable[[int], object]] = []  #: called with each instance that starts again
        self.relist()

    def __repr__(self) -> str:
        return f"{int(self.there.sum())} instances"

    # -- state ---------------------------------------------------------------------------------------------------------

    def relist(self) -> None:
        """Find which there are, after a change of the tasks."""
        wiring = self._engine.wiring
        task = wiring.instance_task
        #: by instance: its task is started, and it is one of those that the task runs with
        self.there = self.active[task] & (wiring.instance_number < self.parallelism[task])
        self._engine.listening = self.active[wiring.edge_target]

    def named(self, name: str) -> int:
        """Return the index of an instance. Raises TaskManagerError unless its task is started and runs with it."""
        instance = self.number.get(name)
        if instance is None or not self.there[instance]:
            known = [known for known, i in self.number.items() if self.there[i]]
            raise TaskManagerError(f"There is no instance {name!r}.{nearest(name, known)}", name=name, rule="exists")
        return instance

    def of(self, task: int) -> list[int]:
        """Return the instances that a task can have, of which it runs with the first `parallelism`."""
        first = int(self._engine.wiring.first_instance[task])
        return list(range(first, first + self._engine.wiring.tasks[task].partitions))

    def on(self, machine: int) -> list[int]:
        """Return the instances that are, or were last, on a task manager."""
        found: list[int] = np.flatnonzero(self._engine.where == machine).tolist()
        return found

    def state(self, instance: int) -> State:
        """Return where an instance is in its life."""
        return self._lives[instance].state

    def stay_stopped(self, instance: int) -> bool:
        """Return whether it failed too often to be restarted, or a plan has stopped it."""
        return self._lives[instance].state in (State.GAVE_UP, State.SUSPENDED)

    @property
    def suspended(self) -> list[int]:
        """The instances that a plan has stopped."""
        return [i for i, life in enumerate(self._lives) if life.state is State.SUSPENDED]

    def home(self, instance: int) -> str:
        """Return the current or last task manager of an instance."""
        where = int(self._engine.where[instance])
        return "?" if where == NOWHERE else self._simulation.machines[where].id

    def targets(self, forbidden: Mapping[int, Collection[str]]) -> Mapping[int, int]:
        """Return the policy's task managers for these instances, without those it names."""
        names = self._engine.wiring.instances
        found = self.place(*_what_is_placed(self._simulation, self._engine, self._reports, forbidden))
        by_name = {names[i]: i for i in forbidden}
        return {by_name[name]: self._machine[target] for name, target in found.items()}

    # -- changes -------------------------------------------------------------------------------------------------------

    def start_tasks(self, tasks: Iterable[int]) -> None:
        """Start these tasks, placed by the policy."""
        chosen = set(tasks)
        self.active[sorted(chosen)] = True
        self.relist()
        task = self._engine.wiring.instance_task.tolist()
        self._begin(self.targets({i: () for i, t in enumerate(task) if t in chosen and self.there[i]}))

    def stop_tasks(self, tasks: Iterable[int]) -> None:
        """Stop these tasks; their backlog stays."""
        for task in tasks:
            self.active[task] = False
            for i in self.of(task):
                self.halt(i)
                self._forget(i)
        self.relist()

    def assign_partitions(self, task: int, parallelism: int) -> None:
        """Assign the partitions of a task, whose instances are stopped, to this many of them."""
        self._reports.renew(self.of(task), retired=self.of(task)[parallelism:])
        self._engine.assign_partitions(task, parallelism)
        self.parallelism[task] = parallelism
        for i in self.of(task)[parallelism:]:
            self._forget(i)
        self._begin_lives(task)
        self.relist()

    def replace(self, gone: Collection[int], made: Collection[int]) -> None:
        """Replace tasks by others that read the same rows; the instances of all of them are stopped."""
        for task in (*gone, *made):
            self._reports.renew(self.of(task), retired=self.of(task))
            self._begin_lives(task)
            self.active[task] = task in made
        for task in gone:
            for i in self.of(task):
                self._forget(i)

    def _forget(self, instance: int) -> None:
        self._engine.where[instance] = NOWHERE
        self._lives[instance] = QueryLife()

    def _begin_lives(self, task: int) -> None:
        """Have other queries take the places of a task's instances."""
        for instance in self.of(task):
            self._lives[instance] = QueryLife()

    def _begin(self, targets: Mapping[int, int]) -> None:
        """Start these instances, each on its task manager."""
        for instance, machine in targets.items():
            self._engine.start(instance, machine, fresh=True)
            self.run[instance] += 1
            self._report(instance, StartAsked())
            self._report(instance, Started(self._lives[instance].run))
        self._reports.begin(np.array(list(targets), int), self._random.uniform(0.0, 1.0, len(targets)))

    def halt(self, instance: int) -> None:
        """Stop an instance; what it did so far counts."""
        self._engine.stop(instance)
        self._reports.end(instance)
        self.run[instance] += 1
        self._report(instance, RunEnded())

    def kill(self, instance: int) -> None:
        """End an instance in the middle of a batch: its work since the last commit is repeated."""
        if self._engine.running[instance]:
            self._engine.give_back(instance, self._reports.committed)
        self.halt(instance)

    def _down_s(self) -> float:
        moves = self._simulation.moves
        return float(moves.down_s * self._random.uniform(1.0 - moves.spread, 1.0 + moves.spread))

    def batch_left_s(self, instance: int) -> float:
        """Return how long a stop waits for the end of an instance's batch, seconds."""
        return min(float(self._reports.next_at[instance]) - self._engine.now, self._simulation.moves.wait_s)

    def _check_no_change(self, instance: int) -> None:
        """Raise TaskManagerError while a change of its task has stopped an instance."""
        if self.state(instance) is State.RUNNING and not self._engine.running[instance]:
            name = self._engine.wiring.instances[instance]
            raise TaskManagerError(f"{name} stands still for a change of its task.")

    def ask_to_suspend(self, instance: int, why: str) -> None:
        """Begin a stop that a plan asks for, at the end of the batch; its rows wait. Raises TaskManagerError if it is
        refused."""
        self._check_no_change(instance)
        name = self._engine.wiring.instances[instance]
        asked, run = self._report(instance, SuspendAsked(why)), int(self.run[instance])
        refusal = next((each for each in asked if isinstance(each, Refuse)), None)
        if refusal is not None:
            raise TaskManagerError(f"{name} {refusal.why}.")

        def stop() -> None:
            if self.run[instance] == run:  # it was not lost meanwhile
                self.halt(instance)
                self._suspend(instance)
                if not self.stay_stopped(instance):  # a task manager has joined meanwhile
                    self.restart(instance)

        if asked:
            self._agenda.at(self._engine.now + max(self.batch_left_s(instance), 0.0), stop)

    def _suspend(self, instance: int) -> None:
        """Forget the task manager of an instance that a plan has stopped."""
        home = self.home(instance)
        self._engine.where[instance] = NOWHERE
        for each in self._report(instance, Suspended()):
            if isinstance(each, Tell):
                name = self._engine.wiring.instances[instance]
                self._events.tell(each.kind, instance=name, task_manager=home, **each.detail)

    def room_came(self, why: str) -> None:
        """Start what plans have stopped once it is placed."""
        for instance in self.suspended:
            self._report(instance, RoomCame(why))

    def move(self, instance: int, machine: int, why: str, *, only_running: bool = False) -> None:
        """Stop an instance and start it elsewhere. `only_running`: as plans ask, see `MoveAsked`; then the stop is at
        the end of the batch, but after `wait_s` at the latest. Raises TaskManagerError if it is refused."""
        if only_running:
            self._check_no_change(instance)
        name = self._engine.wiring.instances[instance]
        where = int(self._engine.where[instance])
        source = None if where == NOWHERE else self._simulation.machines[where].id
        target = self._simulation.machines[machine].id
        for each in self._report(instance, MoveAsked(target, source, why, only_running, redirects=not only_running)):
            if isinstance(each, Refuse):
                raise TaskManagerError(f"{name} {each.why}.")
            if isinstance(each, StopForMove):
                self._stop_for_move(instance, machine, self.batch_left_s(instance) if only_running else 0.0)
            elif isinstance(each, StartOn):
                self.start_on(instance, machine)

    def _stop_for_move(self, instance: int, machine: int, wait_s: float) -> None:
        run = int(self.run[instance])

        def stop() -> None:
            if self.run[instance] != run:
                return
            if not self._engine.up[machine]:
                self._report(instance, MoveCalledOff(f"{self._simulation.machines[machine].id} was lost or removed"))
                return
            self.halt(instance)
            if self._report(instance, MoveStopped()):
                self.start_on(instance, machine)

        if wait_s > 0.0:
            self._agenda.at(self._engine.now + wait_s, stop)
        else:
            stop()

    def start_on(self, instance: int, machine: int) -> None:
        """Start an instance on a task manager after its downtime, unless it is stopped or started before."""
        self._engine.where[instance] = machine
        self.run[instance] += 1
        run = int(self.run[instance])

        def arrive() -> None:
            if self.run[instance] == run:
                self._begin({instance: machine})
                self._tell_arrival(instance)

        self._agenda.at(self._engine.now + self._down_s(), arrive)

    def _tell_arrival(self, instance: int) -> None:
        name, where = self._engine.wiring.instances[instance], self.home(instance)
        told = [each for each in self._report(instance, FirstReported()) if isinstance(each, Tell)]
        for each in told:
            self._events.tell(each.kind, instance=name, **each.detail)
        failures = self._lives[instance].failures
        if failures and not told:
            self._events.tell("query-restarted", instance=name, task_manager=where, after=FAULT, failures=failures)
        for call in self.started:
            call(instance)

    def fail(self, instance: int) -> None:
        """Fail an instance's query. Does nothing when it does not run."""
        engine = self._engine
        if not engine.running[instance]:
            return
        ids = {"instance": engine.wiring.instances[instance], "task_manager": self.home(instance)}
        if self._reports.committed.at[instance] > engine.started_at[instance]:
            self._report(instance, BatchEnded())  # one of this run, or more
        self.kill(instance)
        for each in self._report(instance, Failed(FAULT, run=self._lives[instance].run)):
            if isinstance(each, Tell):
                self._events.tell(each.kind, **ids, **each.detail)
            elif isinstance(each, RetryAt):
                self._restart_at(instance, each.at)

    def _report(self, instance: int, event: Event) -> Instructions:
        """Report an event of an instance; returns what is to be done."""
        return self._lives[instance].handle(event, self._engine.now)

    def lose(self, machine: int) -> None:
        """Start the instances of a lost task manager on the others."""
        id = self._simulation.machines[machine].id
        orphans = self.on(machine)
        names = [self._engine.wiring.instances[i] for i in orphans]
        self._events.tell("task-manager-lost", task_manager=id, instances=names, why="its process ended")
        for instance in orphans:
            self.kill(instance)
            self._report(instance, ServerLost(f"{id} was lost", id))
            if self.state(instance) is State.SUSPENDED:
                self._suspend(instance)
            if not self.stay_stopped(instance):
                self._engine.where[instance] = NOWHERE
                self._restart_at(instance, self._engine.now + self._simulation.moves.detect_s)

    def _restart_at(self, instance: int, at: float) -> None:
        """Restart an instance at this time, unless it is started or stopped before."""
        run = int(self.run[instance])

        def again() -> None:
            if self.run[instance] == run:
                self.restart(instance)

        self._agenda.at(at, again)

    def restart(self, instance: int) -> None:
        """Restart an instance from its checkpoint: on its task manager, or on another if that is down."""
        machine = int(self._engine.where[instance])
        if machine == NOWHERE or not self._engine.up[machine]:
            target = self.targets({instance: ()}).get(instance)
            if target is None:
                return  # it waits until a task manager joins
            machine = target
        self._report(instance, PlaceAsked(self._simulation.machines[machine].id))
        self.start_on(instance, machine)

    def place_again(self) -> None:
        """Restart the instances of started tasks that have no task manager."""
        where = self._engine.where
        unplaced = self.there & ((where == NOWHERE) | ~self._engine.up[where])
        for instance in np.flatnonzero(unplaced).tolist():
            if not self.stay_stopped(instance):
                self.restart(instance)


def _what_is_placed(
    simulation: Simulation, engine: Engine, reports: Reports, forbidden: Mapping[int, Collection[str]]
) -> tuple[list[Unplaced], list[TaskManager], list[Instance]]:
    """Return the instances to place, the task managers that are up, and the other instances on them, with their last
    CPU.

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
