"""What a recorded cycle did and why: its stages, and the cycle behind a record. Pure.

A `Cycle` is made from each record, so that the code that explains a live run explains a recorded one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from qod_magics.controller.cycle import Cycle, Decision, Entry
from qod_magics.controller.log import DecisionLog
from qod_magics.controller.narration import Said, narrate, narrate_event
from qod_magics.controller.record import Record, Records
from qod_magics.core.load import FULL_ACCURACY
from qod_magics.core.plan import Plan
from qod_magics.core.policy import Policy, Reasons, StagedPolicy, Unexplained, reasons_of
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
    """Return the notes of a policy's stages on `plan`, which it made for this snapshot; () for a policy without stages.
    Before the first cycle there is neither."""
    return _notes(policy.stage_names, policy.paused, snapshot, plan) if isinstance(policy, StagedPolicy) else ()


def recorded_notes(record: Record, paused: Collection[str]) -> tuple[StageNote, ...]:
    """Return the notes of the stages in a recorded cycle, in which these were paused. Of a policy that is not installed
    here: of the stages that had something to say."""
    told = record.plan.stages
    names = _stage_names(record.policy or PAPER_POLICY) or tuple(stage for stage in told if stage != SHED)
    return _notes(names, paused, record.snapshot, record.plan)


def paused_after(paused: frozenset[str], events: Iterable[Event]) -> frozenset[str]:
    """Return the stages that are paused once these events have happened to the controller; `paused`: before."""
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
    told: Mapping[str, str] = {} if plan is None else plan.stages
    found = [StageNote(name, PAUSED if name in paused else told.get(name, IDLE)) for name in names]
    shed = [told[SHED]] if SHED in told else []
    if snapshot is not None and plan is not None:
        shed += _shedding(snapshot, plan)
    return (*found, StageNote(SHED, "; ".join(shed) or IDLE))


def _shedding(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Return the queries that the plan sheds, with the fraction of their input that they keep."""
    queries = [task.id for task in snapshot.tasks if task.min_accuracy is not None]
    shed = [f"{id} keeps {plan.desired[id]:.2f}" for id in queries if plan.desired.get(id, 1.0) < FULL_ACCURACY]
    return [f"{listed(shed)} of the input"] if shed else []


@cache
def _stage_names(policy: str) -> tuple[str, ...]:
    """Return the stages of the policy of this name that can be paused; () where it has none, or is not installed
    here."""
    try:
        named = policy_named(policy)
    except UsageProblem:
        return ()
    return named.stage_names if isinstance(named, StagedPolicy) else ()


def cycle_of(record: Record) -> Cycle:
    """Return the cycle that a record was made from."""
    policy = record.policy or PAPER_POLICY
    return Cycle(
        number=record.number,
        at=record.at,
        period_s=record.period_s,
        decision=Decision(
            record.snapshot,
            record.measured,
            record.plan,
            record.dials,
            policy,
            record.policy_ms,
            record.current_accuracy,
            _reasons(policy, record.snapshot, record.plan),
        ),
        applied=record.applied,
        events=record.events,
        annotations=record.annotations,
    )


class Narrator:
    """Puts records into words, one after the other, oldest first, and appends the entries to `log`."""

    def __init__(self, log: DecisionLog) -> None:
        self._log = log
        self._said = Said()

    def entries(self, record: Record) -> tuple[Entry, ...]:
        """Return the entries of the next record for the decision log."""
        cycle = cycle_of(record)
        entries: tuple[Entry, ...] = tuple(
            narrate_event(event, cycle) for event in cycle.events if event.kind not in ("starved", "starved-over")
        )
        if not record.repeated and cycle.decision is not None:
            decided, self._said = narrate(cycle, cycle.decision, self._said)
            entries += decided
        cycle = replace(cycle, entries=entries)
        self._log.append(entries)
        self._log.decided(cycle)
        return entries


def narrated(records: Records, log: DecisionLog) -> Iterator[tuple[Record, tuple[Entry, ...]]]:
    """Yield each record with its entries for the decision log, which are appended to `log` on the way."""
    narrator = Narrator(log)
    for record in records:
        yield record, narrator.entries(record)


def _reasons(name: str, snapshot: Snapshot, plan: Plan) -> Reasons:
    """Return the reasons given by the policy that decided; Unexplained if it is not installed here."""
    try:
        return reasons_of(policy_named(name), snapshot, plan)
    except UsageProblem:
        return Unexplained(name)
