"""The criteria of a run whose task managers follow the load: first shed, then join, then leave again. Pure.

Such a recording has the phases "calm", "doubled" (more than one task manager carries) and "quarter".
"""

from __future__ import annotations

from qod_magics.core.load import FULL_ACCURACY
from qod_magics.core.plan import AddNode, ReleaseNode
from qod_magics.recordings.criteria import Criterion, Judged, never_settled
from qod_magics.recordings.phases import Phase, events, queries

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
    name = "tasks that were parted are one query again"
    step, end = _phase(run, DOUBLED), _phase(run, QUARTER)
    if step is None or end is None:
        return _absent(name, DOUBLED if step is None else QUARTER)
    before, after = (len(run.records[i].snapshot.tasks) for i in (step.first, end.last))
    parted, fused = (sum(1 for _ in events(run.records, kind)) for kind in ("unfuse", "fuse"))
    detail = f"{parted} parted, {fused} fused; {after} tasks at the end, {before} before"
    return Criterion(name, after <= before, detail if parted else "none was parted")


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
