"""The optional fields of snapshots and plans: inputs and requests of policies beyond the paper's.

A field is a key of a row's JSON object (its `extra` here), absent where nobody measures it. Each has one owner, the
policy it was designed for, and one meaning for all readers. A runtime that can measure a field adds it; a policy reads
it with `Field.of` and does without it where it is None. No other code needs to know it.

`Freshness` says when an instance's metrics were measured. A runtime writes these keys into an instance's row: `window`
([begin, end], seconds since the epoch), `stale` (true: of an earlier time, or of earlier input), `missing` (names of
metrics never measured), `state` ("running", "moving" ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Protocol

from qod_magics.core.snapshot import Instance
from qod_magics.core.wording import show
from qod_magics.errors import SnapshotError


class Row(Protocol):
    """A row of a snapshot: a task manager, a task, a stream or an instance."""

    @property
    def extra(self) -> Mapping[str, Any]:
        """Keys of its JSON object beyond the fields of the format."""
        ...


@dataclass(frozen=True, slots=True)
class Field:
    """A number >= 0 that a row may have."""

    table: str  #: of the snapshot
    name: str
    unit: str
    owner: str  #: the policy it was designed for
    meaning: str

    def of(self, row: Row) -> float | None:
        """Return the row's value, None if absent. Raises a one-line SnapshotError unless it is a number >= 0."""
        value = row.extra.get(self.name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
            raise SnapshotError(f"{self.table}.{self.name}: {show(value)} is not a number >= 0; give {self.unit}")
        return float(value)


@dataclass(frozen=True, slots=True)
class PlanKey:
    """A key that a plan may have."""

    name: str
    shape: str
    owner: str
    meaning: str


_FITTED, _REACTIVE = "stream-economics-fitted", "stream-economics-reactive"

NODE_COST = Field("task_managers", "cost", "a ratio", _FITTED, "CPU of its tasks / CPU by their cost estimates")
FIXED_CPU = Field("tasks", "fixed_cpu", "% of one core", _FITTED, "CPU of each idle instance, as learned")
READ_COST = Field("tasks", "read_us", "microseconds", _FITTED, "CPU for each row read, as learned")
WORK_COST = Field("tasks", "work_us", "microseconds", _FITTED, "CPU for each row kept beyond reading it, as learned")
SELECTIVITY = Field("tasks", "selectivity", "a ratio", _FITTED, "rows out for each row kept, as learned")
DECLARED = Field("tasks", "declared", "a count", _FITTED, "how often it was declared with another recipe or input")
CONCURRENCY = Field("tasks", "concurrency", "partitions", _FITTED, "cores that each instance can use; absent: one")
BATCH_RATE = Field("instances", "batches_per_s", "batches/s", _FITTED, "micro-batches; absent in real-time mode")
EVICTION = Field("instances", "eviction_cpu", "% of one core", _FITTED, "CPU of searching state for expired rows")
TRIGGER = Field("instances", "trigger_s", "s", _FITTED, "trigger interval that the user asked for")
ELASTIC_CPU = Field("task_managers", "elastic_cpu", "% of one core", _FITTED, "CPU of micro-batches it can do without")
BATCH_TIME = Field("task_managers", "batch_s", "s", _FITTED, "micro-batch interval that plans assume")
ROUND = Field(
    "task_managers", "round_s", "s", _FITTED, "micro-batch interval back to back at accuracy 1, if it has one"
)
INTERVAL = Field("task_managers", "interval_s", "s", _REACTIVE, "micro-batch interval there, if beyond `batch_s`")
TRUST = Field("task_managers", "trust", "a ratio", _REACTIVE, "CPU to plan with / CPU available by costs")
OPEN = Field("task_managers", "open_s", "s", _REACTIVE, "sheds nothing until its backlog exceeds this")
TOLERATED = Field("task_managers", "tolerated_s", "s", _REACTIVE, "backlog that no drain takes, if beyond `open_s`")
NEIGHBOURS = Field("task_managers", "neighbours_cpu", "% of one core", _FITTED, "CPU of other programs on its cores")
LIMIT = Field(
    "task_managers", "cpu_limit", "a ratio", _REACTIVE, "share of its cores that the user allows; `cores` are these"
)
PACED = Field("task_managers", "paced_s", "s", _REACTIVE, "minimum interval of its micro-batches")
RESTS = Field("instances", "rests_s", "s", _REACTIVE, "time left of its cool-down after a start or move")

_HENGE, _STELA, _D_STORM, _AUTO = "henge", "stela", "d-storm", "auto"

LATENCY_P50 = Field("tasks", "latency_p50_s", "s", _HENGE, "queries: median latency of the rows in its last results")
LATENCY_P95 = Field("tasks", "latency_p95_s", "s", _HENGE, "queries: 95th percentile of the same")
OLDEST = Field("tasks", "oldest_s", "s", _HENGE, "queries: age of the oldest row not yet in a result; 0: none waits")
MAX_LATENCY = Field("tasks", "max_latency_s", "s", _HENGE, "queries: target of the 95th percentile that the user set")
UTILITY = Field("tasks", "utility", "utility", _HENGE, "queries: utility of meeting the target; absent: the priority")
MAX_PARALLELISM = Field("tasks", "max_parallelism", "instances", _STELA, "maximum number of instances: its partitions")
STATEFUL = Field("tasks", "stateful", "0 or 1", _STELA, "1: it keeps state between batches")
FUSABLE = Field("tasks", "fusable", "0 or 1", _AUTO, "1: by its declaration, it and its only input can be one query")
WAITING = Field("instances", "waiting", "rows", _STELA, "rows of its partitions that it has not read")
BUSY = Field("instances", "busy", "a ratio", _HENGE, "share of the time at work: batch time / time; CPU in real time")
INSTANCE_MEMORY = Field("instances", "memory_mb", "MB", _D_STORM, "memory that it takes")
BYTES = Field("streams", "bytes_per_s", "bytes/s", _D_STORM, "size of the rows that it carries")
MEMORY = Field("task_managers", "memory_mb", "MB", _D_STORM, "memory for its instances")
PRICE = Field("task_managers", "price", "a price per hour", _D_STORM, "what it costs while it is up")
STANDBY = Field("task_managers", "standby", "0 or 1", _AUTO, "1: up and warm, but no instance is placed there")

FIELDS = (
    *(NODE_COST, FIXED_CPU, READ_COST, WORK_COST, SELECTIVITY, DECLARED, CONCURRENCY),
    *(
        BATCH_RATE,
        EVICTION,
        TRIGGER,
        ELASTIC_CPU,
        BATCH_TIME,
        ROUND,
        INTERVAL,
        TRUST,
        OPEN,
        TOLERATED,
        NEIGHBOURS,
        LIMIT,
        PACED,
        RESTS,
    ),
    *(LATENCY_P50, LATENCY_P95, OLDEST, MAX_LATENCY, UTILITY, MAX_PARALLELISM, STATEFUL, FUSABLE, WAITING, BUSY),
    *(INSTANCE_MEMORY, BYTES, MEMORY, PRICE, STANDBY),
)

#: A key of snapshots: true while plans are recommended and not applied.
PAUSED = "paused"

REACT = PlanKey(
    *("react_above", "a ratio", _REACTIVE),
    "replan early when the input rate of a source exceeds this multiple of the planned rate, or falls far below it",
)

BACKLOG = PlanKey(
    *("backlog_s", "[seconds, seconds], or an object of these by task", _REACTIVE),
    "thin a backlog that exceeds the second of these, in seconds of input, down to the first",
)

PACE = PlanKey(
    *("pace_s", "{task manager: seconds}", _REACTIVE),
    "minimum interval between micro-batches of each query there",
)

STAGES = PlanKey("stages", "{stage: text}", _AUTO, "what each stage of the policy does, or why it does nothing")

REQUESTS = (REACT, BACKLOG, PACE, STAGES)


def stage_notes(plan: Row) -> Mapping[str, str]:
    """Return what each stage does by a plan, in words; empty without stages. Raises a one-line SnapshotError for other
    than text."""
    notes = plan.extra.get(STAGES.name, {})
    if not isinstance(notes, Mapping) or not all(isinstance(words, str) for words in notes.values()):
        raise SnapshotError(f"plan.{STAGES.name}: {show(notes)} is not an object of texts; give {STAGES.shape}")
    return notes


BACKING_OFF, GIVEN_UP = "backing off", "given up"  #: states of an instance whose query has failed

Window = tuple[float, float]  #: (begin, end), seconds since the epoch


@dataclass(frozen=True, slots=True)
class Freshness:
    """How far the metrics of an instance can be relied on."""

    window: Window | None = None  #: None: the runtime does not say
    stale: bool = False
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, instance: Instance) -> Freshness:
        """Return the freshness of an instance by its row. Raises a one-line SnapshotError for an invalid window."""
        extra = instance.extra
        return cls(window_of(instance), bool(extra.get("stale")), tuple(extra.get("missing") or ()))

    @property
    def is_fresh(self) -> bool:
        """Whether all metrics are current."""
        return not self.stale and not self.missing


def is_moving(instance: Instance) -> bool:
    """Return whether it is moving; until it arrives, it is listed on its old task manager."""
    return instance.extra.get("state") == "moving"


def has_failed(instance: Instance) -> bool:
    """Return whether its query has failed and does not run now: it starts again after a back-off, or was given up."""
    return instance.extra.get("state") in (BACKING_OFF, GIVEN_UP)


def is_given_up(instance: Instance) -> bool:
    """Return whether its query has failed too often and starts again only when asked to."""
    return instance.extra.get("state") == GIVEN_UP


def is_running(instance: Instance) -> bool:
    """Return whether it runs, as far as the runtime says: one that starts, moves or has failed is not moved or
    fused."""
    return instance.extra.get("state") in (None, "running")


def window_of(instance: Instance) -> Window | None:
    """Return the time window of an instance's metrics. Raises a one-line SnapshotError for an invalid one."""
    window: Any = instance.extra.get("window")
    if window is None:
        return None
    try:
        begin, end = window
        return float(begin), float(end)
    except (TypeError, ValueError):
        raise SnapshotError(
            f"instances.window: {show(window)} is no window; give [begin, end] in seconds since the epoch"
        ) from None
