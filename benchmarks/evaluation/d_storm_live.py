"""D-Storm live: a chain of four tasks on two task managers, whose load falls to a quarter; task managers used, rows/s
between them, and CPU per row, before and after, beside Storm's default scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.evaluation import books
from benchmarks.evaluation.by_policy import Variant, by_policy, carried, named
from benchmarks.evaluation.cluster import running
from benchmarks.evaluation.flow import BROKER, Flow, pauses
from benchmarks.evaluation.hashing import STEPS, start_chain
from benchmarks.evaluation.loads import Stage, booked, play
from benchmarks.evaluation.readings import homes
from qod_magics.controller.record import Record, Records
from qod_magics.core.policy import Policy, placer_of
from qod_magics.core.runtime import Event, Unplaced
from qod_magics.core.snapshot import Snapshot, TaskManager
from qod_magics.kafka.topics import create_topics
from qod_magics.policies.d_storm import DStorm
from qod_magics.policies.d_storm.packing import DEFAULTS, Channel, inter_node_traffic
from qod_magics.recordings.reading import load as load_recording
from qod_magics.session.session import Session

D_STORM, UNFUSED, ROUND_ROBIN = "d-storm", "d-storm, unfused", "storm-round-robin"
#: The defaults are windows of a minute, and ten minutes between two rounds: longer than these runs.
SHORT = replace(DEFAULTS, window_s=15.0, interval_s=30.0)
VARIANTS: Mapping[str, Variant] = {
    D_STORM: Variant(lambda: DStorm(parameters=SHORT)),
    UNFUSED: Variant(lambda: DStorm(parameters=replace(SHORT, fuse=False))),
    ROUND_ROBIN: named(ROUND_ROBIN),
}
TOPIC, PARTITIONS = "rows", 1
CHAIN = dict.fromkeys(("clean", "enrich", "score", "store"), STEPS // 4)
*_, LAST = CHAIN
FULL, QUARTER = 1.1, 0.275  #: of what one core takes
TARGET_S = 10.0  #: of the latency of the last task
WARM_S, FULL_S, QUARTER_S = 60.0, 40.0, 150.0  #: in each, tasks are fused one after the other, a window each
MEASURED_S = 25.0  #: the last part of each stage
STAGES = ("full", "quarter")
BY_HAND = "by hand"  #: why `Run.place` moves and `start_chain` parts
DONE = ("move", "fuse", "unfuse", "task-manager-removed")


def d_storm_live(out: Path, scale: float) -> dict[str, Any]:
    """Figures by policy and stage under the same load. `scale` shortens the stages, fraction of 1."""
    with running(out / "d-storm-live-calibration.jsonl", {TOPIC: PARTITIONS}, jit="c1") as run:
        run.decide_by(VARIANTS[ROUND_ROBIN].make())
        start_chain(run.session, TOPIC, CHAIN, fuse=True, priority=1)
        rate = carried(run, LAST, TOPIC, PARTITIONS, scale)
    full, quarter = {TOPIC: FULL * rate}, {TOPIC: QUARTER * rate}
    stages = [
        Stage("warm", max(WARM_S * scale, 20.0), full),
        Stage("full", FULL_S * scale, full),
        Stage("quarter", max(QUARTER_S * scale, 60.0), quarter),
    ]
    found = by_policy(VARIANTS, lambda name, variant: _run(out / f"d-storm-live-{name}.jsonl", variant, stages))
    return {"rows_s": rate, "d_storm": {"window_s": SHORT.window_s, "interval_s": SHORT.interval_s}, **found}


def _run(record: Path, variant: Variant, stages: Sequence[Stage]) -> dict[str, Any]:
    before = books.children()
    budget = {"task_managers": 2, "max_task_managers": 2, "standby": False}
    with running(record, {}, jit="c1", **budget) as run:
        create_topics(run.session.kafka, {TOPIC: PARTITIONS})
        policy = variant.make()
        run.decide_by(policy)
        start_chain(run.session, TOPIC, CHAIN, fuse=True, priority=1, max_latency_s=TARGET_S)
        run.place(submitted(policy, [*run.session.runtime.task_managers]))
        with Flow(run, LAST) as flow:
            bounds, injector = play(run, stages, PARTITIONS)
        by_stage = {}
        for name in STAGES:
            begin, end = bounds[name]
            settled = end - min(MEASURED_S, (end - begin) / 2)
            rows_s = flow.rate(settled, end)
            by_stage[name] = {
                "rows_s": rows_s,
                "cpu_us": 1e4 * flow.task_managers_cpu(settled, end) / rows_s if rows_s else None,
                "broker_us": 1e4 * flow.cpu_percent(BROKER, settled, end) / rows_s if rows_s else None,
                "down_s": sum(pauses(flow.rows, begin, end)),
            }
        run.session.pause()  # what reads the topic stays what it is
        sent = booked(run, injector, {TOPIC: reader(run.session)})
        left = books.ended(run, before)
    records = load_recording(record)
    found = told(records)
    stages_found = {name: {**by_stage[name], **found["stages"][name]} for name in STAGES}
    return {**found, "stages": stages_found, "checks": books.checks(records, sent, left, sheds=False)}


def submitted(policy: Policy, task_managers: Sequence[str]) -> Mapping[str, str]:
    """Where the policy places the whole chain on idle task managers, as Storm submits an application: here, tasks are
    declared one by one, and placed without those to come. Pure."""
    managers = [TaskManager(id, 1.0, 0.0) for id in sorted(task_managers)]
    return placer_of(policy)([Unplaced(f"{task}.1", task, None, frozenset()) for task in CHAIN], managers, ())


def reader(session: Session) -> str:
    """The task that reads the topic: the first of the chain, or what that is fused into."""
    return next(spec.id for spec in session.runtime.deployment.specs.values() if not spec.upstream)


# -- from the recording, pure ------------------------------------------------------------------------------------------


def told(records: Records) -> dict[str, Any]:
    """By stage, in the cycles of its last part: task managers up and used, and rows/s between them; and what was
    done."""
    stages = {}
    for name in STAGES:
        own = [record for record in records if record.phase == name and not record.repeated]
        if not own:
            raise ValueError(f"the recording has no cycle of the stage {name!r}: make the run longer (--scale)")
        from_s = (own[-1].at - own[0].at).total_seconds()
        last = [r for r in own if (own[-1].at - r.at).total_seconds() <= min(MEASURED_S, from_s / 2)]
        stages[name] = _of(last)
    events = [event for record in records for event in record.events]
    return {
        "stages": stages,
        "actions": [event.to_json() for event in events if event.kind in DONE and not _is_by_hand(event)],
        "policy_ms": max(record.policy_ms for record in records),
    }


def _is_by_hand(event: Event) -> bool:
    return str(event.detail.get("why")).endswith(BY_HAND)


def _of(records: Sequence[Record]) -> dict[str, Any]:
    last = records[-1].snapshot
    between = [between_rows_s(record.snapshot) for record in records]
    inside = [sum(stream.out_rate for stream in record.snapshot.streams) for record in records]
    return {
        "up": len(last.task_managers),
        "used": len({instance.task_manager for instance in last.instances}),
        "between_rows_s": fmean(between),
        "streams_rows_s": fmean(inside),
        "homes": homes(records[-1]),
    }


def between_rows_s(snapshot: Snapshot) -> float:
    """Rows/s between task managers: those of each stream, split evenly over the pairs of instances of its tasks."""
    of_task: dict[str, list[str]] = {task.id: [] for task in snapshot.tasks}
    for instance in snapshot.instances:
        of_task[instance.task].append(instance.id)
    channels = []
    for stream in snapshot.streams:
        pairs = [(a, b) for a in of_task[stream.source] for b in of_task[stream.target]]
        channels += [Channel(a, b, stream.out_rate / len(pairs)) for a, b in pairs]
    return inter_node_traffic(channels, {instance.id: instance.task_manager for instance in snapshot.instances})
