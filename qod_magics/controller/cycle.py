"""What one turn of the loop came to: the thing that is logged, recorded and published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from qod_magics.controller.entry import Entry
from qod_magics.core.actions import Refusal
from qod_magics.core.plan import Plan
from qod_magics.core.plan_json import plan_to_json
from qod_magics.core.reasons import Reasons
from qod_magics.core.runtime import Dials, Event, Measured
from qod_magics.core.snapshot import Snapshot, nothing
from qod_magics.core.snapshot_json import snapshot_to_json

#: keys of a recording's line that annotations can't take
RESERVED = frozenset(
    {
        "at",
        "snapshot",
        "plan",
        "applied",
        "measured",
        "events",
        "cycle",
        "period_s",
        "policy",
        "policy_ms",
        "dials",
        "repeated",
    }
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What was seen and decided in a cycle."""

    snapshot: Snapshot  #: as the policy saw it, with the warm-ups marked
    measured: Measured
    plan: Plan
    dials: Dials  #: what carries the plan out
    policy: str  #: the name of the policy
    policy_ms: float  #: how long it took to decide, milliseconds
    current_accuracy: Mapping[str, float]  #: by task, as measured (`core.accuracy`)
    reasons: Reasons  #: why the plan is as it is, by the policy
    refused: tuple[Refusal, ...] = ()  #: actions of the plan that are not carried out

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
    paused: bool = False  #: recommend only: the plan was not meant to be applied
    events: tuple[Event, ...] = ()  #: of the cluster and of the controller, since the cycle before
    skipped: str | None = None  #: why there is no decision
    annotations: Mapping[str, Any] = field(default_factory=nothing)  #: more keys for the recording, `phase` for one
    entries: tuple[Entry, ...] = ()  #: what the decision log says of it

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


def line(cycle: Cycle, decision: Decision, events: Sequence[Event]) -> dict[str, Any]:
    """The recording's line of `cycle`: the keys of the format first, then what this controller adds."""
    return {
        "at": instant(cycle.at),
        "snapshot": snapshot_to_json(decision.snapshot),
        "plan": plan_to_json(decision.plan, decision.current_accuracy),
        "applied": cycle.applied,
        "measured": decision.measured.to_json(),
        "events": [event.to_json() for event in events],
        "cycle": cycle.number,
        "period_s": cycle.period_s,
        "policy": decision.policy,
        "policy_ms": decision.policy_ms,
        "dials": dials_to_json(decision.dials),
        **cycle.annotations,
    }


def dials_to_json(dials: Dials) -> dict[str, Any]:
    """The JSON form of dials: `keep` as a list of {"from", "to", "d"} like a plan's `non_drop`, `accept` by task."""
    keep = [{"from": source, "to": target, "d": d} for (source, target), d in dials.keep.items()]
    return {"keep": keep, "accept": dict(dials.accept)}


def instant(at: datetime) -> str:
    """ISO 8601 in UTC to the millisecond: 2026-11-21T02:00:05.000Z."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
