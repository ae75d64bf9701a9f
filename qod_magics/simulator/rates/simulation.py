"""The input of a simulation: a cluster, its applications, events and faults, from a JSON file. Pure but for `read`.

The file is an injector scenario (`qod_magics.kafka.scenario`) with more fields; `data` may be left out of its topics:

    {"seed": 1, "duration_s": 300, "phases": [...], "topics": [{"topic": "trips1", "rate": [[0, 500]]}],
     "events": [{"at_s": 120, "add_task_manager": "tm2"}],
     "period_s": 5, "step_s": 0.25, "policy": "stream-economics-reactive", "controlled": true,
     "task_managers": [{"id": "tm1", "cores": 1, "planned_cores": 0.9, "background": 0.1, "cost": 1},
                       {"id": "tm2"},
                       {"id": "big1", "kind": "big", "cores": 4, "memory_mb": 12288, "price": 0.12, "off": true,
                        "start_s": 12},
                       {"id": "warm1", "kind": "warm", "standby": true}],
     "tasks": [{"id": "TDSrc1", "topic": "trips1", "fixed": 0.02, "overhead": 0.05, "read_us": 20, "work_us": 40},
               {"id": "TDSnk1", "upstream": ["TDSrc1"], "priority": 1, "min_accuracy": 0.2, "parallelism": 2,
                "work_us": 300, "selectivity": 0.1, "mode": "micro-batch", "trigger_s": 1,
                "latency_s": 0.1, "application": "taxi", "shares": [0.5, 0.5]},
               {"id": "TDSnk2", "upstream": ["TDSrc1"], "priority": 2, "min_accuracy": 0.2, "parallelism": 2,
                "max_parallelism": 8, "stateful": true, "max_latency_s": 2, "utility": 5}],
     "max_task_managers": 3, "latency": true,
     "metrics": {"report_s": 5, "delay_s": 0.2, "cpu_noise": 0.03},
     "moves": {"wait_s": 0, "down_s": 1.2, "spread": 0.3, "start_cpu_s": 0.8, "slowdown": 2, "warm_up_s": 6,
               "start_overhead_s": 2, "detect_s": 2},
     "faults": [{"at_s": 60, "kind": "task-manager-lost", "target": "tm1"},
                {"at_s": 90, "kind": "broker-pause", "for_s": 8}]}

A task manager that an event adds joins then, and a task starts when an event starts its `application`. All others are
there from the start. `policy` defaults to that of `%qod up`; `"stream-economics"` is the paper's.

A policy can start the task managers that are `off` or stand by, up to `max_task_managers` in all, and change the
parallelism of tasks up to their `max_parallelism`. Latencies, waiting rows and the time that instances are busy are
measured where `latency` is true; without it, where a task has `max_parallelism`, `max_latency_s` or `utility`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from msgspec import Meta, field

from qod_magics.data.forms import Count, Form, Name, NotNegative, Positive, plain, read, read_json, refuse
from qod_magics.errors import ScenarioError, nearest
from qod_magics.kafka.scenario import FeedForm, Scenario, ScenarioForm
from qod_magics.policies import DEFAULT_POLICY, is_policy, policy_names
from qod_magics.simulator.rates.components import (
    LOCAL,
    MICRO_BATCH,
    REALTIME,
    Machine,
    SimulatedTask,
    check_kinds,
    check_machine,
    check_task,
    ordered,
)

__all__ = [
    "FAULTS",
    "LOCAL",
    "MICRO_BATCH",
    "REALTIME",
    "Fault",
    "Machine",
    "Metrics",
    "Moves",
    "SimulatedTask",
    "Simulation",
]

FaultKind: TypeAlias = Literal["task-manager-lost", "broker-pause", "query-failure", "slow-metrics"]
FAULTS = get_args(FaultKind)


class Metrics(Form, frozen=True):
    """What the controller sees, and when."""

    report_s: Positive = 5.0  #: length of a real-time batch, at whose end it reports and commits
    delay_s: NotNegative = 0.2  #: from a report to when it can be seen
    cpu_noise: NotNegative = 0.0  #: standard deviation of a relative error
    rate_noise: NotNegative = 0.0  #: the same, of rates
    lost_cpu: NotNegative = (
        0.0  #: 1: the CPU of a moved instance reads 0 until it reports again; 0: its last one is held
    )
    dial_delay_s: NotNegative = 0.2  #: from `apply` to the change of the dials
    others_periods: NotNegative = (
        4.0  #: periods over which the CPU of all but the tasks is averaged, as live; 1 or more
    )


class Moves(Form, frozen=True):
    """The costs of moving or starting an instance."""

    wait_s: NotNegative = 0.0  #: maximum wait for the end of its batch before a move stops it
    down_s: NotNegative = 1.2  #: mean downtime of a move or restart
    spread: Annotated[float, Meta(ge=0, le=1)] = (
        0.3  #: relative spread of that: uniform in mean * (1 - spread) ... mean * (1 + spread)
    )
    start_cpu_s: NotNegative = 0.8  #: CPU seconds of a start
    slowdown: NotNegative = 2.0  #: factor on the cost of a row just after a start
    warm_up_s: NotNegative = 6.0  #: time constant with which the slowdown fades
    start_overhead_s: NotNegative = (
        0.0  #: CPU seconds of its task manager in addition, spent with time constant warm_up_s
    )
    detect_s: NotNegative = 2.0  #: until a lost task manager is noticed


METRICS, MOVES = Metrics(), Moves()


class Fault(Form, frozen=True):
    """A fault to inject."""

    at_s: NotNegative
    kind: FaultKind
    target: Name | None = None  #: task manager; instance, for a failing query; None for the broker
    for_s: NotNegative = 0.0


class FedTopic(FeedForm, frozen=True):
    """A topic of a simulation: simulated rows have no content, so that `data` may be left out."""

    data: Any = field(default_factory=lambda: {"generator": "points"})


class SimulationForm(ScenarioForm, frozen=True, kw_only=True):
    """A simulation file."""

    topics: Annotated[tuple[FedTopic, ...], Meta(min_length=1)]
    task_managers: tuple[Machine, ...] = ()
    tasks: tuple[SimulatedTask, ...] = ()
    metrics: Metrics = Metrics()
    moves: Moves = Moves()
    faults: tuple[Fault, ...] = ()
    period_s: Positive = 5.0
    step_s: Positive = 0.25
    policy: Name = DEFAULT_POLICY
    controlled: bool = True
    max_task_managers: Count | None = None
    latency: bool | None = None


@dataclass(frozen=True, slots=True)
class Simulation:
    """The whole input of a run. The class does not validate; `from_json` and `read` do."""

    scenario: Scenario
    machines: tuple[Machine, ...]
    tasks: tuple[SimulatedTask, ...]  #: inputs before their readers
    metrics: Metrics = METRICS
    moves: Moves = MOVES
    faults: tuple[Fault, ...] = ()
    period_s: float = 5.0
    step_s: float = 0.25
    policy: str = DEFAULT_POLICY
    controlled: bool = True  #: False: plans are made and not applied, every shedder is open
    max_task_managers: int | None = None  #: that an `AddNode` may lead to; None: no limit
    latency: bool | None = None  #: whether latencies are measured; None: where a task asks for it

    @property
    def measures_latency(self) -> bool:
        """Return whether latencies, waiting rows and the time that instances are busy are measured."""
        if self.latency is not None:
            return self.latency
        asked = (each for task in self.tasks for each in (task.max_parallelism, task.max_latency_s, task.utility))
        return any(each is not None for each in asked)

    @property
    def is_elastic(self) -> bool:
        """Return whether task managers can be started and released."""
        return self.max_task_managers is not None or any(machine.off or machine.standby for machine in self.machines)

    @classmethod
    def read(cls, path: str | Path) -> Simulation:
        """Return the simulation of a JSON file. Raises ScenarioError, one line."""
        return cls.from_json(read_json(path))

    @classmethod
    def from_json(cls, value: Any) -> Simulation:
        """Return the simulation of a JSON value. Raises ScenarioError, which names the field."""
        form = read(SimulationForm, value, "scenario")
        scenario = Scenario.of(form)
        for i, machine in enumerate(form.task_managers):
            check_machine(machine, f"task_managers[{i}]")
        for i, task in enumerate(form.tasks):
            check_task(task, f"tasks[{i}]")
        for i, fault in enumerate(form.faults):
            if (fault.target is None) != (fault.kind == "broker-pause"):
                must = "be null for the broker, and the name of what is hit otherwise"
                raise refuse(fault, f"faults[{i}]", "target", must)
        _once([task.id for task in form.tasks], "scenario.tasks")
        simulation = cls(
            scenario=scenario,
            machines=form.task_managers,
            tasks=ordered(form.tasks, [feed.topic for feed in scenario.topics]),
            metrics=form.metrics,
            moves=form.moves,
            faults=form.faults,
            period_s=form.period_s,
            step_s=form.step_s,
            policy=form.policy,
            controlled=form.controlled,
            max_task_managers=form.max_task_managers,
            latency=form.latency,
        )
        _check(simulation, form)
        return simulation

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: `from_json` of it is the same simulation."""
        return {
            **self.scenario.to_json(),
            "period_s": self.period_s,
            "step_s": self.step_s,
            "policy": self.policy,
            "controlled": self.controlled,
            "task_managers": [machine.to_json() for machine in self.machines],
            "tasks": [task.to_json() for task in self.tasks],
            "metrics": plain(self.metrics),
            "moves": plain(self.moves),
            "faults": [plain(fault) for fault in self.faults],
            **({} if self.max_task_managers is None else {"max_task_managers": self.max_task_managers}),
            **({} if self.latency is None else {"latency": self.latency}),
        }


def _once(names: list[str], where: str) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise ScenarioError(
                f"{where} has the id {name!r} {times} times: give each its own", name=name, rule="unique"
            )


def _check(simulation: Simulation, form: SimulationForm) -> None:
    if not simulation.machines or not simulation.tasks:
        raise ScenarioError("a simulation needs at least one task manager and one task: add them", rule="not empty")
    if not is_policy(simulation.policy):
        raise refuse(form, "scenario", "policy", f"be one of {', '.join(policy_names())}")
    if simulation.step_s > simulation.period_s:
        raise refuse(form, "scenario", "step_s", "not be longer than period_s")
    names = [machine.id for machine in simulation.machines]
    _once(names, "scenario.task_managers")
    check_kinds(simulation.machines)
    if all(machine.waits for machine in simulation.machines):
        raise ScenarioError(
            "every task manager is off or stands by: let at least one be up at the start", rule="one is up"
        )
    applications = {task.application for task in simulation.tasks if task.application}
    instances = [f"{task.id}.{i + 1}" for task in simulation.tasks for i in range(task.partitions)]
    for event in simulation.scenario.events:
        there = names if "task_manager" in event.action else applications
        if event.target not in there:
            raise ScenarioError(
                f"event {event.action} {event.target!r}: no such thing.{nearest(event.target, there)}",
                name=event.target,
                rule="exists",
            )
    for i, fault in enumerate(simulation.faults):
        if fault.at_s > simulation.scenario.duration_s:
            end = simulation.scenario.duration_s
            raise refuse(fault, f"faults[{i}]", "at_s", f"not lie after the end, second {end:g}")
        there = instances if fault.kind == "query-failure" else names
        if fault.target is not None and fault.target not in there:
            raise ScenarioError(
                f"fault {fault.kind} {fault.target!r}: no such thing.{nearest(fault.target, there)}",
                name=fault.target,
                rule="exists",
            )
