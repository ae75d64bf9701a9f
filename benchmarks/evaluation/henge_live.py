"""Henge live: three queries with a target of their latency on two task managers, and a step of the load of one of them;
utility over time under static placement, under Stream Economics, and under Henge.

Utilities are computed alike for all three, by the policy's own code from the recording: of the latency alone, as Henge
judges a query with a target (equation 2); and of latency and juice (equations 3 to 5), with rows that were shed counted
as missed, since Stream Economics keeps its latencies by shedding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.evaluation import books
from benchmarks.evaluation.by_policy import Variant, by_policy, carried, named
from benchmarks.evaluation.cluster import running
from benchmarks.evaluation.hashing import start_queries
from benchmarks.evaluation.loads import Stage, booked, play
from benchmarks.evaluation.readings import homes
from qod_magics.controller.record import Records
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot, Task, replace
from qod_magics.kafka.topics import create_topics
from qod_magics.policies import DEFAULT_POLICY
from qod_magics.policies.henge import Henge, Parameters
from qod_magics.policies.henge.utility import Utility, hybrid_utility, satisfaction
from qod_magics.recordings.reading import load as load_recording

STATIC, ECONOMICS, HENGE = "static placement", DEFAULT_POLICY, "henge"
#: The defaults wait for five minutes after a start and for one after each step: longer than these runs. If a step is
#: judged much sooner, its backlog has not drained and it is taken back (seen in the simulator, on the same load).
SHORT = Parameters(warm_up_s=10.0, settle_s=45.0, observe_s=5.0, readings=2)
VARIANTS: Mapping[str, Variant] = {
    STATIC: named("storm-round-robin"),
    ECONOMICS: named(DEFAULT_POLICY, sheds=True),
    HENGE: Variant(lambda: Henge(SHORT)),
}
TOPICS = {"first": "jobs1", "second": "jobs2", "third": "jobs3"}  #: by query
#: Where they start, under every policy.
HOMES = {"first.1": "tm1", "second.1": "tm2", "third.1": "tm1"}
PARTITIONS = 2  #: of each: the most instances of a query
TARGET_S, UTILITY, LEAST = 3.0, 35.0, 0.1
CALM, STEP = 0.08, 1.0  #: of what a core takes, for each query; and for the first one after the step
WARM_S, CALM_S, STEP_S = 30.0, 40.0, 120.0
COURSE = ("calm", "step")  #: the stages that count
SLICE_S = 10.0
SMOOTH = 4  #: cycles whose mean juice counts: a real-time batch, which reports its rows at its end, is as long as one
MET = 99.0  #: satisfaction, %, from which on all targets count as met


def henge_live(out: Path, scale: float) -> dict[str, Any]:
    """Figures by policy under the same load. `scale` shortens its stages, fraction of 1."""
    with running(out / "henge-live-calibration.jsonl", dict.fromkeys(TOPICS.values(), PARTITIONS), jit="c1") as run:
        run.decide_by(VARIANTS[STATIC].make())
        start_queries(run.session, {"first": TOPICS["first"]}, priority=1, min_accuracy=LEAST)
        rate = carried(run, "first", TOPICS["first"], PARTITIONS, scale)
    calm = dict.fromkeys(TOPICS.values(), CALM * rate)
    stages = [
        Stage("warm", max(WARM_S * scale, 15.0), calm),
        Stage("calm", CALM_S * scale, calm),
        Stage("step", STEP_S * scale, {**calm, TOPICS["first"]: STEP * rate}),
    ]
    found = by_policy(
        VARIANTS, lambda name, variant: _run(out / f"henge-live-{name.split()[0]}.jsonl", variant, stages)
    )
    return {
        "rows_s": rate,
        "target_s": TARGET_S,
        "henge": {name: getattr(SHORT, name) for name in ("warm_up_s", "settle_s", "observe_s", "readings")},
        **found,
    }


def _run(record: Path, variant: Variant, stages: Sequence[Stage]) -> dict[str, Any]:
    before = books.children()
    with running(record, {}, task_managers=2, jit="c1") as run:
        create_topics(run.session.kafka, dict.fromkeys(TOPICS.values(), PARTITIONS))
        run.decide_by(variant.make())
        restrictions = {"priority": 1, "min_accuracy": LEAST, "max_latency_s": TARGET_S, "utility": UTILITY}
        start_queries(run.session, TOPICS, **restrictions)
        run.place(HOMES)
        _, injector = play(run, stages, PARTITIONS)
        sent = booked(run, injector, {topic: query for query, topic in TOPICS.items()})
        left = books.ended(run, before)
    records = load_recording(record)
    return {**figures(records), "checks": books.checks(records, sent, left, sheds=variant.sheds)}


# -- from the recording, pure ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """One cycle. Satisfactions are 100 W / W* (equation 7 of the card), %."""

    at_s: float  #: since the recording's first cycle
    phase: str
    by_latency: float
    with_juice: float  #: of latency and juice, with rows that were shed counted as missed
    kept: float  #: mean accuracy of the queries


def readings(records: Records) -> list[Reading]:
    """Utilities in each cycle of the stages: by that cycle's latencies alone, and with the mean juice of the last
    `SMOOTH` cycles."""
    by_latency, by_juice = _Judge(1), _Judge(SMOOTH)
    found = []
    for record in records:
        if record.repeated:
            continue
        latency = by_latency.of(record.snapshot, record.measured)
        juice = by_juice.of(_untargeted(record.snapshot), _missed(record.measured))
        both = {job: Utility(hybrid_utility(one.current, juice[job].current), one.most) for job, one in latency.items()}
        known = [each for each in record.measured.accuracy.values() if each is not None]
        if record.phase and known:
            at_s = (record.at - records[0].at).total_seconds()
            satisfied = satisfaction(latency.values()), satisfaction(both.values())
            found.append(Reading(at_s, record.phase, *satisfied, fmean(known)))
    return found


class _Judge:
    """Henge's view of a course of snapshots, without its actions."""

    def __init__(self, readings: int) -> None:
        self._policy = Henge(Parameters(readings=readings, observe_s=0.01))
        self._memory: Any = None

    def of(self, snapshot: Snapshot, measured: Measured) -> Mapping[str, Utility]:
        """Utilities by job, from the means of the last readings."""
        learned, self._memory = self._policy.learn(snapshot, measured, self._memory)
        return self._policy.turn(learned).utilities


def _untargeted(snapshot: Snapshot) -> Snapshot:
    """The snapshot without targets of latency: its queries are judged by their juice."""

    def without(task: Task) -> Task:
        return replace(task, max_latency_s=None)

    return replace(snapshot, tasks=tuple(map(without, snapshot.tasks)))


def _missed(measured: Measured) -> Measured:
    """The measurements with rows that were shed counted as waiting: for juice, they are not processed."""
    counts = {
        name: replace(count, dropped=0, waiting=count.waiting + count.dropped)
        for name, count in measured.counts.items()
    }
    return replace(measured, counts=counts)


def figures(records: Records) -> dict[str, Any]:
    """The figures of one policy's run."""
    each = readings(records)
    course = [reading for reading in each if reading.phase in COURSE]
    step = [reading for reading in each if reading.phase == "step"]
    if not step:
        raise ValueError("the recording has no cycle after the step: make the run longer (--scale)")
    began_s = step[0].at_s
    actions = [
        {"at_s": (record.at - records[0].at).total_seconds() - began_s, **event.to_json()}
        for record in records
        for event in record.events
        if event.kind in ("scale", "move") and record.phase in COURSE
    ]
    return {
        "calm": fmean(r.by_latency for r in course if r.phase == "calm") if course[0].phase == "calm" else None,
        "by_latency": _spread([r.by_latency for r in step]),
        "with_juice": _spread([r.with_juice for r in step]),
        "kept": fmean(r.kept for r in step),
        "slices": slices(step),
        "met_after_s": met_after_s(step),
        "actions": actions,
        "in_actions": sum(each.get("took_s", 0.0) for each in actions) / max(course[-1].at_s - course[0].at_s, 1.0),
        "homes": homes(records[-1]),
        "policy_ms": max(record.policy_ms for record in records),
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": fmean(values), **{f"p{p}": float(np.percentile(values, p)) for p in (15, 50, 90)}}


def slices(step: Sequence[Reading]) -> list[dict[str, float]]:
    """Means over consecutive parts of the step, `SLICE_S` seconds each."""
    by_slice: dict[int, list[Reading]] = {}
    for reading in step:
        by_slice.setdefault(int((reading.at_s - step[0].at_s) / SLICE_S), []).append(reading)
    return [
        {
            "from_s": number * SLICE_S,
            "by_latency": fmean(r.by_latency for r in group),
            "with_juice": fmean(r.with_juice for r in group),
            "kept": fmean(r.kept for r in group),
        }
        for number, group in sorted(by_slice.items())
    ]


def met_after_s(step: Sequence[Reading]) -> float | None:
    """Seconds from the step until all targets of latency are met for the rest of it; None: never."""
    since = None
    for reading in step:
        if reading.by_latency < MET:
            since = None
        elif since is None:
            since = reading.at_s - step[0].at_s
    return since
