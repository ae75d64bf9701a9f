"""The result of one turn of the loop, which is logged, recorded and published, and its log entries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from qod_magics.core.plan import Edge, Plan, Refusal
from qod_magics.core.policy import Reasons
from qod_magics.core.runtime import Dials, Event, Measured
from qod_magics.core.snapshot import Snapshot, nothing


@dataclass(frozen=True, slots=True)
class Entry:
    """A decision, event or fault."""

    cycle: int  #: number of the cycle; 0: before the first
    at: datetime  #: UTC
    #: shedding, move, starved, warm-up, warm-up-over, a kind of event, or a fault (observe-slow, policy-failed ...)
    kind: str
    names: tuple[str, ...]  #: the tasks, instances, task managers and streams ("from>to") that it is about
    words: str
    numbers: Mapping[str, float] = field(default_factory=nothing)  #: those in the words, by name, at full precision

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S} #{self.cycle} {self.kind}: {self.words}"


@dataclass(frozen=True, slots=True)
class Decision:
    """What a cycle observed and decided."""

    snapshot: Snapshot  #: as the policy saw it, with the warm-ups marked
    measured: Measured
    plan: Plan
    dials: Dials  #: the settings that carry out the plan
    policy: str  #: the name of the policy
    policy_ms: float  #: time to decide, milliseconds
    current_accuracy: Mapping[str, float]  #: by task, as measured (`core.load`)
    reasons: Reasons  #: the policy's, for the plan
    refused: tuple[Refusal, ...] = ()  #: actions of the plan that are not carried out
    by_hand: Collection[Edge] = frozenset()  #: the shedders that are held by hand

    @property
    def accepted(self) -> Plan:
        """The plan without the actions that are refused."""
        if not self.refused:
            return self.plan
        no = {id(refusal.action) for refusal in self.refused}
        return replace(self.plan, actions=tuple(action for action in self.plan.actions if id(action) not in no))


@dataclass(frozen=True, slots=True)
class Cycle:
    """One turn of the loop."""

    number: int  #: 1 is the first
    at: datetime  #: when it began, UTC
    period_s: float
    decision: Decision | None = None  #: None: the cycle was skipped
    applied: bool = False  #: whether the plan is known to be in force
    applied_s: float = 0.0  #: seconds from `at` until it was: observing, deciding, and setting the dials
    paused: bool = False  #: recommend only: the plan was not meant to be applied
    events: tuple[Event, ...] = ()  #: of the cluster and of the controller, since the cycle before
    skipped: str | None = None  #: why there is no decision
    annotations: Mapping[str, Any] = field(default_factory=nothing)  #: more keys for the recording, `phase` for one
    entries: tuple[Entry, ...] = ()  #: its entries in the decision log

    @property
    def snapshot(self) -> Snapshot | None:
        """What the policy saw; None when the cycle was skipped."""
        return None if self.decision is None else self.decision.snapshot

    @property
    def plan(self) -> Plan | None:
        """What the policy decided; None when the cycle was skipped."""
        return None if self.decision is None else self.decision.plan

    @property
    def measured(self) -> Measured | None:
        """What was measured beside the snapshot; None when the cycle was skipped."""
        return None if self.decision is None else self.decision.measured
