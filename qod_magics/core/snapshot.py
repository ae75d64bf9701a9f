"""The input of a policy: the cluster at one instant.

Accuracies are fractions of 1, CPU is % of one core (a busy core = 100), rates are rows/s.

The optional fields of a row are None where nobody measures them. Each has one owner, the policy that it was designed
for, and one meaning for all readers: `Measure` says which. A runtime that can measure a field sets it, a policy does
without it where it is None, no other code needs to know it. Keys of the JSON form that are not named here are kept in
`unknown`.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from operator import attrgetter, ne
from types import MappingProxyType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, get_args

from msgspec import Meta, Struct, structs
from msgspec.structs import fields

# --- Nodes ------------------------------------------------------------------------------------------------------------
# In the JSON of a snapshot, `node_states` and `spare_nodes`:
#
#     {"node_states": {"tm2": "standby", "tm3": "starting"},
#      "spare_nodes": [{"kind": "large", "count": 2, "cores": 4, "memory_mb": 12288, "price": 0.1168, "start_s": 12}]}


class NodeState(StrEnum):
    """The state of a task manager that is not simply up."""

    STARTING = "starting"  #: joins once it is warm
    PREPARING = "preparing"  #: stands by once it is warm
    STANDBY = "standby"  #: up and warm; hosts nothing
    LEAVING = "leaving"  #: its instances move to the others


class Spare(Struct, frozen=True, omit_defaults=True):
    """Task managers of one kind that an `AddNode` can start."""

    kind: str  #: as in `AddNode.kind`
    count: Annotated[int, Meta(ge=0)]  #: how many more of it
    cores: Annotated[float, Meta(ge=0)] = 1.0  #: of each, as plans would see it
    memory_mb: Annotated[float, Meta(ge=0)] | None = None  #: of each; None: unknown
    price: Annotated[float, Meta(ge=0)] | None = None  #: of each, per hour; None: unknown
    start_s: Annotated[float, Meta(ge=0)] = 0.0  #: until one is up, seconds; about 0 for one that stands by


# --- `replace` for dataclasses and structs, as `copy.replace` is from Python 3.13 on ----------------------------------

_Object = TypeVar("_Object")


def replace(obj: _Object, /, **changes: Any) -> _Object:
    """Return a copy of a dataclass or a struct with other values in these fields."""
    if isinstance(obj, Struct):
        return structs.replace(obj, **changes)
    return dataclasses.replace(obj, **changes)  # type: ignore[type-var]


# --- Columns and keys -------------------------------------------------------------------------------------------------

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def column(rows: Sequence[Any], name: str) -> Sequence[Any]:
    """Return the values of one field, row by row."""
    return list(map(attrgetter(name), rows))


class Keys(Generic[_Key]):
    """Keys in an order, each of them once."""

    def __init__(self, keys: Iterable[_Key]) -> None:
        self.all = tuple(keys)

    @cached_property
    def position(self) -> Mapping[_Key, int]:
        """Position of each key."""
        return {key: i for i, key in enumerate(self.all)}

    def mapping(self, values: Sequence[_Value]) -> dict[_Key, _Value]:
        """Return these values by key. Raises ValueError unless each key has one."""
        return dict(zip(self.all, values, strict=True))

    def values(self, mapping: Mapping[_Key, _Value]) -> list[_Value]:
        """Return the values of a mapping in the order of the keys. Raises KeyError for a missing key."""
        return [mapping[key] for key in self.all]


def differing(these: Sequence[object], those: Sequence[object]) -> list[int]:
    """Return indices where two sequences of equal length differ."""
    return list(itertools.compress(itertools.count(), map(ne, these, those)))


NOTHING: Mapping[str, Any] = MappingProxyType({})


def nothing() -> Mapping[str, Any]:
    """Return NOTHING, as a default factory: before Python 3.12 a dataclass takes a mapping proxy for a mutable
    default."""
    return NOTHING


#: Policies that fields were designed for.
_FITTED, _REACTIVE = "stream-economics-fitted", "stream-economics-reactive"
_HENGE, _STELA, _D_STORM, _AUTO, _NEPHELE, _DIRIGO = "henge", "stela", "d-storm", "auto", "nephele", "dirigo"

_LARGEST = sys.float_info.max  #: an optional number is finite

Window = tuple[float, float]  #: (begin, end), seconds since the epoch


def measure(unit: str, owner: str, meaning: str) -> Meta:
    """Describe an optional number >= 0 of a row: its unit, the policy that it was designed for, what it says."""
    return Meta(ge=0, le=_LARGEST, description=meaning, extra={"unit": unit, "owner": owner})


def count(unit: str, owner: str, meaning: str) -> Meta:
    """Describe an optional whole number >= 0 of a row, as `measure`."""
    return Meta(ge=0, description=meaning, extra={"unit": unit, "owner": owner})


class Row(Struct, frozen=True, omit_defaults=True, rename={"unknown": ""}):
    """A row of a snapshot."""


class TaskManager(Row, frozen=True):
    """A place where task instances run."""

    id: str
    cores: float  #: > 0; may be a fraction: the part of the machine to plan with
    cpu: float  #: CPU of *all* processes on its cores, % of one core
    kind: str | None = None  #: how it was started: "local", "connect" ...
    dials: str | None = None  #: how its queries read keep probabilities: "row", "batch" ...
    others_periods: int | None = None  #: cycles over which the CPU of other processes is averaged
    neighbours_cpu: Annotated[float, measure("% of one core", _FITTED, "CPU of other programs on its cores")] | None = (
        None
    )
    cpu_limit: (
        Annotated[float, measure("a ratio", _REACTIVE, "share of its cores that the user allows; `cores` are these")]
        | None
    ) = None
    memory_mb: Annotated[float, measure("MB", _D_STORM, "memory for its instances")] | None = None
    price: Annotated[float, measure("a price per hour", _D_STORM, "what it costs while it is up")] | None = None
    standby: Annotated[int, count("0 or 1", _AUTO, "1: up and warm, but no instance is placed there")] | None = None
    cost: Annotated[float, measure("a ratio", _FITTED, "CPU of its tasks / CPU by their cost estimates")] | None = None
    elastic_cpu: (
        Annotated[float, measure("% of one core", _FITTED, "CPU of micro-batches it can do without")] | None
    ) = None
    batch_s: Annotated[float, measure("s", _FITTED, "micro-batch interval that plans assume")] | None = None
    round_s: (
        Annotated[float, measure("s", _FITTED, "micro-batch interval back to back at accuracy 1, if it has one")] | None
    ) = None
    calm_s: (
        Annotated[float, measure("s", _FITTED, "micro-batch interval at which fixed costs leave some CPU idle")] | None
    ) = None
    open_s: Annotated[float, measure("s", _REACTIVE, "sheds nothing until its backlog exceeds this")] | None = None
    tolerated_s: Annotated[float, measure("s", _REACTIVE, "backlog that no drain takes, if beyond `open_s`")] | None = (
        None
    )
    trust: Annotated[float, measure("a ratio", _REACTIVE, "CPU to plan with / CPU available by costs")] | None = None
    interval_s: Annotated[float, measure("s", _REACTIVE, "micro-batch interval there, if beyond `batch_s`")] | None = (
        None
    )
    paced_s: Annotated[float, measure("s", _REACTIVE, "minimum interval of its micro-batches")] | None = None
    unknown: Mapping[str, Any] | None = None  #: other keys of its JSON object


class Task(Row, frozen=True):
    """A node of the application's DAG; a *query* is a task without downstream."""

    id: str
    upstream: tuple[str, ...]
    external_rate: float | None  #: sources: rows/s that the outside produces; None: unknown, or no source
    priority: int | None  #: queries only; higher wins
    min_accuracy: float | None  #: queries only, 0..1
    declared: (
        Annotated[int, count("a count", _FITTED, "how often it was declared with another recipe or input")] | None
    ) = None
    concurrency: (
        Annotated[int, count("partitions", _FITTED, "cores that each instance can use; absent: one")] | None
    ) = None
    max_parallelism: (
        Annotated[int, count("instances", _STELA, "maximum number of instances: its partitions")] | None
    ) = None
    #: streams within it that an `Unfuse` can name, "from>to", inputs first
    fused: tuple[str, ...] = ()
    #: those of `fused` at which it can't be unfused now
    inseparable: tuple[str, ...] = ()
    fusable: (
        Annotated[int, count("0 or 1", _AUTO, "1: by its declaration, it and its only input can be one query")] | None
    ) = None
    stateful: Annotated[int, count("0 or 1", _STELA, "1: it keeps state between batches")] | None = None
    divisible: (
        Annotated[int, count("0 or 1", _STELA, "1: its state can be assigned to another number of instances")] | None
    ) = None
    lends: Annotated[int, count("0 or 1", _DIRIGO, "1: several of its instances may count rows of one key")] | None = (
        None
    )
    max_latency_s: (
        Annotated[float, measure("s", _HENGE, "queries: target of the 95th percentile that the user set")] | None
    ) = None
    utility: (
        Annotated[float, measure("utility", _HENGE, "queries: utility of meeting the target; absent: the priority")]
        | None
    ) = None
    min_juice: (
        Annotated[float, measure("a ratio", _HENGE, "queries: share of the rows that arrive that it must process")]
        | None
    ) = None
    latency_p50_s: (
        Annotated[float, measure("s", _HENGE, "queries: median latency of the rows in its last results")] | None
    ) = None
    latency_p95_s: (
        Annotated[float, measure("s", _HENGE, "queries: 95th percentile of the latency of these rows")] | None
    ) = None
    oldest_s: (
        Annotated[float, measure("s", _HENGE, "queries: age of the oldest row not yet in a result; 0: none waits")]
        | None
    ) = None
    fixed_cpu: Annotated[float, measure("% of one core", _FITTED, "CPU of each idle instance, as learned")] | None = (
        None
    )
    read_us: Annotated[float, measure("microseconds", _FITTED, "CPU for each row read, as learned")] | None = None
    work_us: (
        Annotated[float, measure("microseconds", _FITTED, "CPU for each row kept beyond reading it, as learned")] | None
    ) = None
    selectivity: Annotated[float, measure("a ratio", _FITTED, "rows out for each row kept, as learned")] | None = None
    batch_time_s: (
        Annotated[float, measure("s", _REACTIVE, "time in which the tasks of a batch without rows run, as learned")]
        | None
    ) = None
    read_time_us: Annotated[float, measure("microseconds", _REACTIVE, "the same for each row read")] | None = None
    work_time_us: (
        Annotated[float, measure("microseconds", _REACTIVE, "the same for each row kept, beyond reading it")] | None
    ) = None
    keeps_up: (
        Annotated[float, measure("a ratio", _REACTIVE, "accuracy that its batches carry, limited by other than CPU")]
        | None
    ) = None
    unknown: Mapping[str, Any] | None = None  #: other keys of its JSON object

    @property
    def keeps_instances(self) -> bool:
        """Return whether it keeps state that can't be assigned to another number of instances."""
        return bool(self.stateful) and not self.divisible


class Stream(Row, frozen=True, rename={"source": "from", "target": "to", "unknown": ""}):
    """An edge of the DAG."""

    source: str  #: key "from" in JSON
    target: str  #: key "to" in JSON
    out_rate: float  #: rows/s *before* the shedder of this stream
    bytes_per_s: Annotated[float, measure("bytes/s", _D_STORM, "size of the rows that it carries")] | None = None
    unknown: Mapping[str, Any] | None = None  #: other keys of its JSON object


class Instance(Row, frozen=True):
    """One parallel instance of a task: a running query over its share of the partitions."""

    id: str
    task: str
    task_manager: str
    in_rate: float  #: rows/s *after* the shedder
    cpu: float  #: % of one core
    warming_up: bool
    state: str | None = None  #: "running", "moving" ...; see `Freshness`
    mode: str | None = None  #: "real-time" or "micro-batch"
    batches_per_s: Annotated[float, measure("batches/s", _FITTED, "micro-batches; absent in real-time mode")] | None = (
        None
    )
    batch_interval_s: (
        Annotated[float, measure("s", _NEPHELE, "from one micro-batch to the next; 0: none; absent in real-time mode")]
        | None
    ) = None
    eviction_cpu: (
        Annotated[float, measure("% of one core", _FITTED, "CPU of searching state for expired rows")] | None
    ) = None
    trigger_s: Annotated[float, measure("s", _FITTED, "trigger interval that the user asked for")] | None = None
    python_cpu: float | None = None  #: part of `cpu` that its Python workers take, % of one core
    window: Window | None = None  #: when its metrics were measured
    stale: bool = False  #: its metrics are of an earlier time, or of earlier input
    age_s: float | None = None  #: of stale metrics, s
    missing: tuple[str, ...] = ()  #: names of metrics never measured
    waiting: Annotated[int, count("rows", _STELA, "rows of its partitions that it has not read")] | None = None
    arrival_rate: Annotated[float, measure("rows/s", _DIRIGO, "rows that reach its partitions of a stream")] | None = (
        None
    )
    busy: (
        Annotated[float, measure("a ratio", _HENGE, "share of the time at work: batch time / time; CPU in real time")]
        | None
    ) = None
    at_work: (
        Annotated[float, measure("a ratio", _REACTIVE, "share of the time in which tasks of its micro-batches run")]
        | None
    ) = None
    memory_mb: Annotated[float, measure("MB", _D_STORM, "memory that it takes")] | None = None
    rests_s: Annotated[float, measure("s", _REACTIVE, "time left of its cool-down after a start or move")] | None = None
    unknown: Mapping[str, Any] | None = None  #: other keys of its JSON object


class Snapshot(Struct, frozen=True, omit_defaults=True, dict=True, rename={"unknown": ""}):
    """The state of the cluster as the controller measured it at one instant."""

    task_managers: Sequence[TaskManager]
    tasks: Sequence[Task]
    streams: Sequence[Stream]
    instances: Sequence[Instance]
    #: when it was measured, seconds of a clock monotonic within a recording; None: unknown, as in older recordings
    at_s: float | None = None
    #: task managers that could be started, by kind; None: the cluster can start and release none
    spare_nodes: tuple[Spare, ...] | None = None
    #: by task manager that is not simply up. Of these, only one that leaves is among `task_managers`, too
    node_states: Mapping[str, NodeState] = {}
    paused: bool = False  #: plans are recommended and not applied
    #: task managers that are to leave: their ids, or their number
    leaving: tuple[str, ...] | Annotated[int, Meta(ge=0)] = 0
    henge: Mapping[str, Any] | None = None  #: what the policy Henge knew before its decision
    unknown: Mapping[str, Any] | None = None  #: other keys of its JSON object

    @cached_property
    def downstream(self) -> Mapping[str, tuple[str, ...]]:
        """Direct consumers of each task, in input order; () marks a query."""
        down: dict[str, list[str]] = {task.id: [] for task in self.tasks}
        for task in self.tasks:
            for upstream in task.upstream:
                down[upstream].append(task.id)
        return {task: tuple(consumers) for task, consumers in down.items()}

    @property
    def spares(self) -> tuple[Spare, ...]:
        """Return the kinds of task managers that could be started, () if none."""
        return self.spare_nodes or ()

    @property
    def is_elastic(self) -> bool:
        """Return whether its cluster can start and release task managers, though perhaps no further one now."""
        return self.spare_nodes is not None

    @cached_property
    def _derived(self) -> dict[str, Any]:
        return {}

    def derived(self, key: str, make: Callable[[], _Value]) -> _Value:
        """Return a value computed from this snapshot alone, cached under `key`."""
        found = self._derived
        if key not in found:
            found[key] = make()
        value: _Value = found[key]
        return value


class Measure(NamedTuple):
    """An optional number of a row, as documents list it."""

    table: str  #: of the snapshot
    name: str
    unit: str
    owner: str  #: the policy that it was designed for
    meaning: str


#: The rows of each table.
TABLES: Mapping[str, type[Row]] = {
    "task_managers": TaskManager,
    "tasks": Task,
    "streams": Stream,
    "instances": Instance,
}


def measures() -> tuple[Measure, ...]:
    """Return all optional numbers of a snapshot's rows."""
    found = []
    for table, kind in TABLES.items():
        for field in fields(kind):
            for meta in (each for part in get_args(field.type) for each in get_args(part) if isinstance(each, Meta)):
                extra = meta.extra or {}
                found.append(Measure(table, field.name, extra["unit"], extra["owner"], meta.description or ""))
    return tuple(found)


# --- States and freshness of instances --------------------------------------------------------------------------------

BACKING_OFF, GIVEN_UP = "backing off", "given up"  #: states of an instance whose query has failed
SUSPENDED = "suspended"  #: state of an instance that a plan has stopped


@dataclass(frozen=True, slots=True)
class Freshness:
    """How far the metrics of an instance can be relied on."""

    window: Window | None = None  #: None: the runtime does not say
    stale: bool = False
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, instance: Instance) -> Freshness:
        """Return the freshness of an instance by its row."""
        return cls(instance.window, instance.stale, instance.missing)

    @property
    def is_fresh(self) -> bool:
        """Return whether all metrics are current."""
        return not self.stale and not self.missing


def is_moving(instance: Instance) -> bool:
    """Return whether it is moving; until it arrives, it is listed on its old task manager."""
    return instance.state == "moving"


def is_down(instance: Instance) -> bool:
    """Return whether its query does not run now for another reason than a change: it has failed and starts again after
    a back-off, was given up, or a plan has stopped it."""
    return instance.state in (BACKING_OFF, GIVEN_UP, SUSPENDED)


def is_given_up(instance: Instance) -> bool:
    """Return whether its query has failed too often and starts again only when asked to."""
    return instance.state == GIVEN_UP


def is_suspended(instance: Instance) -> bool:
    """Return whether a plan has stopped it: its state and its rows wait until it has a place."""
    return instance.state == SUSPENDED


#: States in which an instance uses nothing and runs only once asked to: it was given up, or a plan has stopped it.
OUT = frozenset({GIVEN_UP, SUSPENDED})


def is_out(instance: Instance) -> bool:
    """Return whether it uses nothing and runs only once asked to: see `OUT`."""
    return instance.state in OUT


def is_running(instance: Instance) -> bool:
    """Return whether it runs, as far as the runtime says: one that starts, moves or has failed is not moved or
    fused."""
    return instance.state in (None, "running")
