"""Stela live: a chain of tasks without state gets more than one core takes; a second task manager joins, and the policy
uses it. Throughput before and after, and the time without a row at the end of the chain, for Stela and for those that
it was compared with.

The second task manager shares its core with broker and injector. What these leave of it bounds every policy: that is
measured, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.evaluation import books
from benchmarks.evaluation.by_policy import Variant, by_policy, carried, named
from benchmarks.evaluation.cluster import Run, running
from benchmarks.evaluation.convergence import convergence_s
from benchmarks.evaluation.flow import BROKER, INJECTOR, Flow, pauses, windows
from benchmarks.evaluation.hashing import STEPS, start_chain
from benchmarks.evaluation.loads import Stage, booked, scenario
from benchmarks.evaluation.readings import homes
from benchmarks.evaluation.scenarios import LONG_S
from qod_magics.controller.record import Records
from qod_magics.kafka.topics import create_topics
from qod_magics.recordings.reading import load as load_recording

STELA, RE_DEAL, LINK_LOAD = "stela", "storm-re-deal", "least-link-load"
VARIANTS: Mapping[str, Variant] = {name: named(name) for name in (STELA, RE_DEAL, LINK_LOAD)}
TOPIC, PARTITIONS = "rows", 4
#: The tasks, and the steps of the hash in each: most of the work is in the middle.
CHAIN = {"read": STEPS // 50, "work": STEPS * 7 // 10, "write": STEPS // 4}
FIRST, *_, LAST = CHAIN
MOST = 4  #: instances of a task
OFFERED = 2.8  #: of what one core takes, as measured: it may be more once all code is compiled
WARM_S, BEFORE_S, AFTER_S = 25.0, 20.0, 60.0
MEASURED_S = 25.0  #: the last part of what follows the join
WINDOW_S = 2.5  #: of the convergence rule; the source's are of 10 s, in runs of an hour


def stela_live(out: Path, scale: float) -> dict[str, Any]:
    """Figures by policy under the same load. `scale` shortens it, fraction of 1."""
    with running(out / "stela-live-calibration.jsonl", {TOPIC: PARTITIONS}, jit="c1") as run:
        run.decide_by(VARIANTS[STELA].make())
        start_chain(run.session, TOPIC, CHAIN, priority=1)
        rate = carried(run, LAST, TOPIC, PARTITIONS, scale)
    found = by_policy(VARIANTS, lambda name, variant: _run(out / f"stela-live-{name}.jsonl", variant, rate, scale))
    return {"rows_s": rate, "offered": OFFERED, "window_s": WINDOW_S, **found}


def _run(record: Path, variant: Variant, rate: float, scale: float) -> dict[str, Any]:
    before = books.children()
    with running(record, {}, jit="c1") as run:
        create_topics(run.session.kafka, {TOPIC: PARTITIONS})
        run.decide_by(variant.make())
        start_chain(run.session, TOPIC, CHAIN, max_parallelism=MOST, priority=1)
        load = run.inject(scenario([Stage("load", LONG_S, {TOPIC: OFFERED * rate})], PARTITIONS))
        with Flow(run, LAST) as flow:
            figures = _figures(run, flow, scale)
        sent = booked(run, load, {TOPIC: FIRST})
        left = books.ended(run, before)
    records = load_recording(record)
    return {**figures, **told(records), "checks": books.checks(records, sent, left, sheds=False)}


def _figures(run: Run, flow: Flow, scale: float) -> dict[str, Any]:
    """Warm up, measure, have the second task manager join, measure again."""
    run.phase("warm")
    run.wait(max(WARM_S * scale, 15.0))
    run.phase("before")
    begun = time.time()
    run.wait(BEFORE_S * scale)
    until = time.time()
    run.phase("joins")
    second = run.session.add_task_manager(cpus=[run.last_core])
    first = next(iter(run.session.runtime.task_managers))
    joined = time.time()
    run.phase("after")
    run.wait(max(AFTER_S * scale, 30.0))
    end = time.time()
    run.phase(None)
    settled = end - min(MEASURED_S, (end - joined) / 2)
    course = windows(flow.rows, joined, end, WINDOW_S)
    return {
        "before": flow.rate(begun, until),
        "after": flow.rate(settled, end),
        "paused_before_s": sum(pauses(flow.rows, begun, until)),
        "down_s": sum(pauses(flow.rows, joined, end)),
        "longest_pause_s": max(pauses(flow.rows, joined, end), default=0.0),
        "convergence_s": convergence_s(course, WINDOW_S),
        "course": course,
        "cpu_before": flow.cpu_percent(first, begun, until),
        "cpu": {
            name: flow.cpu_percent(id, settled, end)
            for name, id in (("first", first), ("second", second), (BROKER, BROKER), (INJECTOR, INJECTOR))
        },
    }


def told(records: Records) -> dict[str, Any]:
    """What was done, from the recording. Pure."""
    events = [event for record in records for event in record.events]
    return {
        "actions": [event.to_json() for event in events if event.kind in ("scale", "move")],
        "homes": homes(records[-1]),
        "policy_ms": max(record.policy_ms for record in records),
    }
