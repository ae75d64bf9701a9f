"""Scenario 4: the same application under the same load, with the controller, Spark alone, a fixed drop, Spark with
bounded batches, and Flink."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.evaluation import readings
from benchmarks.evaluation.applications import TOPICS, start_timed_taxi_drives, trips
from benchmarks.evaluation.cluster import Run, running
from benchmarks.evaluation.course import COURSE, WARM_S, Course, Engine, Load, Seen, Window, last_told
from benchmarks.evaluation.flink.engine import flink
from benchmarks.evaluation.flink.environment import FLINK_VERSION, environment
from benchmarks.evaluation.plain import plain_spark
from benchmarks.evaluation.row import ALONE, BOUNDED, DEFAULT, FIXED, FLINK, PAPERS, REALTIME
from benchmarks.evaluation.scenarios import CALM, LONG_S
from qod_magics.application.streams.stream import Mode
from qod_magics.controller.record import Record, Records
from qod_magics.core.runtime import Count
from qod_magics.errors import SetupError
from qod_magics.kafka.reading import end_offsets
from qod_magics.policies import DEFAULT_POLICY, policy
from qod_magics.recordings.reading import load as load_recording
from qod_magics.session.session import Session

RESTRICTIONS = {"TDSnk1": (1, 0.1), "TDSnk2": (2, 0.2)}
#: Ours: policy and Spark mode.
DECIDING: Mapping[str, tuple[str, Mode]] = {
    PAPERS: (PAPERS, "realtime"),  # it assumes CPU proportional to rows, which that of micro-batches is not
    DEFAULT: (DEFAULT_POLICY, "auto"),
    REALTIME: (DEFAULT_POLICY, "realtime"),
}
#: In the order of their turns.
ENGINES = (*DECIDING, ALONE, FIXED, BOUNDED, FLINK)
#: Batch bounds that are tried, in seconds of the task manager's capacity, and over what share of the load.
BATCHES_S = (1.0, 2.0, 4.0)
TRIED = 0.4
#: Calm load before Flink's first phase: its JVM is new, and compiles for half a minute.
FLINK_WARM_S = 30.0
MORE = 40_000.0  #: rows/s that saturate every engine here on one core


def engines(
    out: Path,
    scale: float,
    which: Collection[str] = ENGINES,
    course: Course = COURSE,
    batch_s: float | None = None,
) -> dict[str, Any]:
    """Run each engine in turn on the same broker and core, warm and without backlog.

    Args:
        out: recordings go here.
        scale: share of the full length of the phases.
        which: of `ENGINES`; the fixed drop needs the paper's policy, whose accuracy it keeps.
        course: the phases, one of them `3x`.
        batch_s: plain Spark's batch bound, seconds of the task manager's capacity; None: the best is found.

    """
    record = out / "engines.jsonl"
    found: dict[str, Any] = {}
    courses: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    left_out: dict[str, str] = {}
    carried: float | None = None
    batches: dict[str, Any] | None = None

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        seconds[name] = time.monotonic() - begun
        print(f"{name}: {seconds[name]:.0f} s", flush=True)

    def keep(name: str, figures: Mapping[str, Any], seen: Seen) -> None:
        found[name], courses[name] = figures, seen.course()

    with running(record, dict.fromkeys(TOPICS, 1)) as run:
        with timed("calibration"):
            # CPU is nearly proportional to rows there; in micro-batches, a batch's fixed costs would count as its rows'
            start_timed_taxi_drives(run.session, RESTRICTIONS, "realtime")
            run.calibrate(lambda rate: trips(rate / 2, LONG_S), CALM).stop()
        rates = {times: run.rows_for(times) for _, times, _ in course}
        load = Load(run, rates, course).lasting(scale)
        for name, (policy_name, mode) in DECIDING.items():
            if name not in which:
                continue
            _decide_by(run.session, policy_name)
            with timed(name):
                keep(name, *_course(load, out, name, lambda: _at_rest(run), mode))
        if ALONE in which:
            with timed(ALONE), _alone(run.session):
                keep(ALONE, *_course(load, out, "spark-alone", lambda: run.wait(WARM_S)))
        held = fmean(found[PAPERS]["3x"]["accuracy"].values()) if PAPERS in found else None
        if FIXED in which and held is not None:
            with timed(FIXED), _held(run.session, held):
                keep(FIXED, *_course(load, out, "fixed-drop", lambda: run.wait(WARM_S)))
        run.session.stop_all()
        if BOUNDED in which:
            with timed("batches"):
                batches = _batches(load, [batch_s] if batch_s else BATCHES_S)
            with timed(BOUNDED), plain_spark(run.session, batches["best"]) as plain:
                keep(BOUNDED, *_undropped(load.watched(plain)))
        if FLINK in which:
            try:
                with timed(FLINK), flink(run.session, environment(), run.first_cores, {run.last_core}) as engine:
                    keep(FLINK, *_undropped(load.watched(engine, FLINK_WARM_S)))
                    carried = _carried(run, engine)
                    own = replace(load, rates={times: times * carried for times in rates})
                    keep(f"{FLINK}, own load", *_undropped(own.watched(engine)))
            except SetupError as error:  # keep the figures of the others
                print(f"Flink is left out: {error}", flush=True)
                left_out[FLINK] = f"PyFlink {FLINK_VERSION} could not be installed or started"
    return {
        "engines": found,
        "fused": True,  # our queries are fused with their sources
        "left_out": left_out,
        "courses": courses,
        "fixed_drop_keeps": held,
        "rows_per_s": {f"{t:g}x": rate for t, rate in rates.items()},
        "flink_carries": carried,
        "rows_per_batch": batches,
        "seconds": seconds,
    }


def _at_rest(run: Run) -> None:
    """Wait until all warm-ups are over and the plan is steady: after an overload, a policy takes a while to stop
    shedding."""
    run.until_settled(WARM_S, quiet_s=WARM_S, at_most_s=60.0)
    run.until_steady(at_most_s=90.0)


def _batches(load: Load, bounds_s: Sequence[float]) -> dict[str, Any]:
    """The best batch bound, in rows and in seconds of the task manager's capacity, and the mean backlog under each: a
    single one is not tried."""
    rows = {bound: round(bound * load.run.rows_for(1.0)) for bound in bounds_s}
    waited: dict[str, float] = {}
    if len(rows) > 1:
        short = load.lasting(TRIED)
        for limit in rows.values():
            with plain_spark(load.run.session, limit) as engine:
                waited[str(limit)] = short.mean_waiting(engine)
    best = min(rows, key=lambda bound: waited.get(str(rows[bound]), 0.0))
    return {"best": rows[best], "seconds": best, "waited": waited}


def _carried(run: Run, engine: Engine) -> float:
    """An engine's throughput under a saturating load, rows/s of both topics together; its backlog is then drained."""
    load = run.inject(trips(MORE / 2, LONG_S))
    run.wait(10)
    first, begun = _taken(run, engine), time.monotonic()
    run.wait(15)
    rows, took_s = _taken(run, engine) - first, time.monotonic() - begun
    load.stop()
    for _ in range(180):
        if engine.waiting() == 0:
            break
        run.wait(1)
    return rows / took_s


def _taken(run: Run, engine: Engine) -> int:
    ends = end_offsets(run.session.kafka, TOPICS, timeout_s=10.0)
    return sum(sum(parts.values()) for parts in ends.values()) - (engine.waiting() or 0)


def _decide_by(session: Session, name: str) -> None:
    """Switch the policy from the next cycle on."""

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
    """A constant random drop at the sources, and nowhere else."""
    shedders = session.shedders
    for name in shedders:
        session.override(name, keep if ">" not in name else 1.0)
    try:
        yield
    finally:
        for name in shedders:
            session.override(name, None)


def _course(
    load: Load, out: Path, name: str, warm: Callable[[], object], mode: Mode = "auto"
) -> tuple[dict[str, Any], Seen]:
    """Run the load once on a session's engine, from the newest rows on: the figures of each phase, and all
    samples."""
    run, session = load.run, load.run.session
    session.stop_all()
    start_timed_taxi_drives(session, RESTRICTIONS, mode)
    path = out / f"engines-{name.replace(' ', '-')}.jsonl"
    session.record(path)
    load.play(run, warm)
    run.wait(2 * session.controller.period_s)
    records = [record for record in load_recording(path) if not record.repeated]
    seen = _seen(records, {query: _windows(session, query) for query in RESTRICTIONS})
    return {phase: {**seen.phase(phase), **_of_a_session(records, phase)} for phase, _, _ in load.phases}, seen


def _undropped(seen: Seen) -> tuple[dict[str, Any], Seen]:
    """The same for an engine that drops nothing."""
    return {name: {**seen.phase(name), "accuracy": dict.fromkeys(RESTRICTIONS, 1.0)} for name in seen.spans}, seen


def _windows(session: Session, query: str) -> list[Window]:
    """The last report of each of a query's windows."""
    return last_told(
        [
            {
                "start": row["window"]["start"].replace(tzinfo=UTC).timestamp(),
                **{key: row[key] for key in ("rows", "end_to_end", "inside")},
            }
            for row in session.results(query).collect()
        ]
    )


def _seen(records: Records, windows: Mapping[str, Sequence[Window]]) -> Seen:
    """The samples in a recording."""
    seen = Seen(windows=windows)
    for record in records:
        second = record.at.timestamp()
        seen.waiting.append((second, sum(record.measured.lag.values())))
        if record.phase:
            seen.spans[record.phase] = (seen.spans.get(record.phase, (second, second))[0], second)
    return seen


def _of_a_session(records: Records, name: str) -> dict[str, Any]:
    """The figures of a phase that only a recording has."""
    part = [record for record in records if record.phase == name]
    first, last = part[0], part[-1]
    took_s = (last.at - first.at).total_seconds()
    return {
        "lag_rows": sum(lag for edge, lag in last.measured.lag.items() if ">" not in edge),
        "accuracy": readings.mean_accuracy(records, name),
        "processed_per_s": {
            query: sum(_growth(first, last, edge) for edge in last.measured.counts if edge.rpartition(">")[2] == query)
            / max(took_s, 1e-9)
            for query in RESTRICTIONS
        },
    }


def _growth(first: Record, last: Record, edge: str) -> int:
    before = first.measured.counts.get(edge, Count()).processed
    return last.measured.counts[edge].processed - before
