"""The criteria that every recorded run is judged by: replayed plans, minimum accuracies, exact row counts. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from qod_magics.core.plan_json import plan_to_json
from qod_magics.core.policy import Policy, StagedPolicy
from qod_magics.policies import PAPER_POLICY
from qod_magics.policies import policy as policy_named
from qod_magics.recordings.criterion import ACCURACY_TOLERANCE, Criterion
from qod_magics.recordings.judged import Judged, never_settled
from qod_magics.recordings.names import queries, sources, streams
from qod_magics.recordings.plan_difference import plan_difference
from qod_magics.recordings.stages import paused_after

PLAN_TOLERANCE = 1e-9


def plans_replayed(run: Judged, policy: str | None) -> Criterion:
    """Replay: the recorded plan is what the policy gives for the recorded snapshot."""
    name = "every plan is what the policy gives for its snapshot"
    states: dict[str, Any] = {}
    paused: frozenset[str] = frozenset()
    worst, wrong, replayed, first = 0.0, 0, 0, ""
    for index, record in enumerate(run.records):
        paused = paused_after(paused, record.events)
        made_by = policy or record.policy or PAPER_POLICY
        if policy is None and any(event.kind == "policy" for event in record.events):  # it began without a state
            states.pop(made_by, None)
        if record.repeated:
            continue
        replayed += 1
        plan, states[made_by] = _pausing(policy_named(made_by), paused).decide(record.snapshot, states.get(made_by))
        current = record.current_accuracy  # not part of the decision
        difference, key = plan_difference(plan_to_json(plan, current), plan_to_json(record.plan, current))
        if difference > PLAN_TOLERANCE:
            wrong += 1
            first = first or f", first at {run.at[index]:.0f} s in {key}"
        worst = max(worst, difference)
    shown = "not the same decision" if worst == float("inf") else f"largest difference {worst:.1e}"
    shown = "no difference" if worst == 0 else shown
    return Criterion(
        name, wrong == 0, f"{replayed - wrong} of {replayed} plans of {' and '.join(states)}, {shown}{first}"
    )


def _pausing(policy: Policy, stages: Collection[str]) -> Policy:
    """The policy with those of its stages paused that are among these."""
    if isinstance(policy, StagedPolicy):
        for stage in policy.stage_names:
            policy = policy.pausing(stage, stage in stages)
    return policy


def minimums_kept(run: Judged) -> Criterion:
    """The restriction of every query: at least its minimum accuracy."""
    name = "every query keeps its minimum accuracy once settled"
    margins = [
        (accuracy - query.min_accuracy, accuracy, query, run.where(phase, index))
        for phase, index, record in run.settled_records
        for name, query in queries(record).items()
        if (accuracy := record.measured.accuracy.get(name)) is not None
    ]
    gaps = never_settled(run.unsettled)
    if not margins:
        return Criterion(name, False, f"no measured accuracy in a settled cycle{gaps}")
    margin, accuracy, query, where = min(margins, key=lambda found: found[0])
    detail = f"worst {query.id} {accuracy:.3f} of at least {query.min_accuracy:.3f} {where}; {len(margins)} values"
    return Criterion(name, margin >= -ACCURACY_TOLERANCE and not gaps, detail + gaps)


def rows_accounted_for(run: Judged) -> Criterion:
    """Every row is accounted for: arrived = processed + dropped + waiting + unreported, exactly."""
    name = "every row is accounted for"
    lost, checked, rows = False, 0, 0
    named: set[str] = set()
    for index, record in enumerate(run.records):
        lost = lost or any(event.kind == "task-manager-lost" for event in record.events)
        for edge, count in record.measured.counts.items():
            checked += 1
            named.add(edge)
            missing = count.arrived - count.processed - count.dropped - count.waiting - count.unreported
            where = f"{edge} at {run.at[index]:.0f} s"
            if missing:
                return Criterion(name, False, f"{where}: {count.arrived:,} rows arrived, {missing:,} not accounted for")
            if min(count.processed, count.dropped, count.waiting, count.unreported) < 0:
                return Criterion(name, False, f"{where}: a negative count")
            if count.unreported and not lost:
                why = "though no task manager was lost: deleted before they were read, or offsets that hold no row"
                return Criterion(name, False, f"{where}: {count.unreported:,} rows unreported, {why}")
    last = run.records[-1]
    if not named and not sources(last):
        return Criterion(name, False, "no stream ran")
    absent = [edge for edge in (*sources(last), *streams(last)) if edge not in named]
    if absent:
        return Criterion(name, False, f"no counts of {', '.join(absent)}")
    counts = next(found for record in reversed(run.records) if (found := record.measured.counts))
    rows = sum(counts[source].arrived for source in sources(last) if source in counts)
    detail = f"{checked:,} balances exact, over {len(named)} sources and streams; {rows:,} rows arrived at the sources"
    return Criterion(name, True, detail)
