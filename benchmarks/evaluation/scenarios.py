"""Scenarios 1 to 3 of the paper's evaluation, run live; each gives figures and a recording."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import correlation
from typing import Any

from benchmarks.evaluation import readings
from benchmarks.evaluation.applications import TOPICS, points, start_knn, start_taxi_drives, trips
from benchmarks.evaluation.cluster import Run, running
from qod_magics.controller.record import Record, Records
from qod_magics.kafka.history import OffsetHistory
from qod_magics.recordings.reading import load as load_recording
from qod_magics.recordings.reading import queries
from qod_magics.recordings.verdict import verdict

CALM = 250.0  #: rows/s of both topics together while costs are measured
CALM_S = 10.0  #: at least, after calibration, with shedders under control again
LONG_S = 3600.0  #: longer than any run
#: Criteria of the verdict on a recording that apply to every scenario.
HOLD = ("every plan", "every query keeps", "lag stays", "every row")


def same_priority(out: Path, scale: float) -> dict[str, Any]:
    """Scenario 1: load rises on one task manager, both queries shed, none below its minimum; a second task manager
    is added, and under a heavier load both instances of TDSnk1 move there.

    `scale` shortens the phases, fraction of 1.
    """
    record = out / "scenario1.jsonl"
    with running(record, dict.fromkeys(TOPICS, 1)) as run:
        start_taxi_drives(run.session, {"TDSnk1": (1, 0.4), "TDSnk2": (1, 0.6)})
        _taxi_course(run, scale, over=1.45, heavy=2.9)
    return {**_figures(record), **_taxi_figures(record)}


def two_priorities(out: Path, scale: float) -> dict[str, Any]:
    """Scenario 2: KNN joins, with a priority below TDSnk1's, which is below TDSnk2's; as the load rises KNN sheds
    first, then TDSnk1; then instances move."""
    record = out / "scenario2.jsonl"
    with running(record, {**dict.fromkeys(TOPICS, 1), "points": 2}) as run:
        start_taxi_drives(run.session, {"TDSnk1": (2, 0.2), "TDSnk2": (3, 0.4)})
        load = run.calibrate(lambda rate: trips(rate / 2, LONG_S), CALM)
        run.until_settled(CALM_S)
        run.phase("second-task-manager")
        run.session.add_task_manager(cpus=[run.last_core])
        start_knn(run.session, "KNN", 1, 0.1)
        run.inject(points(60, LONG_S))
        run.until_settled(30 * scale)
        steps: list[float] = []
        for name, times in (("rising-1", 1.2), ("rising-2", 1.9), ("rising-3", 2.6)):
            run.phase(name)
            more = run.rows_for(times) - CALM - sum(steps)
            if more > 0:
                run.inject(trips(more / 2, LONG_S, seed=2 + len(steps)))
                steps.append(more)
            run.until_settled(40 * scale)
        run.phase(None)
        load.stop()
    records = load_recording(record)
    by_phase = {name: readings.mean_accuracy(records, name) for name in ("rising-1", "rising-2", "rising-3")}
    return {**_figures(record), "accuracy": by_phase, "gives_way": _order(records)}


def kafka_lag(out: Path, scale: float) -> dict[str, Any]:
    """Scenario 3: KNN on two instances while its rate goes up and down in steps and ramps: accuracy follows, lag stays
    near 0, and the input rate is estimated."""
    record = out / "scenario3.jsonl"
    with running(record, {"points": 2}) as run:
        start_knn(run.session, "KNN", 1, 0.1)
        load = run.calibrate(lambda rate: points(rate, LONG_S), 200)
        run.until_settled(CALM_S)
        load.stop()
        top = run.rows_for(2.5)
        unit = 20 * scale
        rates = [
            *((0, 0.3), (2, 0.3), (2, 1.0), (4, 1.0), (4, 0.5), (6, 0.5)),
            *((9, 1.0), (11, 0.3), (11, 0.8), (13, 0.8), (13, 0.3), (15, 0.3)),
        ]
        run.phase("changing")
        changing = run.inject(points([[unit * at, top * share] for at, share in rates], unit * rates[-1][0]))
        changing.wait(unit * rates[-1][0] + 60)
        run.phase(None)
        run.wait(10)
        loads = run.injected
    changes = [each for each in load_recording(record) if each.phase == "changing" and not each.repeated]
    known = [
        (accuracy, rate)
        for each in changes
        if (accuracy := each.measured.accuracy.get("KNN")) is not None and (rate := each.measured.input_rate.get("KNN"))
    ]
    accuracies, coming = [accuracy for accuracy, _ in known], [rate for _, rate in known]
    return {
        **_figures(record),
        "correlation": correlation(accuracies, coming),
        "correlation_inverse": correlation(accuracies, [1 / rate for rate in coming]),
        "rate": rate_estimates(changes, loads[-1:], "KNN", "points"),
    }


def _taxi_course(run: Run, scale: float, over: float, heavy: float) -> None:
    """Calm, a rise to `over` times one task manager's capacity, a second one, a rise to `heavy` times, calm again."""
    run.calibrate(lambda rate: trips(rate / 2, LONG_S), CALM)
    run.until_settled(CALM_S)
    first = max(run.rows_for(over) - CALM, CALM)
    second = max(run.rows_for(heavy) - first - CALM, 0.4 * first)
    loads = []
    run.phase("overload")
    loads.append(run.inject(trips([[0, 0], [20 * scale, first / 2]], LONG_S, seed=2)))
    run.until_settled(55 * scale)
    run.phase("second-task-manager")
    run.session.add_task_manager(cpus=[run.last_core])
    run.until_settled(20 * scale)
    run.phase("heavier")
    loads.append(run.inject(trips([[0, 0], [20 * scale, second / 2]], LONG_S, seed=3)))
    run.until_settled(60 * scale)
    run.phase("calm-again")
    for each in loads:
        each.stop()
    run.until_settled(35 * scale)
    run.phase(None)


def _figures(record: Path) -> dict[str, Any]:
    """The figures of every scenario."""
    records = load_recording(record)
    criteria = [c for c in verdict(records) if c.name.startswith(HOLD)]
    return {
        "criteria": [{"name": c.name, "passed": c.passed, "detail": c.detail} for c in criteria],
        "worst_margin": readings.worst_margin(readings.measured_part(records)),
        "moves": readings.moves(records),
        "homes": readings.homes(records[-1]),
        "most_lag_periods": readings.most_lag_periods(readings.measured_part(records)),
        "period_s": records[-1].period_s,
        "series": readings.series(records),
    }


def _taxi_figures(record: Path) -> dict[str, Any]:
    records = load_recording(record)
    return {
        "accuracy_error": readings.source_errors(readings.measured_part(records)),
        "reaction_up_s": readings.reaction_s(records, "overload"),
        "reaction_down_s": readings.reaction_s(records, "calm-again"),
        "accuracy": {
            name: readings.mean_accuracy(records, name)
            for name in ("overload", "second-task-manager", "heavier", "calm-again")
        },
        "homes_heavier": readings.homes([each for each in records if each.phase == "heavier"][-1]),
    }


def _order(records: Records) -> list[str]:
    """The queries in the order in which the plan first shed a tenth of their input, once the load rose."""
    found: list[str] = []
    for record in records:
        if record.phase.startswith("rising"):
            desired = record.plan.desired
            given = [query for query in queries(record) if desired.get(query, 1.0) < 0.9 and query not in found]
            found += sorted(given, key=desired.__getitem__)
    return found


def rate_estimates(records: Records, loads: Sequence[Path], source: str, *topics: str) -> dict[str, Any]:
    """Errors of a source's input rate, as cycles used it and as the thesis estimates it (consumed rate plus the change
    of the lag), against the rows sent to its topics over the same seconds."""
    sent = [_sent(load) for load in loads]
    ours, theirs = [], []
    before: Record | None = None
    for record in records:
        end = record.at.timestamp()
        truth = sum(each.rows(t, end - record.period_s, end) for each in sent for t in topics) / record.period_s
        count = record.measured.counts[source]
        if truth > 0:
            ours.append((record.measured.input_rate[source], truth))
        if before is not None:
            then = before.measured.counts[source]
            took_s = end - before.at.timestamp()
            consumed = (count.processed + count.dropped - then.processed - then.dropped) / took_s
            growth = (record.measured.lag[source] - before.measured.lag[source]) / took_s
            if truth > 0:
                theirs.append((consumed + growth, truth))
        before = record
    return {"ours": readings.errors_of(ours), "thesis": readings.errors_of(theirs)}


def _sent(load: Path) -> OffsetHistory:
    """Rows acknowledged to an injector over wall-clock time, by topic, as if of one partition."""
    lines = [json.loads(text) for text in load.read_text("utf-8").splitlines()]
    history = OffsetHistory(LONG_S)
    for line in lines:
        at = datetime.fromisoformat(line["at"]).timestamp()
        if line["kind"] == "start":
            history.record(at, {each["topic"]: {0: 0} for each in lines if each["kind"] == "counts"})
        elif line["kind"] == "counts":
            history.record(at, {line["topic"]: {0: line["acknowledged"]}})
    return history
