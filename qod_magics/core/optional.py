"""The optional fields of snapshots and plans: what a policy beyond Stream Economics may know and ask for.

A field is a key of a row's JSON object (its `extra` here), absent where nobody measures it. Each has one owner, the
policy that it was shaped for, and one meaning, whoever else reads it. A runtime that can measure a field adds it; a
policy reads it with `Field.of` and goes on without where it is None. Nothing else has to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Protocol

from qod_magics.core.wording import show
from qod_magics.errors import SnapshotError


class Row(Protocol):
    """A row of a snapshot: a task manager, a task, a stream or an instance."""

    @property
    def extra(self) -> Mapping[str, Any]:
        """What its JSON object has beside the fields of the format."""
        ...


@dataclass(frozen=True, slots=True)
class Field:
    """A number >= 0 that a row may have."""

    table: str  #: of the snapshot
    name: str
    unit: str
    owner: str  #: the policy that it was shaped for
    meaning: str

    def of(self, row: Row) -> float | None:
        """The row's value, None where it has none. Raises SnapshotError, one line, for what is no such number."""
        value = row.extra.get(self.name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
            raise SnapshotError(f"{self.table}.{self.name}: {show(value)} is not a number >= 0; give {self.unit}")
        return float(value)


@dataclass(frozen=True, slots=True)
class Request:
    """A key that a plan may have."""

    name: str
    shape: str
    owner: str
    meaning: str


_FITTED, _DRAINED = "stream-economics-fitted", "stream-economics-drained"
_REACTIVE = "stream-economics-reactive"

NODE_MEMORY = Field("task_managers", "memory_mb", "MB", "d-storm", "memory that the scheduler may give out, Wm(k)")
TASK_MEMORY = Field("instances", "memory_mb", "MB", "d-storm", "memory that the instance uses, wm(i)")
TRAFFIC = Field("streams", "bytes_rate", "bytes/s", "d-storm", "what the stream carries over the network")
TASK_LATENCY = Field("tasks", "latency_s", "s", "nephele-streaming", "mean time from a row's reading to its sending")
CHANNEL_LATENCY = Field("streams", "latency_s", "s", "nephele-streaming", "mean time from sending to reading, cl(e)")
BUFFER_SIZE = Field("streams", "buffer_bytes", "bytes", "nephele-streaming", "output buffer size, obs(e)")
BUFFER_LIFETIME = Field("streams", "buffer_lifetime_s", "s", "nephele-streaming", "mean life of a buffer, oblt(e)")
CAPACITY = Field("tasks", "capacity", "rows/s", "stela", "what the task's instances could process at the most")
LATENCY_SLO = Field("tasks", "latency_slo_s", "s", "henge", "greatest end-to-end latency that a query's user accepts")
JUICE_SLO = Field("tasks", "juice_slo", "a fraction of 1", "henge", "least share of the input that has to be processed")
UTILITY = Field("tasks", "utility", "utility", "henge", "what meeting a query's SLO is worth, U")
NODE_COST = Field("task_managers", "cost", "a ratio", _FITTED, "CPU of its tasks by what their costs say, as learned")
FIXED_CPU = Field("tasks", "fixed_cpu", "% of one core", _FITTED, "CPU of each instance without a row, as learned")
READ_COST = Field("tasks", "read_us", "microseconds", _FITTED, "CPU for each row read, as learned")
WORK_COST = Field("tasks", "work_us", "microseconds", _FITTED, "CPU for each row kept beyond reading it, as learned")
SELECTIVITY = Field("tasks", "selectivity", "a ratio", _FITTED, "rows out for each row kept, as learned")
BATCH_RATE = Field("instances", "batches_per_s", "batches/s", _FITTED, "micro-batches; absent in real-time mode")
TRIGGER = Field("instances", "trigger_s", "s", _FITTED, "time between micro-batches that the user asked for")
ELASTIC_CPU = Field("task_managers", "elastic_cpu", "% of one core", _FITTED, "CPU of batches that could be fewer")
BATCH_TIME = Field("task_managers", "batch_s", "s", _FITTED, "time between micro-batches that plans count on")
TRUST = Field("task_managers", "trust", "a ratio", _REACTIVE, "CPU to plan with by the CPU that costs say there is")
OPEN = Field("task_managers", "open_s", "s", _REACTIVE, "sheds nothing before this much of its input waits")
PACED = Field("task_managers", "paced_s", "s", _REACTIVE, "its micro-batches begin no sooner after one another")
RESTS = Field("instances", "rests_s", "s", _REACTIVE, "stays where it is for this long: it has just moved")
SOURCE_LAG = Field("tasks", "lag_s", "s", _DRAINED, "input of now that waits in a source's topic and is to be drained")
STREAM_LAG = Field("streams", "lag_s", "s", _DRAINED, "input of now that waits on the stream and is to be drained")

FIELDS = (
    *(NODE_MEMORY, TASK_MEMORY, TRAFFIC),
    *(TASK_LATENCY, CHANNEL_LATENCY, BUFFER_SIZE, BUFFER_LIFETIME),
    *(CAPACITY, LATENCY_SLO, JUICE_SLO, UTILITY),
    *(NODE_COST, FIXED_CPU, READ_COST, WORK_COST, SELECTIVITY),
    *(BATCH_RATE, TRIGGER, ELASTIC_CPU, BATCH_TIME, TRUST, OPEN, PACED, RESTS),
    *(SOURCE_LAG, STREAM_LAG),
)

PARALLELISM = Request("parallelism", "{task: instances}", "stela", "scale these tasks out or in")
ADD = Request("add_task_managers", "number", "stela", "start so many more task managers")
RELEASE = Request("release_task_managers", "[task manager]", "d-storm", "empty these and let them go")
FUSE = Request("fuse", "[[task, task, ...]]", "nephele-streaming", "run each of these chains as one task")
BUFFERS = Request("buffer_bytes", '{"from>to": bytes}', "nephele-streaming", "output buffer sizes")
BATCH = Request("batch_s", "{task: seconds}", "nephele-streaming", "length of the task's batches")
DRAIN = Request("drain_s", "seconds", _DRAINED, "backlogs are part of the plan and gone by then; thin no more for them")
REACT = Request(
    *("react_above", "a ratio", _REACTIVE),
    "decide at once when a source brings more than so many times the rate planned with",
)

BACKLOG = Request(
    *("backlog_s", "[seconds, seconds]", _REACTIVE),
    "thin a backlog once it is more than the second of these, in seconds of input, down to the first",
)

PACE = Request(
    *("pace_s", "{task manager: seconds}", _REACTIVE),
    "the micro-batches of each query there begin at least so long after one another",
)

REQUESTS = (PARALLELISM, ADD, RELEASE, FUSE, BUFFERS, BATCH, DRAIN, REACT, BACKLOG, PACE)
