"""The input of a simulation: a cluster, its applications, events and faults, from a JSON file. Pure but for `read`.

The file is an injector scenario (`qod_magics.kafka.scenario`) with more fields; `data` may be left out of its topics:

    {"seed": 1, "duration_s": 300, "phases": [...], "topics": [{"topic": "trips1", "rate": [[0, 500]]}],
     "events": [{"at_s": 120, "add_task_manager": "tm2"}],
     "period_s": 5, "step_s": 0.25, "policy": "stream-economics-reactive", "controlled": true,
     "task_managers": [{"id": "tm1", "cores": 1, "planned_cores": 0.9, "background": 0.1, "cost": 1}],
     "tasks": [{"id": "TDSrc1", "topic": "trips1", "fixed": 0.02, "overhead": 0.05, "read_us": 20, "work_us": 40},
               {"id": "TDSnk1", "upstream": ["TDSrc1"], "priority": 1, "min_accuracy": 0.2, "parallelism": 2,
                "work_us": 300, "selectivity": 0.1, "mode": "micro-batch", "trigger_s": 1,
                "latency_s": 0.1, "application": "taxi", "shares": [0.5, 0.5]}],
     "metrics": {"report_s": 5, "delay_s": 0.2, "cpu_noise": 0.03},
     "moves": {"wait_s": 0, "down_s": 1.2, "spread": 0.3, "start_cpu_s": 0.8, "slowdown": 2, "warm_up_s": 6,
               "start_overhead_s": 2, "detect_s": 2},
     "faults": [{"at_s": 60, "kind": "task-manager-lost", "target": "tm1"},
                {"at_s": 90, "kind": "broker-pause", "for_s": 8}]}

A task manager that an event adds joins then, and a task starts when an event starts its `application`. All others are
there from the start. `policy` defaults to that of `%qod up`; `"stream-economics"` is the paper's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from qod_magics.data.fields import Fields, is_number
from qod_magics.errors import ScenarioError, nearest
from qod_magics.kafka.rates import PiecewiseLinear
from qod_magics.kafka.scenario import Scenario
from qod_magics.policies import DEFAULT_POLICY, policy_names

REALTIME, MICRO_BATCH = "real-time", "micro-batch"
FAULTS = ("task-manager-lost", "broker-pause", "query-failure", "slow-metrics")

_INJECTED = ("seed", "duration_s", "phases", "topics", "events")
_OURS = ("period_s", "step_s", "policy", "controlled", "task_managers", "tasks", "metrics", "moves", "faults")
_TASK = (
    *("id", "upstream", "topic", "priority", "min_accuracy", "parallelism", "shares", "application"),
    *("fixed", "overhead", "read_us", "work_us", "selectivity", "mode", "trigger_s", "latency_s", "keeps_weight"),
)


@dataclass(frozen=True, slots=True)
class SimulatedTask:
    """A task of the model and its costs."""

    id: str
    upstream: tuple[str, ...] = ()
    topic: str | None = None  #: of a source
    priority: int | None = None  #: queries only
    min_accuracy: float | None = None  #: queries only, fraction of 1
    parallelism: int = 1
    shares: tuple[float, ...] = ()  #: of its input, by instance; (): even
    application: str | None = None  #: an event starts it; None: there from the start
    fixed: float = 0.02  #: cores that each instance uses without a row
    overhead: float = 0.03  #: cores that its task manager uses in addition for each instance (planning, commits)
    read_us: float = 10.0  #: CPU for each row read, microseconds
    work_us: float = 100.0  #: CPU for each row that its shedders keep, microseconds, on top
    selectivity: float = 1.0  #: rows out for each row kept
    mode: str = REALTIME
    trigger_s: float = 1.0  #: between the starts of micro-batches
    latency_s: float = 0.0  #: until a row sent to it can be read (one step at least on a stream)
    keeps_weight: bool = True  #: whether the rows it sends keep their sampling weight

    def to_json(self) -> dict[str, Any]:
        """The JSON form, as in a simulation file."""
        return {name: _plain(getattr(self, name)) for name in _TASK}


@dataclass(frozen=True, slots=True)
class Machine:
    """A task manager."""

    id: str
    cores: float = 1.0
    planned_cores: float | None = None  #: what the policy may plan with; None: 90 % of the cores
    background: PiecewiseLinear = field(default_factory=lambda: PiecewiseLinear.constant(0.0))  #: cores of others

    cost: float = 1.0  #: factor on the costs of tasks here

    @property
    def planned(self) -> float:
        """Its cores in a snapshot."""
        return 0.9 * self.cores if self.planned_cores is None else self.planned_cores

    def to_json(self) -> dict[str, Any]:
        """The JSON form, as in a simulation file."""
        points = [list(point) for point in self.background.points]
        return {
            "id": self.id,
            "cores": self.cores,
            "planned_cores": self.planned_cores,
            "background": points,
            "cost": self.cost,
        }


@dataclass(frozen=True, slots=True)
class Metrics:
    """What the controller sees, and when."""

    report_s: float = 5.0  #: length of a real-time batch, at whose end it reports and commits
    delay_s: float = 0.2  #: from a report to when it can be seen
    cpu_noise: float = 0.0  #: standard deviation of a relative error
    rate_noise: float = 0.0  #: the same, of rates
    lost_cpu: float = 0.0  #: 1: the CPU of a moved instance reads 0 until it reports again; 0: its last one is held
    dial_delay_s: float = 0.2  #: from `apply` to the change of the dials
    others_periods: float = 4.0  #: periods over which the CPU of all but the tasks is averaged, as live; 1 or more


@dataclass(frozen=True, slots=True)
class Moves:
    """The costs of moving or starting an instance."""

    wait_s: float = 0.0  #: maximum wait for the end of its batch before a move stops it
    down_s: float = 1.2  #: mean downtime of a move or restart
    spread: float = 0.3  #: relative spread of that: uniform in mean * (1 - spread) ... mean * (1 + spread)
    start_cpu_s: float = 0.8  #: CPU seconds of a start
    slowdown: float = 2.0  #: factor on the cost of a row just after a start
    warm_up_s: float = 6.0  #: time constant with which the slowdown fades
    start_overhead_s: float = 0.0  #: CPU seconds of its task manager in addition, spent with time constant warm_up_s
    detect_s: float = 2.0  #: until a lost task manager is noticed


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to inject."""

    at_s: float
    kind: str  #: one of FAULTS
    target: str | None = None  #: task manager; instance, for a failing query; None for the broker
    for_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The JSON form, as in a simulation file."""
        return {"at_s": self.at_s, "kind": self.kind, "target": self.target, "for_s": self.for_s}


@dataclass(frozen=True, slots=True)
class Simulation:
    """The whole input of a run. The class does not validate; `from_json` and `read` do."""

    scenario: Scenario
    machines: tuple[Machine, ...]
    tasks: tuple[SimulatedTask, ...]  #: inputs before their readers
    metrics: Metrics = Metrics()
    moves: Moves = Moves()
    faults: tuple[Fault, ...] = ()
    period_s: float = 5.0
    step_s: float = 0.25
    policy: str = DEFAULT_POLICY
    controlled: bool = True  #: False: plans are made and not applied, every shedder is open

    @classmethod
    def read(cls, path: str | Path) -> Simulation:
        """The simulation of a JSON file. Raises ScenarioError, one line."""
        try:
            value = json.loads(Path(path).read_text("utf-8"))
        except OSError as problem:
            raise ScenarioError(f"scenario {path} can't be read ({problem.strerror}): check the path") from None
        except (ValueError, RecursionError) as problem:
            raise ScenarioError(f"scenario {path} is not JSON ({problem}): correct it there") from None
        return cls.from_json(value)

    @classmethod
    def from_json(cls, value: Any) -> Simulation:
        """The simulation of a JSON value. Raises ScenarioError, which names the field."""
        fields = Fields(value, "scenario", (*_INJECTED, *_OURS))
        scenario = Scenario.from_json(_injected(value))
        machines = tuple(_machine(item, f"task_managers[{i}]") for i, item in _each(fields, "task_managers"))
        tasks = tuple(_task(item, f"tasks[{i}]") for i, item in _each(fields, "tasks"))
        simulation = cls(
            scenario=scenario,
            machines=machines,
            tasks=_ordered(tasks, [feed.topic for feed in scenario.topics]),
            metrics=_metrics(value.get("metrics", {})),
            moves=_moves(value.get("moves", {})),
            faults=tuple(_fault(item, f"faults[{i}]") for i, item in _each(fields, "faults")),
            period_s=fields.number("period_s", above=0) if "period_s" in fields else 5.0,
            step_s=fields.number("step_s", above=0) if "step_s" in fields else 0.25,
            policy=fields.text("policy") if "policy" in fields else DEFAULT_POLICY,
            controlled=_boolean(fields, "controlled", True),
        )
        _check(simulation, fields)
        return simulation

    def to_json(self) -> dict[str, Any]:
        """The JSON form: `from_json` of it is the same simulation."""
        return {
            **self.scenario.to_json(),
            "period_s": self.period_s,
            "step_s": self.step_s,
            "policy": self.policy,
            "controlled": self.controlled,
            "task_managers": [machine.to_json() for machine in self.machines],
            "tasks": [task.to_json() for task in self.tasks],
            "metrics": {name: getattr(self.metrics, name) for name in Metrics.__slots__},
            "moves": {name: getattr(self.moves, name) for name in Moves.__slots__},
            "faults": [fault.to_json() for fault in self.faults],
        }


def _injected(value: Mapping[str, Any]) -> dict[str, Any]:
    """The injector's part. Simulated rows have no content, so that topics need no `data`."""
    mine = {name: value[name] for name in _INJECTED if name in value}
    topics = mine.get("topics")
    if isinstance(topics, list):
        data = {"generator": "points"}
        mine["topics"] = [{"data": data, **t} if isinstance(t, Mapping) else t for t in topics]
    return mine


def _each(fields: Fields, name: str) -> enumerate[Any]:
    return enumerate(fields.items(name, name))


def _boolean(fields: Fields, name: str, default: bool) -> bool:
    if name not in fields:
        return default
    value = fields.any(name)
    if not isinstance(value, bool):
        fields.refuse(name, "be true or false")
    return value


def _machine(value: Any, where: str) -> Machine:
    fields = Fields(value, where, ("id", "cores", "planned_cores", "background", "cost"))
    planned = value.get("planned_cores")
    return Machine(
        fields.text("id"),
        fields.number("cores", above=0) if "cores" in fields else 1.0,
        None if planned is None else fields.number("planned_cores", above=0),
        _curve(fields, "background"),
        fields.number("cost", above=0) if "cost" in fields else 1.0,
    )


def _curve(fields: Fields, name: str) -> PiecewiseLinear:
    if name not in fields:
        return PiecewiseLinear.constant(0.0)
    value = fields.any(name)
    try:
        return PiecewiseLinear.constant(value) if is_number(value) else PiecewiseLinear.through(value)
    except (TypeError, ValueError, OverflowError):
        fields.refuse(name, "be a number or a list of [second, number]")


def _task(value: Any, where: str) -> SimulatedTask:
    fields = Fields(value, where, _TASK)
    task = SimulatedTask(
        id=fields.text("id"),
        upstream=() if value.get("upstream") == [] else fields.names("upstream") or (),
        topic=fields.optional_text("topic"),
        priority=None if value.get("priority") is None else fields.whole("priority", at_least=-(2**31), default=0),
        min_accuracy=None if value.get("min_accuracy") is None else fields.number("min_accuracy"),
        parallelism=fields.whole("parallelism", at_least=1, default=1),
        shares=() if value.get("shares") is None else tuple(fields.items("shares", "numbers")),
        application=fields.optional_text("application"),
        mode=fields.text("mode") if "mode" in fields else REALTIME,
        keeps_weight=_boolean(fields, "keeps_weight", True),
    )
    given: dict[str, Any] = {
        name: fields.number(name)
        for name in ("fixed", "overhead", "read_us", "work_us", "selectivity", "trigger_s", "latency_s")
        if name in fields
    }
    task = replace(task, **given)
    if ">" in task.id:
        fields.refuse("id", "have no >, which stands between the ends of a stream")
    if task.mode not in (REALTIME, MICRO_BATCH):
        fields.refuse("mode", f"be {REALTIME} or {MICRO_BATCH}")
    if (task.topic is None) == (not task.upstream):
        raise ScenarioError(f"{where} must have a topic or upstream tasks, one of the two: {task.id!r} has not")
    if task.min_accuracy is not None and task.min_accuracy > 1:
        fields.refuse("min_accuracy", "lie between 0 and 1")
    if task.shares and (
        len(task.shares) != task.parallelism
        or not all(is_number(share) and share >= 0 for share in task.shares)
        or abs(sum(task.shares) - 1) > 1e-9
    ):
        fields.refuse("shares", f"be {task.parallelism} numbers of 0 or more whose sum is 1")
    return task


def _metrics(value: Any) -> Metrics:
    fields = Fields(value, "metrics", Metrics.__slots__)
    if "report_s" in fields:
        fields.number("report_s", above=0)
    return replace(Metrics(), **{name: fields.number(name) for name in value})


def _moves(value: Any) -> Moves:
    fields = Fields(value, "moves", Moves.__slots__)
    moves = replace(Moves(), **{name: fields.number(name) for name in value})
    if moves.spread > 1:
        fields.refuse("spread", "be 1 or less: a downtime can't be negative")
    return moves


def _fault(value: Any, where: str) -> Fault:
    fields = Fields(value, where, ("at_s", "kind", "target", "for_s"))
    kind = fields.text("kind")
    if kind not in FAULTS:
        fields.refuse("kind", f"be one of {', '.join(FAULTS)}")
    target = fields.optional_text("target")
    if (target is None) != (kind == "broker-pause"):
        fields.refuse("target", "be null for the broker, and the name of what is hit otherwise")
    return Fault(fields.number("at_s"), kind, target, fields.number("for_s") if "for_s" in fields else 0.0)


def _once(names: list[str], where: str) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise ScenarioError(f"{where} has the id {name!r} {times} times: give each its own")


def _ordered(tasks: tuple[SimulatedTask, ...], topics: list[str]) -> tuple[SimulatedTask, ...]:
    """Tasks in topological order. Raises ScenarioError for a cycle, or a name that does not exist."""
    by_id = {task.id: task for task in tasks}
    _once([task.id for task in tasks], "scenario.tasks")
    readers = {name for task in tasks for name in task.upstream}
    for task in tasks:
        for name in task.upstream:
            if name not in by_id:
                raise ScenarioError(f"task {task.id!r} reads {name!r}, which is no task.{nearest(name, by_id)}")
        if task.topic is not None and task.topic not in topics:
            raise ScenarioError(f"task {task.id!r} reads the topic {task.topic!r}.{nearest(task.topic, topics)}")
        restricted = task.priority is not None and task.min_accuracy is not None
        if restricted == (task.id in readers) or (task.priority is None) != (task.min_accuracy is None):
            raise ScenarioError(
                f"task {task.id!r}: priority and min_accuracy are set on exactly the tasks nobody reads"
            )
    try:
        order = list(TopologicalSorter({task.id: task.upstream for task in tasks}).static_order())
    except CycleError as error:
        raise ScenarioError(f"tasks read each other in a circle: {' -> '.join(error.args[1])}") from None
    rank = {name: i for i, name in enumerate(order)}
    return tuple(sorted(tasks, key=lambda task: rank[task.id]))


def _check(simulation: Simulation, fields: Fields) -> None:
    if not simulation.machines or not simulation.tasks:
        raise ScenarioError("a simulation needs at least one task manager and one task: add them")
    if simulation.policy not in policy_names():
        fields.refuse("policy", f"be one of {', '.join(policy_names())}")
    if simulation.step_s > simulation.period_s:
        fields.refuse("step_s", "not be longer than period_s")
    names = [machine.id for machine in simulation.machines]
    _once(names, "scenario.task_managers")
    applications = {task.application for task in simulation.tasks if task.application}
    instances = [f"{task.id}.{i + 1}" for task in simulation.tasks for i in range(task.parallelism)]
    for event in simulation.scenario.events:
        there = names if "task_manager" in event.action else applications
        if event.target not in there:
            raise ScenarioError(f"event {event.action} {event.target!r}: no such thing.{nearest(event.target, there)}")
    for i, fault in enumerate(simulation.faults):
        if fault.at_s > simulation.scenario.duration_s:
            end = simulation.scenario.duration_s
            raise ScenarioError(f"faults[{i}].at_s is {fault.at_s:g}: it must not lie after the end, second {end:g}")
        there = instances if fault.kind == "query-failure" else names
        if fault.target is not None and fault.target not in there:
            raise ScenarioError(f"fault {fault.kind} {fault.target!r}: no such thing.{nearest(fault.target, there)}")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
