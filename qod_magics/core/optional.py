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
class PlanKey:
    """A key that a plan may have."""

    name: str
    shape: str
    owner: str
    meaning: str


_FITTED, _REACTIVE = "stream-economics-fitted", "stream-economics-reactive"

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

FIELDS = (
    *(NODE_COST, FIXED_CPU, READ_COST, WORK_COST, SELECTIVITY),
    *(BATCH_RATE, TRIGGER, ELASTIC_CPU, BATCH_TIME, TRUST, OPEN, PACED, RESTS),
)

REACT = PlanKey(
    *("react_above", "a ratio", _REACTIVE),
    "replan early when the input rate of a source exceeds this multiple of the planned rate",
)

BACKLOG = PlanKey(
    *("backlog_s", "[seconds, seconds]", _REACTIVE),
    "thin a backlog once it is more than the second of these, in seconds of input, down to the first",
)

PACE = PlanKey(
    *("pace_s", "{task manager: seconds}", _REACTIVE),
    "the micro-batches of each query there begin at least so long after one another",
)

REQUESTS = (REACT, BACKLOG, PACE)
