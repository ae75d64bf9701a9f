"""The simulator as a Runtime: observed and controlled like a live cluster, in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from qod_magics.controller.clock import ManualClock
from qod_magics.core.plan import (
    Action,
    AddNode,
    Edge,
    Fuse,
    Move,
    Plan,
    Refusal,
    ReleaseNode,
    Scale,
    SetBatch,
    Stop,
    Unfuse,
)
from qod_magics.core.runtime import Dials, Observation, Placer, fewest_first, refused
from qod_magics.errors import QodError, TaskManagerError
from qod_magics.lifecycle.admission import Admission
from qod_magics.lifecycle.changes import ChangeBegins, StepEnded
from qod_magics.lifecycle.deployment import Declared, Deploying, Queries, StartTasks, StopTasks, decide
from qod_magics.simulator.rates.components import MICRO_BATCH
from qod_magics.simulator.rates.engine import Engine
from qod_magics.simulator.rates.fusing import Fusing
from qod_magics.simulator.rates.instances import FAULT, Agenda, Events, Instances
from qod_magics.simulator.rates.nodes import Nodes
from qod_magics.simulator.rates.observe import Observer
from qod_magics.simulator.rates.reports import Reports
from qod_magics.simulator.rates.rescaling import Rescaling
from qod_magics.simulator.rates.simulation import Fault, Simulation
from qod_magics.simulator.rates.wiring import Column, Wiring

#: Number of samples of the arrivals that are kept.
SEEN = 16


class SimulatedCluster:
    """A Runtime whose time passes only in `advance`. Deterministic: the same simulation runs the same, bit for bit.

    Task managers, and applications, without an event of their own start at second 0. `place` places instances.
    """

    supports: frozenset[type[Action]] = frozenset({Move, Stop, Scale, AddNode, ReleaseNode, SetBatch, Fuse, Unfuse})

    def __init__(self, simulation: Simulation, clock: ManualClock | None = None, place: Placer = fewest_first) -> None:
        self.simulation = simulation
        self.clock = clock or ManualClock()
        self.engine = Engine(simulation, Wiring.of(simulation.tasks))
        self.reports = Reports(self.engine, simulation.metrics, simulation.period_s)
        self._agenda, self._events = Agenda(), Events()
        self._instances = Instances(simulation, self.engine, self.reports, self._agenda, self._events, place)
        self.nodes = Nodes(simulation, self.engine, self._agenda, self._events, self._instances)
        admission = Admission(one_at_a_time=False)
        self._rescaling = Rescaling(self.engine, self._agenda, self._events, self._instances, self.nodes, admission)
        self._fusing = Fusing(self.engine, self._agenda, self._events, self._instances, admission)
        self._observer = Observer(simulation, self.engine, self.reports, self.clock.wall().timestamp())
        self._task = {task.id: t for t, task in enumerate(simulation.tasks)}
        self._edges, self._keep = self.wiring.edges, Column[Edge](self.wiring.edges)
        self._deployed: frozenset[str] = frozenset()  #: the tasks that are started, also where they are fused
        self._accept, self._desired = Column(self._task), Column(self._task)
        self._seen = deque([(0.0, self.engine.came[: self.wiring.sources].copy())], maxlen=SEEN)  #: (second, rows)
        self._pauses = 0  #: broker pauses under way
        self._not_paced: set[str] = set()  #: tasks of which plans ask for what their batches can't do
        self._mutes = np.zeros(len(simulation.machines), int)  #: metrics faults under way, by task manager
        self._until = 0.0  #: virtual second that `advance` was asked to reach
        self._schedule()

    def __repr__(self) -> str:
        managers, instances = len(self.simulation.machines), len(self.wiring.instances)
        return f"simulated cluster of {managers} task managers and {instances} instances at {self.now:.1f} s"

    @property
    def wiring(self) -> Wiring:
        """Return the tasks as arrays."""
        return self.engine.wiring

    # -- the protocol --------------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """Return the current observation. Raises TaskManagerError while no task manager is up."""
        if not self.engine.up.any():
            raise TaskManagerError("No task manager is up.", rule="a task manager is up")
        instances = self._instances
        spares = tuple(each for each in self.nodes.spares() if each.count > 0) if self.simulation.is_elastic else None
        return self._observer.observe(
            instances.active, instances.there, self._events.take(), spares, instances.suspended
        )

    def apply(self, plan: Plan, dials: Dials) -> None:
        """Set the dials after `dial_delay_s`, and begin the actions; a refused one becomes an event."""
        self._agenda.at(self.now + self.simulation.metrics.dial_delay_s, lambda: self._turn(plan, dials))
        self._not_paced &= {action.task for action in plan.actions if isinstance(action, SetBatch)}
        for action in plan.actions:
            try:
                self._act(action)
            except TaskManagerError as error:
                self._events.add(refused(Refusal(action, str(error))))

    def place_by(self, placer: Placer) -> None:
        """Place instances with `placer` from now on."""
        self._instances.place = placer

    def input_rates(self, over_s: float) -> Mapping[str, float]:
        """Return the input rate of each source since the last `advance` that ended at least `over_s` seconds ago,
        rows/s."""
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
            self._agenda.run(self.now)
            self.engine.step()
            self.reports.collect(self.engine.batches_over())
        self.clock.advance(seconds)
        self._seen.append((self.now, self.engine.came[: self.wiring.sources].copy()))

    # -- user actions --------------------------------------------------------------------------------------------------

    def start_tasks(self, names: Iterable[str]) -> None:
        """Start these tasks, placed by the policy. They read from the latest offsets on."""
        self._deploy(self._deployed | set(names))

    def stop_tasks(self, names: Iterable[str]) -> None:
        """Stop these tasks. Their backlog stays; rows that arrive from now on are not kept for them."""
        self._deploy(self._deployed - set(names))

    def add_task_manager(self, id: str) -> None:
        """Add a task manager; instances without one start there. Raises TaskManagerError when it is up already, or
        when the simulation has none of that name."""
        self.nodes.add(id)

    def remove_task_manager(self, id: str) -> None:
        """Remove a task manager; its instances move to the others. Raises TaskManagerError when it is not up, or is
        the last one and has instances."""
        self.nodes.remove(id)

    def move(self, instance: str, target: str, why: str) -> None:
        """Begin to move an instance. Raises TaskManagerError when there is no such instance or task manager."""
        self._instances.move(self._instances.named(instance), self.nodes.up(target), why)

    # -- faults --------------------------------------------------------------------------------------------------------

    def lose(self, id: str) -> None:
        """Kill a task manager; its instances start on the others. Does nothing when it is not up."""
        self.nodes.lose(id)

    def fail(self, name: str) -> None:
        """Fail an instance's query. Does nothing when it does not run."""
        self._instances.fail(self._instances.number[name])

    # -- inside --------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        scenario = self.simulation.scenario
        first = {event.target: event.action for event in reversed(scenario.events)}
        late = {target for target, action in first.items() if action == "add_task_manager"}
        for machine in self.simulation.machines:
            if machine.id not in late and not machine.waits:
                self.add_task_manager(machine.id)
        started = {target for target, action in first.items() if action == "start_application"}
        self.start_tasks(task.id for task in self.simulation.tasks if task.application not in started)
        for event in scenario.events:
            self._agenda.at(event.at_s, lambda event=event: self._happen(event.action, event.target))  # type: ignore[misc]
        for fault in self.simulation.faults:
            self._agenda.at(fault.at_s, lambda fault=fault: self._break(fault))  # type: ignore[misc]

    def _deploy(self, names: frozenset[str]) -> None:
        """Run exactly these tasks. Their topics are always there, and none is declared with another recipe."""
        known = dict.fromkeys(self._task, Queries())
        running, wanted = ([Declared(id) for id in self._task if id in those] for those in (self._deployed, names))
        life = Deploying(decide(running, wanted, known, known))
        self._deployed = names
        steps = life.handle(ChangeBegins())
        while steps:
            if isinstance(steps[0], StopTasks):
                self._stop([self._task[id] for id in self._task if id in steps[0].tasks])
            elif isinstance(steps[0], StartTasks):
                self._instances.start_tasks(self._task[id] for id in life.decision.starting)
            steps = life.handle(StepEnded(steps[0]))

    def _stop(self, tasks: Sequence[int]) -> None:
        self._fusing.separate(tasks)
        self._instances.stop_tasks(tasks)
        for task in tasks:
            self._rescaling.forget(task)

    def _act(self, action: Action) -> None:
        """Begin an action of a plan. Raises TaskManagerError."""
        match action:
            case Move():
                instance, target = self._instances.named(action.instance), self.nodes.up(action.to)
                self._instances.move(instance, target, action.why, only_running=True)
            case Stop():
                instance = self._instances.named(action.instance)
                if self._rescaling.is_under_way(instance):
                    raise TaskManagerError(f"{action.instance} is being stopped: its task is being scaled.")
                self._instances.ask_to_suspend(instance, action.why)
            case Scale():
                self._rescaling.begin(action)
            case Fuse() | Unfuse():
                self._fusing.begin(action)
            case SetBatch(task, _, _, due_s):  # a setting of the plan, see `_turn`
                self._check_paced(task, due_s is not None)
            case AddNode(kind, why):
                self.nodes.start(kind, why)
            case ReleaseNode(id, why):
                self.nodes.release(id, why)
            case _:
                can = ", ".join(sorted(kind.__name__ for kind in self.supports))
                raise TaskManagerError(f"A simulated cluster supports {can}, not {type(action).__name__}.")

    def _check_paced(self, name: str, takes_turns: bool) -> None:
        """Raise TaskManagerError for a task whose batches can't be paced, or are to take turns, once for as long as
        plans ask for it."""
        in_real_time = any(each.id == name and each.mode != MICRO_BATCH for each in self.wiring.tasks)
        if (in_real_time or takes_turns) and name not in self._not_paced:
            self._not_paced.add(name)
            if in_real_time:
                raise TaskManagerError(f"{name} runs in real-time mode, in which there are no batches to space.")
            raise TaskManagerError(f"Simulated batches take no turns: those of {name} share the cores with all others.")

    def _happen(self, action: str, target: str) -> None:
        try:
            self._do(action, target)
        except QodError as error:
            self._events.tell("scenario-failed", why=f"{action} {target}: {error}")

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
        if engine.wiring.edges is not self._edges:
            self._edges, self._keep = engine.wiring.edges, Column[Edge](engine.wiring.edges)
        engine.turn(
            self._keep.of(dials.keep, engine.keep),
            self._accept.of(dials.accept, engine.accept),
            self._desired.of(plan.desired, engine.desired) if engine.any_loses else engine.desired,
        )
        engine.pace_s[:] = [plan.pace_s.get(machine.id, 0.0) for machine in engine.machines]
        engine.gaps_s = {each.task: each.seconds for each in plan.actions if isinstance(each, SetBatch)}

    def _break(self, fault: Fault) -> None:
        if fault.kind == "broker-pause":
            self._pause(1)
            self._agenda.at(self.now + fault.for_s, lambda: self._pause(-1))
        elif fault.kind == "slow-metrics":
            machine = self.nodes.known(fault.target or "")
            self._mute(machine, 1)
            self._agenda.at(self.now + fault.for_s, lambda: self._mute(machine, -1, fault.for_s))
        elif fault.kind == "task-manager-lost":
            self.lose(fault.target or "")
        else:
            self.fail(fault.target or "")

    def _pause(self, more: int) -> None:
        """Begin or end a pause of the broker; pauses may overlap."""
        self._pauses += more
        self.engine.broker_down = self._pauses > 0

    def _mute(self, machine: int, more: int, after_s: float = 0.0) -> None:
        """Begin or end a fault of a task manager's metrics; faults may overlap."""
        muted = bool(self._mutes[machine])
        self._mutes[machine] += more
        self.reports.muted[machine] = now = bool(self._mutes[machine])
        if now != muted and self.engine.up[machine]:
            id = self.simulation.machines[machine].id
            if now:
                self._events.tell("metrics-missing", task_manager=id, why=FAULT)
            else:
                self._events.tell("metrics-back", task_manager=id, after_s=after_s)
