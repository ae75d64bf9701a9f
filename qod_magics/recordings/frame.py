"""One controller cycle as the dashboard shows it: a record -> one small JSON object. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from qod_magics.controller.log import Cycle, DecisionLog, Entry
from qod_magics.controller.record import Record, Records, instant
from qod_magics.core.fusing import fused_streams
from qod_magics.core.load import FULL_ACCURACY
from qod_magics.core.plan import Edge, Plan, edge_name
from qod_magics.core.runtime import MISFITS, REPEATED, Measured
from qod_magics.core.snapshot import Freshness, Instance, Task, TaskManager
from qod_magics.recordings.criteria import ACCURACY_TOLERANCE
from qod_magics.recordings.reading import IDLE, PAUSED, StageNote, is_warming_up, narrated, paused_after, recorded_notes

OTHER = "other processes"

#: state -> attention: 0 normal, 1 shedding or changing, 2 at a limit or unknown, 3 trouble
STATES = {
    "full accuracy": 0,
    "idle": 0,
    "shedding": 1,
    "warming up": 1,
    "starting": 1,
    "moving": 1,
    "at minimum": 2,
    "no metrics": 2,
    "waiting": 2,
    "backing off": 3,
    "below minimum": 3,
    "starved": 3,
    "given up": 3,
    "suspended": 3,
}

Frame = dict[str, Any]
NO_LABELS: Mapping[str, str] = MappingProxyType({})


def frames(
    records: Records,
    began: datetime,
    log: DecisionLog,
    labels: Mapping[str, str] = NO_LABELS,
    paused: frozenset[str] = frozenset(),
) -> Iterator[Frame]:
    """Yield the frames of recorded cycles, whose entries are appended to `log`; `paused`: the stages that were so
    before."""
    for record, entries in narrated(records, log):
        paused = paused_after(paused, record.events)
        yield frame(record, began, entries, labels, recorded_notes(record, paused))


def frame(
    record: Record,
    began: datetime,
    log: Iterable[Entry] = (),
    labels: Mapping[str, str] = NO_LABELS,
    stages: Iterable[StageNote] = (),
    slices: Sequence[Frame] | None = None,
) -> Frame:
    """Return the frame of a cycle, `t` seconds after `began`; `log` are its entries in the decision log, `labels` say
    in words by query what shedding does to its columns, which recordings don't, and `stages` are the notes of the
    policy's. `slices` are those of results with copies in memory, oldest first: `query`, time when they were
    `written`, and the `mb` of each copy by task manager, null where not known yet. None: there were none so far, or it
    is not known, as of a recording.

    Rates are rows/s, CPU is % of one core, accuracies are fractions of 1; lag, dropped, late, malformed, tombstones and
    implausible are rows; p50, p95, target and oldest are latencies in seconds. `fused` are the streams within a task,
    "from>to".
    """
    snapshot, plan, measured = record.snapshot, record.plan, record.measured
    by_task: dict[str, list[Instance]] = {task.id: [] for task in snapshot.tasks}
    for instance in snapshot.instances:
        by_task[instance.task].append(instance)
    readers = {stream.source for stream in snapshot.streams}
    out_rate = {stream.source: stream.out_rate for stream in snapshot.streams}
    names: list[Edge] = [(None, task.id) for task in snapshot.tasks if not task.upstream]
    names += [(stream.source, stream.target) for stream in snapshot.streams]
    keep = record.dials.keep or plan.non_drop
    return {
        "t": round((record.at - began).total_seconds(), 3),
        "at": instant(record.at),
        "cycle": record.number,
        "period_s": record.period_s,
        "phase": record.phase or None,
        "applied": record.applied,
        "warming_up": is_warming_up(record),
        "managers": [_manager(manager, snapshot.instances, plan) for manager in snapshot.task_managers],
        "nodes": {id: state.value for id, state in snapshot.node_states.items()},
        "tasks": [
            {
                **_task(task, by_task[task.id], plan, measured, out_rate, task.id in readers),
                "labels": labels.get(task.id),
            }
            for task in snapshot.tasks
        ],
        "edges": [_edge(edge, keep, measured, out_rate) for edge in names],
        "stages": [
            {"stage": each.stage, "words": each.words, "paused": each.words == PAUSED, "idle": each.words == IDLE}
            for each in stages
        ],
        "slices": None if slices is None else list(slices),
        "log": [_told(entry, began) for entry in log],
    }


def skipped(cycle: Cycle, began: datetime, log: Iterable[Entry]) -> Frame:
    """Return the frame of a cycle without a decision, `t` seconds after `began`: why there is none, and entries of the
    decision log since the last frame."""
    return {
        "t": round((cycle.at - began).total_seconds(), 3),
        "cycle": cycle.number,
        "words": cycle.skipped,
        "log": [_told(entry, began) for entry in log],
    }


def _told(entry: Entry, began: datetime) -> Frame:
    t = round((entry.at - began).total_seconds(), 3)
    return {"t": t, "at": entry.at.isoformat(), "kind": entry.kind, "words": entry.words}


def _manager(manager: TaskManager, instances: Iterable[Instance], plan: Plan) -> Frame:
    used: dict[str, float] = {}
    for instance in instances:
        if instance.task_manager == manager.id:
            used[instance.task] = used.get(instance.task, 0.0) + instance.cpu
    used[OTHER] = max(manager.cpu - sum(used.values()), 0.0)
    return {
        "id": manager.id,
        "capacity": 100.0 * manager.cores,
        "limit": manager.cpu_limit or 1.0,
        "cpu": manager.cpu,
        "tasks": {task: round(cpu, 2) for task, cpu in used.items()},
        "starved": manager.id in plan.starved,
    }


def _task(
    task: Task,
    instances: Sequence[Instance],
    plan: Plan,
    measured: Measured,
    out_rate: Mapping[str, float],
    has_readers: bool,
) -> Frame:
    id = task.id
    feeds = [f"{upstream}>{id}" for upstream in task.upstream] or [id]
    most = task.max_parallelism
    shown = {
        "id": id,
        "kind": "source" if not task.upstream else ("task" if has_readers else "query"),
        "accuracy": measured.accuracy.get(id),
        "planned": plan.desired.get(id),
        "minimum": task.min_accuracy,
        "priority": task.priority,
        "in_rate": sum(instance.in_rate for instance in instances),
        "out_rate": out_rate.get(id),
        "arriving": measured.input_rate.get(id) if not task.upstream else None,
        "cpu": sum(instance.cpu for instance in instances),
        "lag": sum(measured.lag.get(feed, 0) for feed in feeds),
        "dropped": sum(measured.dropped.get(feed, 0) for feed in feeds),
        "p50": task.latency_p50_s,
        "p95": measured.latency_s.get(id),
        "target": task.max_latency_s,
        "oldest": task.oldest_s,
        "late": measured.late.get(id, 0),
        **{
            kind: sum(getattr(measured.counts[f], kind) for f in feeds if f in measured.counts)
            for kind in (*MISFITS, *REPEATED)
        },
        "modes": sorted({instance.mode for instance in instances if instance.mode}),
        "where": sorted({instance.task_manager for instance in instances}),
        "instances": {instance.id: instance.task_manager for instance in instances},
        "max_parallelism": None if most is None else int(most),
        "fused": [edge_name(stream) for stream in fused_streams(task)],
    }
    state = _state(shown, instances, plan)
    return {**shown, "state": state, "attention": STATES[state]}


def _state(task: Frame, instances: Sequence[Instance], plan: Plan) -> str:
    """Return the state of a task: the first that applies, most important first."""
    lives = {str(instance.state) for instance in instances}
    for life in ("given up", "suspended", "backing off", "waiting", "moving", "starting"):
        if life in lives:
            return life
    if any(instance.warming_up for instance in instances):
        return "warming up"
    if not all(Freshness.of(instance).is_fresh for instance in instances):
        return "no metrics"
    accuracy, minimum, planned = task["accuracy"], task["minimum"], task["planned"]
    if minimum is not None and accuracy is not None and accuracy < minimum - ACCURACY_TOLERANCE:
        return "below minimum"
    if set(task["where"]) & set(plan.starved):
        return "starved"
    if planned is not None and planned < FULL_ACCURACY:
        return "at minimum" if minimum is not None and planned <= minimum + ACCURACY_TOLERANCE / 2 else "shedding"
    return "idle" if accuracy is None else "full accuracy"


def _edge(edge: Edge, keep: Mapping[Edge, float], measured: Measured, out_rate: Mapping[str, float]) -> Frame:
    source, target = edge
    name = target if source is None else f"{source}>{target}"
    rate = measured.input_rate.get(name)
    return {
        "name": name,
        "from": source,
        "to": target,
        "d": keep.get(edge),
        "rate": rate if rate is not None else (out_rate.get(source) if source is not None else None),
        "lag": measured.lag.get(name),
        "dropped": measured.dropped.get(name, 0),
    }
