"""The task managers and tasks of a simulation: what they have, what they cost, and their JSON form. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from qod_magics.data.fields import Fields, is_number
from qod_magics.errors import ScenarioError, nearest
from qod_magics.kafka.scenario import PiecewiseLinear

LOCAL = "local"

_MACHINE = (
    *("id", "cores", "planned_cores", "background", "cost"),
    *("kind", "memory_mb", "price", "off", "start_s", "standby"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """A task manager."""

    id: str
    cores: float = 1.0
    planned_cores: float | None = None  #: what the policy may plan with; None: 90 % of the cores
    background: PiecewiseLinear = field(default_factory=lambda: PiecewiseLinear.constant(0.0))  #: cores of others

    cost: float = 1.0  #: factor on the costs of tasks here
    kind: str = LOCAL  #: as `AddNode` names it
    memory_mb: float | None = None  #: for its instances; None: unknown
    price: float | None = None  #: per hour that it is up; None: unknown
    off: bool = False  #: not up at the start: an `AddNode` starts it
    start_s: float = 0.0  #: from an `AddNode` until it is up
    standby: bool = False  #: up at the start, but without instances until an `AddNode`, with which it joins at once

    @property
    def planned(self) -> float:
        """Its cores in a snapshot."""
        return 0.9 * self.cores if self.planned_cores is None else self.planned_cores

    @property
    def waits(self) -> bool:
        """Whether it joins with an `AddNode` only."""
        return self.off or self.standby

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, as in a simulation file."""
        points = [list(point) for point in self.background.points]
        usual = Machine("")
        more = (name for name in _MACHINE[5:] if getattr(self, name) != getattr(usual, name))
        return {
            "id": self.id,
            "cores": self.cores,
            "planned_cores": self.planned_cores,
            "background": points,
            "cost": self.cost,
            **{name: getattr(self, name) for name in more},
        }


def read_machine(value: Any, where: str) -> Machine:
    """Return the task manager of a JSON value; `where` names it in errors. Raises ScenarioError."""
    fields = Fields(value, where, _MACHINE)
    planned = value.get("planned_cores")
    machine = Machine(
        fields.text("id"),
        fields.number("cores", above=0) if "cores" in fields else 1.0,
        None if planned is None else fields.number("planned_cores", above=0),
        _curve(fields, "background"),
        fields.number("cost", above=0) if "cost" in fields else 1.0,
        fields.text("kind") if "kind" in fields else LOCAL,
        fields.number("memory_mb", above=0) if value.get("memory_mb") is not None else None,
        fields.number("price") if value.get("price") is not None else None,
        fields.flag("off", False),
        fields.number("start_s") if "start_s" in fields else 0.0,
        fields.flag("standby", False),
    )
    if machine.off and machine.standby:
        fields.refuse("standby", "be false for a task manager that is off: one that stands by is up")
    return machine


def check_kinds(machines: Iterable[Machine]) -> None:
    """Refuse a kind whose task managers differ, so that `AddNode` would not say what it starts. Raises
    ScenarioError."""
    first: dict[str, Machine] = {}
    for machine in machines:
        if not machine.waits:
            continue
        like = first.setdefault(machine.kind, machine)
        for name in ("cores", "planned", "memory_mb", "price"):
            if getattr(machine, name) != getattr(like, name):
                raise ScenarioError(
                    f"task managers {like.id!r} and {machine.id!r} of kind {machine.kind!r} differ in their "
                    f"{'planned_cores' if name == 'planned' else name}: give them different kinds"
                )


def _curve(fields: Fields, name: str) -> PiecewiseLinear:
    if name not in fields:
        return PiecewiseLinear.constant(0.0)
    value = fields.any(name)
    try:
        return PiecewiseLinear.constant(value) if is_number(value) else PiecewiseLinear.through(value)
    except (TypeError, ValueError, OverflowError):
        fields.refuse(name, "be a number or a list of [second, number]")


REALTIME, MICRO_BATCH = "real-time", "micro-batch"

_TASK = (
    *("id", "upstream", "topic", "priority", "min_accuracy", "parallelism", "shares", "application"),
    *("fixed", "overhead", "read_us", "work_us", "selectivity", "mode", "trigger_s", "latency_s", "keeps_weight"),
    *("max_parallelism", "stateful", "max_latency_s", "utility", "fusable", "hop_us"),
)
#: Fields for policies that scale or meet latency targets: in the JSON form only where they are given.
_INTENTS = frozenset({"max_parallelism", "stateful", "max_latency_s", "utility", "fusable", "hop_us"})


@dataclass(frozen=True, slots=True)
class SimulatedTask:
    """A task of the model and its costs."""

    id: str
    upstream: tuple[str, ...] = ()
    topic: str | None = None  #: of a source
    priority: int | None = None  #: queries only
    min_accuracy: float | None = None  #: queries only, fraction of 1
    parallelism: int = 1  #: instances at the start
    shares: tuple[float, ...] = ()  #: of its input, by partition; (): even
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
    #: partitions of each of its inputs, which a `Scale` assigns to its instances; None: as many as instances, fixed
    max_parallelism: int | None = None
    stateful: bool = False  #: whether it keeps state between batches
    max_latency_s: float | None = None  #: queries only: target of the 95th percentile
    utility: float | None = None  #: queries only: of meeting that target; None: the priority
    fusable: bool = False  #: whether it and the only task that it reads may run as one query
    #: part of the CPU for a row that it reads from a stream: encoding and writing, in its sender's `work_us`, and
    #: decoding, in its own, microseconds; with `read_us`, what is saved where both are one query
    hop_us: float = 0.0

    @property
    def partitions(self) -> int:
        """Partitions of each of its inputs: the most instances that it can have."""
        return self.parallelism if self.max_parallelism is None else self.max_parallelism

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, as in a simulation file."""
        found = {name: _plain(getattr(self, name)) for name in _TASK}
        return {name: value for name, value in found.items() if name not in _INTENTS or value not in (None, False)}


def read_task(value: Any, where: str) -> SimulatedTask:
    """Return the task of a JSON value; `where` names it in errors. Raises ScenarioError."""
    fields = Fields(value, where, _TASK)
    task = SimulatedTask(
        id=fields.text("id"),
        upstream=() if value.get("upstream") == [] else fields.names("upstream") or (),
        topic=fields.optional_text("topic"),
        priority=None if value.get("priority") is None else fields.whole("priority", at_least=-(2**31), default=0),
        min_accuracy=_optional(fields, "min_accuracy"),
        parallelism=fields.whole("parallelism", at_least=1, default=1),
        shares=() if value.get("shares") is None else tuple(fields.items("shares", "numbers")),
        application=fields.optional_text("application"),
        mode=fields.text("mode") if "mode" in fields else REALTIME,
        keeps_weight=fields.flag("keeps_weight", True),
        stateful=fields.flag("stateful", False),
        fusable=fields.flag("fusable", False),
        utility=_optional(fields, "utility"),
    )
    given: dict[str, Any] = {
        name: fields.number(name)
        for name in ("fixed", "overhead", "read_us", "work_us", "selectivity", "trigger_s", "latency_s", "hop_us")
        if name in fields
    }
    if value.get("max_parallelism") is not None:
        given["max_parallelism"] = fields.whole("max_parallelism", at_least=1, default=1)
    if value.get("max_latency_s") is not None:
        given["max_latency_s"] = fields.number("max_latency_s", above=0)
    task = replace(task, **given)
    _check(task, fields)
    return task


def _optional(fields: Fields, name: str) -> float | None:
    return None if name not in fields or fields.any(name) is None else fields.number(name)


def _check(task: SimulatedTask, fields: Fields) -> None:
    if ">" in task.id:
        fields.refuse("id", "have no >, which stands between the ends of a stream")
    if task.mode not in (REALTIME, MICRO_BATCH):
        fields.refuse("mode", f"be {REALTIME} or {MICRO_BATCH}")
    if (task.topic is None) == (not task.upstream):
        raise ScenarioError(f"{fields.where} must have a topic or upstream tasks, one of the two: {task.id!r} has not")
    if task.min_accuracy is not None and task.min_accuracy > 1:
        fields.refuse("min_accuracy", "lie between 0 and 1")
    if task.partitions < task.parallelism:
        fields.refuse("max_parallelism", f"not be below the parallelism, {task.parallelism}")
    if task.shares and (
        len(task.shares) != task.partitions
        or not all(is_number(share) and share >= 0 for share in task.shares)
        or abs(sum(task.shares) - 1) > 1e-9
    ):
        fields.refuse("shares", f"be {task.partitions} numbers of 0 or more whose sum is 1")


def joined(first: SimulatedTask, second: SimulatedTask) -> SimulatedTask:
    """Return two neighbours fused into one task, without the hop between them.

    A row is read once, and neither encoded nor decoded on its way. Fixed costs are the larger ones of the two.
    """
    inner_us = first.selectivity * (second.work_us - second.hop_us)
    return replace(
        second,
        upstream=first.upstream,
        topic=first.topic,
        shares=first.shares,
        fixed=max(first.fixed, second.fixed),
        overhead=max(first.overhead, second.overhead),
        read_us=first.read_us,
        work_us=max(first.work_us + inner_us, 0.0),
        hop_us=first.hop_us,
        selectivity=first.selectivity * second.selectivity,
        latency_s=first.latency_s,
        keeps_weight=first.keeps_weight and second.keeps_weight,
        stateful=first.stateful or second.stateful,
        fusable=first.fusable,
    )


def ordered(tasks: tuple[SimulatedTask, ...], topics: list[str]) -> tuple[SimulatedTask, ...]:
    """Return tasks in topological order. Raises ScenarioError for a cycle, or a name that does not exist."""
    by_id = {task.id: task for task in tasks}
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
        if task.id in readers and (task.max_latency_s is not None or task.utility is not None):
            raise ScenarioError(f"task {task.id!r}: max_latency_s and utility are set on tasks that nobody reads only")
    try:
        order = list(TopologicalSorter({task.id: task.upstream for task in tasks}).static_order())
    except CycleError as error:
        raise ScenarioError(
            f"tasks read each other in a circle: {' -> '.join(error.args[1])}", rule="no circle"
        ) from None
    rank = {name: i for i, name in enumerate(order)}
    return tuple(sorted(tasks, key=lambda task: rank[task.id]))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
