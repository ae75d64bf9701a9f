"""The cycles behind a recording, so that the code that explains a live run explains a recorded one. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from qod_magics.controller.cycle import Cycle, Decision
from qod_magics.controller.entry import Entry
from qod_magics.controller.log import DecisionLog
from qod_magics.controller.narration import Said, narrate, narrate_event
from qod_magics.controller.record import Record, Records
from qod_magics.core.plan import Plan
from qod_magics.core.policy import reasons_of
from qod_magics.core.reasons import Reasons, Unexplained
from qod_magics.core.snapshot import Snapshot
from qod_magics.errors import UsageProblem
from qod_magics.policies import PAPER_POLICY
from qod_magics.policies import policy as policy_named


def cycle_of(record: Record) -> Cycle:
    """The cycle that a record was made from."""
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
        """The entries of the next record for the decision log."""
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
    """Each record with its entries for the decision log, which are appended to `log` on the way."""
    narrator = Narrator(log)
    for record in records:
        yield record, narrator.entries(record)


def _reasons(name: str, snapshot: Snapshot, plan: Plan) -> Reasons:
    """The reasons given by the policy that decided; Unexplained if it is not installed here."""
    try:
        return reasons_of(policy_named(name), snapshot, plan)
    except UsageProblem:
        return Unexplained(name)
