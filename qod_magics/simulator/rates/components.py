"""The task managers and tasks of a simulation: what they have, what they cost, and their JSON form. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal

from msgspec import field
from msgspec.structs import replace

from qod_magics.data.forms import Count, Form, Name, NotNegative, Positive, plain, refuse
from qod_magics.errors import ScenarioError, nearest
from qod_magics.kafka.scenario import PiecewiseLinear

LOCAL = "local"


class Machine(Form, frozen=True):
    """A task manager."""

    id: Name
    cores: Positive = 1.0
    planned_cores: Positive | None = None  #: what the policy may plan with; None: 90 % of the cores
    background: PiecewiseLinear = field(default_factory=lambda: PiecewiseLinear.constant(0.0))  #: cores of others
    cost: Positive = 1.0  #: factor on the costs of tasks here
    kind: Name = LOCAL  #: as `AddNode` names it
    memory_mb: Positive | None = None  #: for its instances; None: unknown
    price: NotNegative | None = None  #: per hour that it is up; None: unknown
    off: bool = False  #: not up at the start: an `AddNode` starts it
    start_s: NotNegative = 0.0  #: from an `AddNode` until it is up
    standby: bool = False  #: up at the start, but without instances until an `AddNode`, with which it joins at once

    @property
    def planned(self) -> float:
        """Return its cores in a snapshot."""
        return 0.9 * self.cores if self.planned_cores is None else self.planned_cores

    @property
    def waits(self) -> bool:
        """Return whether it joins with an `AddNode` only."""
        return self.off or self.standby

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, as in a simulation file."""
        found, usual = plain(self) | {"background": self.background.to_json()}, Machine("")
        return {name: value for name, value in found.items() if name in _MACHINE or value != getattr(usual, name)}


#: The fields of a task manager that its JSON form always has.
_MACHINE = frozenset({"id", "cores", "planned_cores", "background", "cost"})


def check_machine(machine: Machine, where: str) -> None:
    """Raise ScenarioError, which names the field, for values that do not fit each other."""
    if machine.off and machine.standby:
        raise refuse(machine, where, "standby", "be false for a task manager that is off", "one that stands by is up")


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
                    f"{'planned_cores' if name == 'planned' else name}: give them different kinds",
                    name=machine.id,
                    rule="of one kind",
                )


REALTIME: Literal["real-time"] = "real-time"
MICRO_BATCH: Literal["micro-batch"] = "micro-batch"

#: Fields for policies that scale or meet latency targets: in the JSON form only where they are given.
_INTENTS = frozenset({"max_parallelism", "stateful", "divisible", "max_latency_s", "utility", "fusable", "hop_us"})


class SimulatedTask(Form, frozen=True):
    """A task of the model and its costs."""

    id: Name
    upstream: tuple[Name, ...] = ()
    topic: Name | None = None  #: of a source
    priority: int | None = None  #: queries only
    min_accuracy: NotNegative | None = None  #: queries only, fraction of 1
    parallelism: Count = 1  #: instances at the start
    shares: tuple[NotNegative, ...] = ()  #: of its input, by partition; (): even
    application: Name | None = None  #: an event starts it; None: there from the start
    fixed: NotNegative = 0.02  #: cores that each instance uses without a row
    overhead: NotNegative = 0.03  #: cores that its task manager uses in addition for each instance (planning, commits)
    read_us: NotNegative = 10.0  #: CPU for each row read, microseconds
    work_us: NotNegative = 100.0  #: CPU for each row that its shedders keep, microseconds, on top
    selectivity: NotNegative = 1.0  #: rows out for each row kept
    mode: Literal["real-time", "micro-batch"] = REALTIME
    trigger_s: NotNegative = 1.0  #: between the starts of micro-batches
    latency_s: NotNegative = 0.0  #: until a row sent to it can be read (one step at least on a stream)
    keeps_weight: bool = True  #: whether the rows it sends keep their sampling weight
    #: partitions of each of its inputs, which a `Scale` assigns to its instances; None: as many as instances, fixed
    max_parallelism: Count | None = None
    stateful: bool = False  #: whether it keeps state between batches
    divisible: bool = False  #: whether its state belongs to the key by which its rows are sent: a `Scale` may assign it
    max_latency_s: Positive | None = None  #: queries only: target of the 95th percentile
    utility: NotNegative | None = None  #: queries only: of meeting that target; None: the priority
    fusable: bool = False  #: whether it and the only task that it reads may run as one query
    #: part of the CPU for a row that it reads from a stream: encoding and writing, in its sender's `work_us`, and
    #: decoding, in its own, microseconds; with `read_us`, what is saved where both are one query
    hop_us: NotNegative = 0.0

    @property
    def partitions(self) -> int:
        """Partitions of each of its inputs: the most instances that it can have."""
        return self.parallelism if self.max_parallelism is None else self.max_parallelism

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, as in a simulation file."""
        return {
            name: value
            for name, value in plain(self).items()
            if name not in _INTENTS or not (value is None or value is False)
        }


def check_task(task: SimulatedTask, where: str) -> None:
    """Raise ScenarioError, which names the field, for values that do not fit each other."""
    if ">" in task.id:
        raise refuse(task, where, "id", "have no >, which stands between the ends of a stream")
    if len(set(task.upstream)) < len(task.upstream):
        raise refuse(task, where, "upstream", "be a list of different names")
    if (task.topic is None) == (not task.upstream):
        raise ScenarioError(
            f"{where} must have a topic or upstream tasks, one of the two: {task.id!r} has not",
            name=where,
            rule="one input",
        )
    if task.min_accuracy is not None and task.min_accuracy > 1:
        raise refuse(task, where, "min_accuracy", "lie between 0 and 1")
    if task.partitions < task.parallelism:
        raise refuse(task, where, "max_parallelism", f"not be below the parallelism, {task.parallelism}")
    if task.shares and (len(task.shares) != task.partitions or abs(sum(task.shares) - 1) > 1e-9):
        raise refuse(task, where, "shares", f"be {task.partitions} numbers of 0 or more whose sum is 1")


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
        divisible=first.divisible and not second.stateful,
        fusable=first.fusable,
    )


def ordered(tasks: tuple[SimulatedTask, ...], topics: list[str]) -> tuple[SimulatedTask, ...]:
    """Return tasks in topological order. Raises ScenarioError for a cycle, or a name that does not exist."""
    by_id = {task.id: task for task in tasks}
    readers = {name for task in tasks for name in task.upstream}
    for task in tasks:
        for name in task.upstream:
            if name not in by_id:
                raise ScenarioError(
                    f"task {task.id!r} reads {name!r}, which is no task.{nearest(name, by_id)}",
                    name=name,
                    rule="exists",
                )
        if task.topic is not None and task.topic not in topics:
            raise ScenarioError(
                f"task {task.id!r} reads the topic {task.topic!r}.{nearest(task.topic, topics)}",
                name=task.topic,
                rule="exists",
            )
        restricted = task.priority is not None and task.min_accuracy is not None
        if restricted == (task.id in readers) or (task.priority is None) != (task.min_accuracy is None):
            raise ScenarioError(
                f"task {task.id!r}: priority and min_accuracy are set on exactly the tasks nobody reads",
                name=task.id,
                rule="of a query",
            )
        if task.id in readers and (task.max_latency_s is not None or task.utility is not None):
            raise ScenarioError(
                f"task {task.id!r}: max_latency_s and utility are set on tasks that nobody reads only",
                name=task.id,
                rule="of a query",
            )
    try:
        order = list(TopologicalSorter({task.id: task.upstream for task in tasks}).static_order())
    except CycleError as error:
        raise ScenarioError(
            f"tasks read each other in a circle: {' -> '.join(error.args[1])}", rule="no circle"
        ) from None
    rank = {name: i for i, name in enumerate(order)}
    return tuple(sorted(tasks, key=lambda task: rank[task.id]))
