"""What each stage of a policy does in a cycle, or why it does nothing. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from qod_magics.controller.record import Record
from qod_magics.core.accuracy import FULL_ACCURACY
from qod_magics.core.optional import stage_notes
from qod_magics.core.plan import Plan
from qod_magics.core.policy import Policy, StagedPolicy
from qod_magics.core.runtime import Event
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.wording import listed
from qod_magics.errors import UsageProblem
from qod_magics.policies import PAPER_POLICY
from qod_magics.policies import policy as policy_named

#: The stage that sheds: every policy of stages has it, and it can't be paused by itself.
SHED = "shed"
PAUSED, IDLE = "paused", "nothing to do"


@dataclass(frozen=True, slots=True)
class StageNote:
    """What a stage does in one cycle."""

    stage: str
    words: str  #: `PAUSED`, `IDLE`, or a clause that says what it did, or why it did nothing


def policy_notes(policy: Policy, snapshot: Snapshot | None, plan: Plan | None) -> tuple[StageNote, ...]:
    """The notes of a policy's stages on `plan`, which it made for this snapshot; () for a policy without stages. Before
    the first cycle there is neither."""
    return _notes(policy.stage_names, policy.paused, snapshot, plan) if isinstance(policy, StagedPolicy) else ()


def recorded_notes(record: Record, paused: Collection[str]) -> tuple[StageNote, ...]:
    """The notes of the stages in a recorded cycle, in which these were paused. Of a policy that is not installed here:
    of the stages that had something to say."""
    told = stage_notes(record.plan)
    names = _stage_names(record.policy or PAPER_POLICY) or tuple(stage for stage in told if stage != SHED)
    return _notes(names, paused, record.snapshot, record.plan)


def paused_after(paused: frozenset[str], events: Iterable[Event]) -> frozenset[str]:
    """The stages that are paused once these events have happened to the controller; `paused`: before."""
    for event in events:
        match event.kind:
            case "policy":  # another one decides, with nothing paused
                paused = frozenset()
            case "stage-paused":
                paused |= {str(event.detail.get("stage"))}
            case "stage-resumed":
                paused -= {str(event.detail.get("stage"))}
    return paused


def _notes(
    names: Sequence[str], paused: Collection[str], snapshot: Snapshot | None, plan: Plan | None
) -> tuple[StageNote, ...]:
    if not names:
        return ()
    told: Mapping[str, str] = {} if plan is None else stage_notes(plan)
    found = [StageNote(name, PAUSED if name in paused else told.get(name, IDLE)) for name in names]
    shed = [told[SHED]] if SHED in told else []
    if snapshot is not None and plan is not None:
        shed += _shedding(snapshot, plan)
    return (*found, StageNote(SHED, "; ".join(shed) or IDLE))


def _shedding(snapshot: Snapshot, plan: Plan) -> list[str]:
    """The queries that the plan sheds, with the fraction of their input that they keep."""
    queries = [task.id for task in snapshot.tasks if task.min_accuracy is not None]
    shed = [f"{id} keeps {plan.desired[id]:.2f}" for id in queries if plan.desired.get(id, 1.0) < FULL_ACCURACY]
    return [f"{listed(shed)} of the input"] if shed else []


@cache
def _stage_names(policy: str) -> tuple[str, ...]:
    """The stages of the policy of this name that can be paused; () where it has none, or is not installed here."""
    try:
        named = policy_named(policy)
    except UsageProblem:
        return ()
    return named.stage_names if isinstance(named, StagedPolicy) else ()
