"""Scenario 4: the same application under the same load, by the controller, by Spark alone, and by a fixed drop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.evaluation import readings
from benchmarks.evaluation.applications import TOPICS, start_timed_taxi_drives, trips
from benchmarks.evaluation.cluster import Run, running
from benchmarks.evaluation.scenarios import CALM, LONG_S
from qod_magics.controller import read
from qod_magics.phases import Lines, is_repeated, phases
from qod_magics.policies import policy
from qod_magics.session import Session

#: Phases of the load: name, how many times what the task manager carries, seconds at full length.
COURSE = (("0.6x", 0.6, 30.0), ("1.5x", 1.5, 50.0), ("3x", 3.0, 50.0), ("back", 0.6, 60.0))
RESTRICTIONS = {"TDSnk1": (1, 0.1), "TDSnk2": (2, 0.2)}
#: The paper's, and the best of the others.
POLICIES = ("stream-economics", "stream-economics-reactive")


def engines(out: Path, scale: float) -> dict[str, Any]:
    """Each engine in turn on the same broker and task manager, warm and with nothing waiting."""
    record = out / "engines.jsonl"
    found: dict[str, Any] = {}
    with running(record, dict.fromkeys(TOPICS, 1)) as run:
        start_timed_taxi_drives(run.session, RESTRICTIONS)
        run.calibrate(trips(CALM / 2, LONG_S), CALM).stop()
        rates = {times: run.rows_for(times) for _, times, _ in COURSE}
        for name in POLICIES:
            _decide_by(run.session, name)
            found[name] = _course(run, out, name, rates, scale)
        with _alone(run.session):
            found["spark alone"] = _course(run, out, "spark-alone", rates, scale)
        held = fmean(found[POLICIES[0]]["3x"]["accuracy"].values())
        with _held(run.session, held):
            found["fixed drop"] = _course(run, out, "fixed-drop", rates, scale)
    return {"engines": found, "fixed_drop_keeps": held, "rows_per_s": {f"{t:g}x": rate for t, rate in rates.items()}}


def _decide_by(session: Session, name: str) -> None:
    """From the next cycle on."""

    def change() -> None:
        session.controller.policy = policy(name)

    session.thread.submit(change).result(30.0)


@contextmanager
def _alone(session: Session) -> Iterator[None]:
    session.pause(open_shedders=True)
    try:
        yield
    finally:
        session.resume()


@contextmanager
def _held(session: Session, keep: float) -> Iterator[None]:
    """A random drop at the sources, and nowhere else, that nothing changes."""
    shedders = session.shedders
    for name in shedders:
        session.override(name, keep if ">" not in name else 1.0)
    try:
        yield
    finally:
        for name in shedders:
            session.override(name, None)


def _course(run: Run, out: Path, name: str, rates: Mapping[float, float], scale: float) -> dict[str, Any]:
    """Run the load once, from the newest rows on, and tell of each phase what came of it."""
    session = run.session
    session.stop_all()
    start_timed_taxi_drives(session, RESTRICTIONS)
    path = out / f"engines-{name}.jsonl"
    session.record(path)
    run.phase(None)
    base = run.inject(trips(CALM / 2, LONG_S))
    run.wait(15)
    base.stop()
    for phase, times, seconds in COURSE:
        run.phase(phase)
        load = run.inject(trips(max(rates[times], 2.0) / 2, LONG_S, seed=5))
        run.wait(seconds * scale)
        load.stop()
    run.phase(None)
    run.wait(2 * session.controller.period_s)
    ages = {query: _windows(session, query) for query in RESTRICTIONS}
    lines = tuple(line for line in read(path) if not is_repeated(line))
    return {phase: _phase(lines, phase, ages) for phase, _, _ in COURSE}


def _windows(session: Session, query: str) -> list[dict[str, Any]]:
    """The last that a query told of each of its windows."""
    last: dict[float, dict[str, Any]] = {}
    for row in session.results(query).collect():
        start = row["window"]["start"].replace(tzinfo=UTC).timestamp()
        if start not in last or row["rows"] > last[start]["rows"]:
            last[start] = {"start": start, **{key: row[key] for key in ("rows", "end_to_end", "inside")}}
    return sorted(last.values(), key=lambda window: float(window["start"]))


def _phase(lines: Lines, name: str, ages: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    part = [line for line in lines if line.get("phase") == name]
    first, last = part[0], part[-1]
    begin, end = (datetime.fromisoformat(line["at"]).timestamp() for line in (first, last))
    assert any(phase.name == name for phase in phases(lines))
    found: dict[str, Any] = {
        "lag_rows": sum(lag for edge, lag in last["measured"]["lag"].items() if ">" not in edge),
        "waiting_rows": sum(last["measured"]["lag"].values()),
        "accuracy": readings.mean_accuracy(lines, name),
        "processed_per_s": {
            query: sum(
                _growth(first, last, edge) for edge in last["measured"]["counts"] if edge.rpartition(">")[2] == query
            )
            / max(end - begin, 1e-9)
            for query in ages
        },
    }
    for kind in ("end_to_end", "inside"):
        seen = {query: [w[kind] for w in windows if begin <= w["start"] <= end] for query, windows in ages.items()}
        found[f"{kind}_ms"] = {
            query: {
                "p50": median(ages[0] for ages in values),
                "p95": max(ages[1] for ages in values),
                "p99": max(ages[2] for ages in values),
            }
            for query, values in seen.items()
            if values
        }
    return found


def _growth(first: Mapping[str, Any], last: Mapping[str, Any], edge: str) -> int:
    before = first["measured"]["counts"].get(edge, {"processed": 0})["processed"]
    return int(last["measured"]["counts"][edge]["processed"] - before)
