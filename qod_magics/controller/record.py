"""One line of a recording: a cycle as it was measured, decided and carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from qod_magics.controller.cycle import Cycle, Decision
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Dials, Event, Measured
from qod_magics.core.snapshot import Snapshot, nothing

DEFAULT_PERIOD_S = 5.0


@dataclass(frozen=True, slots=True)
class Record:
    """What a recording keeps of a cycle. Older recordings lack some of it: such fields have a default."""

    at: datetime  #: when the cycle began
    snapshot: Snapshot
    plan: Plan
    measured: Measured
    dials: Dials  #: the settings that carried out the plan
    current_accuracy: Mapping[str, float] = field(default_factory=nothing)  #: by task, as measured
    events: tuple[Event, ...] = ()  #: of the cluster and of the controller, since the record before
    applied: bool = False  #: whether the plan is known to be in force
    applied_s: float = 0.0  #: seconds from `at` until it was
    number: int = 0  #: of the cycle; 1 is the first
    period_s: float = DEFAULT_PERIOD_S
    policy: str | None = None  #: the name of the policy; None: the recording does not say
    policy_ms: float = 0.0  #: time to decide, milliseconds
    repeated: bool = False  #: carries late events only: all else repeats the record before
    annotations: Mapping[str, Any] = field(default_factory=nothing)  #: further keys of the run, `phase` for one

    @property
    def phase(self) -> str:
        """The part of its script that the run was in; "" where it followed none."""
        return str(self.annotations.get("phase") or "")


Records = Sequence[Record]


def record_of(cycle: Cycle, decision: Decision, events: Sequence[Event], repeated: bool = False) -> Record:
    """The record of a cycle with its decision. `events` are those that have not been recorded before."""
    return Record(
        at=cycle.at,
        snapshot=decision.snapshot,
        plan=decision.plan,
        measured=decision.measured,
        dials=decision.dials,
        current_accuracy=decision.current_accuracy,
        events=tuple(events),
        applied=cycle.applied,
        applied_s=cycle.applied_s,
        number=cycle.number,
        period_s=cycle.period_s,
        policy=decision.policy,
        policy_ms=decision.policy_ms,
        repeated=repeated,
        annotations=cycle.annotations,
    )
