"""The criteria that every recorded run is judged by: replayed plans, minimum accuracies, exact row counts. Pure.

`Judged` is a recorded run with what its criteria share. `accuracy_errors` compares measured with planned accuracies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qod_magics.controller.record import Record, Records
from qod_magics.core.json_form import plan_to_json
from qod_magics.core.load import FULL_ACCURACY
from qod_magics.core.plan import AddNode, ReleaseNode
from qod_magics.core.policy import Policy, StagedPolicy
from qod_magics.policies import PAPER_POLICY
from qod_magics.policies import policy as policy_named
from qod_magics.recordings.reading import (
    Phase,
    events,
    paused_after,
    phases,
    queries,
    seconds,
    settled,
    sources,
    streams,
)

ACCURACY_TOLERANCE = 0.02  #: fraction of 1: sampling noise of one cycle


@dataclass(frozen=True, slots=True)
class Criterion:
    """A criterion and its outcome."""

    name: str
    passed: bool
    detail: str  #: the numbers, in one line


def format_verdict(criteria: Iterable[Criterion]) -> str:
    """Return one line per criterion: "PASS name: detail" or "FAIL name: detail"."""
    return "\n".join(f"{'PASS' if c.passed else 'FAIL'} {c.name}: {c.detail}" for c in criteria)


@dataclass(frozen=True)
class Judged:
    """A recording with the derived data that the criteria share."""

    records: Records
    at: tuple[float, ...]
    phases: tuple[Phase, ...]
    settled: Mapping[Phase, tuple[int, ...]]

    @property
    def settled_records(self) -> Iterator[tuple[Phase, int, Record]]:
        """Yield each settled record with its phase and its index."""
        for phase, indices in self.settled.items():
            for index in indices:
                yield phase, index, self.records[index]

    @property
    def unsettled(self) -> tuple[Phase, ...]:
        """Return the phases without a settled record. Of several with one name, attempts at a load, the last one
        counts."""
        last = {phase.name: phase for phase in self.phases}
        return tuple(phase for phase, indices in self.settled.items() if not indices and last[phase.name] is phase)

    def where(self, phase: Phase, index: int) -> str:
        """Return where a record is, in words: "at 12 s in calm"."""
        return f"at {self.at[index]:.0f} s{_in(phase)}"

    @classmethod
    def of(cls, records: Records, settle_s: float) -> Judged:
        """`settle_s`: seconds after a phase's start or a disturbance by which the cluster must have settled."""
        every = phases(records)
        parts = tuple(phase for phase in every if phase.name) or every  # before its first phase a run starts up
        return cls(records, seconds(records), parts, {p: settled(records, p, settle_s) for p in parts})


def _in(phase: Phase) -> str:
    return f" in {phase.name}" if phase.name else ""


def never_settled(parts: Sequence[Phase]) -> str:
    """Return a sentence that names the phases without a settled cycle, or nothing."""
    if not parts:
        return ""
    return f"; no settled cycle in {', '.join(part.name or 'the run' for part in parts)}"


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
        difference, key = _plan_difference(plan_to_json(plan, current), plan_to_json(record.plan, current))
        if difference > _PLAN_TOLERANCE:
            wrong += 1
            first = first or f", first at {run.at[index]:.0f} s in {key}"
        worst = max(worst, difference)
    shown = "not the same decision" if worst == float("inf") else f"largest difference {worst:.1e}"
    shown = "no difference" if worst == 0 else shown
    return Criterion(
        name, wrong == 0, f"{replayed - wrong} of {replayed} plans of {' and '.join(states)}, {shown}{first}"
    )


def _pausing(policy: Policy, stages: Collection[str]) -> Policy:
    """Return the policy with those of its stages paused that are among these."""
    if isinstance(policy, StagedPolicy):
        for stage in policy.stage_names:
            policy = policy.pausing(stage, stage in stages)
    return policy


def minimums_kept(run: Judged) -> Criterion:
    """Return the restriction of every query: at least its minimum accuracy."""
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


def _plan_difference(expected: Mapping[str, Any], recorded: Mapping[str, Any]) -> tuple[float, str]:
    """Return the largest numeric difference and its key; infinite where the plans differ in more than a number.

    Additional keys of the recording are not the policy's and are ignored.
    """
    worst = (0.0, "")
    for key, value in expected.items():
        if key not in recorded:
            return float("inf"), key
        other = recorded[key]
        if key == "non_drop":
            value, other = _by_edge(value), _by_edge(other)
        difference = _difference(value, other)
        if difference > worst[0]:
            worst = (difference, key)
    return worst


def _by_edge(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{row['from'] or ''}>{row['to']}": row["d"] for row in rows}


def _difference(one: Any, other: Any) -> float:
    if isinstance(one, bool) or isinstance(other, bool):
        return 0.0 if one is other else float("inf")
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other)
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
        return max((_difference(one[key], other[key]) for key in one), default=0.0)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return max((_difference(a, b) for a, b in zip(one, other, strict=True)), default=0.0)
    return 0.0 if one == other else float("inf")


def accuracy_errors(records: Records, *, by_rates: bool = False) -> list[tuple[int, str, float]]:
    """(index of the record, source, absolute error): measured against planned accuracies.

    Measured is the share of the rows read that was kept; with `by_rates`, and where that is not recorded, the current
    accuracy of Stream Economics (Eqs. 3.4 and 3.5), rows/s kept / rows/s that arrive, which is higher while a backlog
    is drained. It is measured over the `window` of the instances (seconds since the epoch) and compared with the mean,
    over that window, of the plans in force, each from when its dials were set; in a recording without windows, with the
    last applied plan.
    """
    errors: list[tuple[int, str, float]] = []
    in_force: list[tuple[float, Mapping[str, float]]] = []  #: (since, desired accuracies), in order
    for index, record in enumerate(records):
        if record.repeated:
            continue
        for source in sources(record):
            planned = _planned(source, in_force, _window(record, source))
            kept = None if by_rates else record.measured.accuracy.get(source)
            measured = record.current_accuracy.get(source) if kept is None else kept
            if measured is not None and planned is not None:
                errors.append((index, source, abs(measured - planned)))
        if record.applied:
            in_force.append((record.at.timestamp() + record.applied_s, record.plan.desired))
    return errors


def _window(record: Record, task: str) -> tuple[float, float] | None:
    """Return the window that the instances of a task were measured over, seconds since the epoch; None if not
    recorded."""
    windows = [instance.window for instance in record.snapshot.instances if instance.task == task]
    known = [window for window in windows if window is not None]
    if not known or len(known) < len(windows):
        return None
    return min(begin for begin, _ in known), max(end for _, end in known)


def _planned(
    task: str, in_force: Sequence[tuple[float, Mapping[str, float]]], window: tuple[float, float] | None
) -> float | None:
    """Return the accuracy planned for a task over a window, None where no plan for it was in force throughout."""
    if window is None or window[1] <= window[0]:
        return in_force[-1][1].get(task) if in_force else None
    start, end = window
    total = seconds_covered = 0.0
    for position, (since, desired) in enumerate(in_force):
        until = in_force[position + 1][0] if position + 1 < len(in_force) else float("inf")
        shared = min(until, end) - max(since, start)
        if shared > 0 and task in desired:
            total += shared * desired[task]
            seconds_covered += shared
    return total / seconds_covered if seconds_covered > 0.99 * (end - start) else None


_PLAN_TOLERANCE = 1e-9


# --- Criteria of runs in which task managers join and leave -----------------------------------------------------------
# The criteria of a run whose task managers follow the load: first shed, then join, then leave again. Pure.
#
# Such a recording has the phases "calm", "doubled" (more than one task manager carries) and "quarter".

DOUBLED = "doubled"
QUARTER = "quarter"

#: Periods from the step of the load to the first plan that sheds: the rows of the step must have arrived, and waited.
SHED_PERIODS = 3.0
#: Share of settled cycles in which each query's latency is within its target.
WITHIN_TARGET = 0.95


def is_elastic(run: Judged) -> bool:
    """Return whether these criteria are for this run."""
    return any(phase.name == DOUBLED for phase in run.phases)


def sheds_first(run: Judged) -> Criterion:
    """Judge whether load that exceeds the task manager is shed at once, before another one joins."""
    name = "a step of the load is shed at once"
    phase = _phase(run, DOUBLED)
    if phase is None:
        return _absent(name, DOUBLED)
    limit_s = SHED_PERIODS * run.records[phase.first].period_s
    for index in range(phase.first, phase.last + 1):
        record = run.records[index]
        least = min((record.plan.desired[query] for query in queries(record)), default=1.0)
        if least < FULL_ACCURACY:
            after_s, managers = run.at[index] - phase.start_s, len(record.snapshot.task_managers)
            detail = f"accuracy {least:.2f} after {after_s:.1f} s (at most {limit_s:g}), on {managers} task manager"
            return Criterion(name, after_s <= limit_s and managers == 1, detail + "s" * (managers != 1))
    return Criterion(name, False, f"nothing was shed in {DOUBLED}")


def grows(run: Judged) -> Criterion:
    """Judge whether the policy starts another task manager, and accuracy is 1 again under the same load."""
    name = "another task manager joins, and accuracy is whole again"
    phase = _phase(run, DOUBLED)
    if phase is None:
        return _absent(name, DOUBLED)
    inside = range(phase.first, phase.last + 1)
    asked = next((i for i in inside if _asks(run, i, AddNode)), None)
    joined = next((i for i, _ in events(run.records, "task-manager-up") if asked is not None and i >= asked), None)
    if asked is None or joined is None:
        return Criterion(name, False, "no plan asked for one" if asked is None else "none joined")
    settled = run.settled[phase]
    if not settled:
        return Criterion(name, False, never_settled([phase]).removeprefix("; "))
    last = run.records[settled[-1]]
    found = {query: last.measured.accuracy.get(query) for query in queries(last)}
    words = ", ".join(f"{query} {'without input' if v is None else f'{v:.3f}'}" for query, v in found.items())
    since = phase.start_s
    detail = f"asked after {run.at[asked] - since:.0f} s, up after {run.at[joined] - since:.0f} s; {words} at the end"
    return Criterion(name, all(v is not None and v >= FULL_ACCURACY for v in found.values()), detail)


def shrinks(run: Judged) -> Criterion:
    """Judge whether, once the load falls, one task manager is released and the other carries all at accuracy 1."""
    name = "a task manager leaves once one is enough, and accuracy stays whole"
    phase = _phase(run, QUARTER)
    if phase is None:
        return _absent(name, QUARTER)
    inside = range(phase.first, phase.last + 1)
    asked = next((i for i in inside if _asks(run, i, ReleaseNode)), None)
    left = len(run.records[phase.last].snapshot.task_managers)
    settled = run.settled[phase]
    if asked is None or not settled:
        why = "no plan released one" if asked is None else never_settled([phase]).removeprefix("; ")
        return Criterion(name, False, why)
    records = [run.records[i] for i in settled]
    found = [record.measured.accuracy.get(query) for record in records for query in queries(record)]
    least = min((value for value in found if value is not None), default=0.0)
    after_s = run.at[asked] - phase.start_s
    detail = f"released after {after_s:.0f} s; {left} at the end; least accuracy {least:.3f} once settled"
    return Criterion(name, left == 1 and least >= FULL_ACCURACY, detail)


def fuses(run: Judged) -> Criterion:
    """Judge whether tasks that were separated to share the load are one query again on the task manager that stays."""
    name = "unfused tasks are one query again"
    step, end = _phase(run, DOUBLED), _phase(run, QUARTER)
    if step is None or end is None:
        return _absent(name, DOUBLED if step is None else QUARTER)
    before, after = (len(run.records[i].snapshot.tasks) for i in (step.first, end.last))
    unfused, fused = (sum(1 for _ in events(run.records, kind)) for kind in ("unfuse", "fuse"))
    detail = f"{unfused} unfused, {fused} fused; {after} tasks at the end, {before} before"
    return Criterion(name, after <= before, detail if unfused else "none was unfused")


def in_time(run: Judged) -> Criterion:
    """Each query's 95th percentile of latency is within its target once settled."""
    name = "latencies are within their targets once settled"
    inside = total = 0
    worst = (0.0, "")
    for phase, index, record in run.settled_records:
        for task in record.snapshot.tasks:
            target, seconds = task.max_latency_s, task.latency_p95_s
            if target is None or seconds is None:
                continue
            total += 1
            inside += seconds <= target
            worst = max(worst, (seconds / target, f"{task.id} {seconds:.2f} of {target:g} s {run.where(phase, index)}"))
    if not total:
        return Criterion(name, False, "no latency of a query with a target in a settled cycle")
    share = inside / total
    return Criterion(name, share >= WITHIN_TARGET, f"{share:.1%} of {total} values; worst {worst[1]}")


def steady(run: Judged) -> Criterion:
    """Judge whether task managers come once and go once."""
    name = "no task manager comes and goes more than once"
    adds = [i for i in range(len(run.records)) if _asks(run, i, AddNode)]
    releases = [i for i in range(len(run.records)) if _asks(run, i, ReleaseNode)]
    moves = sum(1 for _ in events(run.records, "move"))
    detail = f"{len(adds)} asked for, {len(releases)} released, {moves} moves"
    return Criterion(name, len(adds) <= 1 and len(releases) <= 1, detail)


def _asks(run: Judged, index: int, kind: type) -> bool:
    record = run.records[index]
    return record.applied and any(isinstance(action, kind) for action in record.plan.actions)


def _phase(run: Judged, name: str) -> Phase | None:
    """Return the last phase of this name: a run may try a load that proves too low before."""
    return next((phase for phase in reversed(run.phases) if phase.name == name), None)


def _absent(name: str, phase: str) -> Criterion:
    return Criterion(name, False, f"the recording has no phase {phase!r}")
