"""The tasks of a simulation: what they cost, and how their JSON form is read. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from qod_magics.data.fields import Fields, is_number
from qod_magics.errors import ScenarioError, nearest

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
    #: partitions of each of its inputs, which a `Scale` deals to its instances; None: as many as instances, fixed
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
        """The JSON form, as in a simulation file."""
        found = {name: _plain(getattr(self, name)) for name in _TASK}
        return {name: value for name, value in found.items() if name not in _INTENTS or value not in (None, False)}


def read_task(value: Any, where: str) -> SimulatedTask:
    """The task of a JSON value; `where` names it in errors. Raises ScenarioError."""
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
    """Two neighbours as one task, without the hop between them: a row is read once, and neither encoded nor decoded on
    its way. One query has the fixed costs of one, the larger ones of both."""
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
    """Tasks in topological order. Raises ScenarioError for a cycle, or a name that does not exist."""
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
        raise ScenarioError(f"tasks read each other in a circle: {' -> '.join(error.args[1])}") from None
    rank = {name: i for i, name in enumerate(order)}
    return tuple(sorted(tasks, key=lambda task: rank[task.id]))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
