"""A recording as the cycles that it was made of, so that what explains a live run explains a recorded one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from qod_magics.controller.cycle import Cycle, Decision
from qod_magics.controller.entry import Entry
from qod_magics.controller.log import DecisionLog
from qod_magics.controller.narration import Said, narrate, narrate_event
from qod_magics.core.plan import Edge, Plan
from qod_magics.core.plan_json import plan_from_json
from qod_magics.core.policy import reasons_of
from qod_magics.core.reasons import Reasons, Unexplained
from qod_magics.core.runtime import Dials, Event, Measured
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.snapshot_json import snapshot_from_json
from qod_magics.errors import UsageProblem
from qod_magics.policies import PAPER_POLICY
from qod_magics.policies import policy as policy_named
from qod_magics.recordings.phases import Line, Lines, is_repeated, period_s


def cycle_of(line: Line, number: int) -> Cycle:
    """The cycle that a line was written for. Raises SnapshotError for a snapshot or a plan that breaks the format."""
    snapshot, plan = snapshot_from_json(line["snapshot"]), plan_from_json(line["plan"])
    policy = str(line.get("policy") or PAPER_POLICY)
    measured = line.get("measured") or {}
    return Cycle(
        number=int(line.get("cycle") or number),
        at=datetime.fromisoformat(line["at"]),
        period_s=period_s(line),
        decision=Decision(
            snapshot,
            Measured(
                lag=measured.get("lag") or {},
                input_rate=measured.get("input_rate") or {},
                accuracy=measured.get("accuracy") or {},
                dropped=measured.get("dropped") or {},
            ),
            plan,
            _dials(line.get("dials"), plan.non_drop, plan.desired),
            policy,
            float(line.get("policy_ms") or 0.0),
            line["plan"]["current_accuracy"],
            _reasons(policy, snapshot, plan),
        ),
        applied=bool(line.get("applied")),
        events=tuple(
            Event(str(event["kind"]), {key: value for key, value in event.items() if key != "kind"})
            for event in line.get("events") or ()
        ),
    )


def narrated(lines: Lines, log: DecisionLog) -> Iterator[tuple[Line, tuple[Entry, ...]]]:
    """Each line with what the decision log says of it; the log takes it in as it goes."""
    said = Said()
    for number, line in enumerate(lines, 1):
        cycle = cycle_of(line, number)
        entries: tuple[Entry, ...] = tuple(
            narrate_event(event, cycle) for event in cycle.events if event.kind not in ("starved", "starved-over")
        )
        if not is_repeated(line) and cycle.decision is not None:
            decided, said = narrate(cycle, cycle.decision, said)
            entries += decided
        cycle = replace(cycle, entries=entries)
        log.append(entries)
        log.decided(cycle)
        yield line, entries


def _reasons(name: str, snapshot: Snapshot, plan: Plan) -> Reasons:
    """By the policy that decided, if it is installed here."""
    try:
        return reasons_of(policy_named(name), snapshot, plan)
    except UsageProblem:
        return Unexplained(name)


def _dials(value: Any, keep: Mapping[Edge, float], accept: Mapping[str, float]) -> Dials:
    if not isinstance(value, Mapping):
        return Dials(keep, accept)
    return Dials({(row["from"], row["to"]): float(row["d"]) for row in value["keep"]}, dict(value["accept"]))
