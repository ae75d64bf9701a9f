"""Ours without options compared with plain Spark at its best batch bound: the same recipes on the same pinned core, in
turns, under loads from a third to twelve times plain Spark's capacity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.evaluation.ages import ages, counts, median_age, reached
from benchmarks.evaluation.capacity import first, pid
from benchmarks.evaluation.carrying import carrying
from benchmarks.evaluation.cluster import Run, running
from benchmarks.evaluation.plain_query import PlainQuery
from benchmarks.evaluation.recipes import OURS, PLAINS, QUERY, RECIPES, Recipe, scenario, start
from benchmarks.evaluation.sampler import Sampler, result_ages
from benchmarks.evaluation.scenarios import LONG_S
from benchmarks.evaluation.staircase import Step, climb, fitting, staircase
from qod_magics.controller import Cycle
from qod_magics.kafka.properties import Retention
from qod_magics.kafka.topics import create_topics
from qod_magics.policies import DEFAULT_POLICY
from qod_magics.spark.queries.progress import Batch

LOADS = (0.3, 0.6, 0.9, 1.5, 3.0, 6.0, 12.0)
AFTERWARDS = 0.6
PLAIN_UP_TO = 3.0  #: and the highest: in between only its backlog grows faster
KEPT = Retention(bytes=3 << 30)  #: of a topic: holds plain Spark's backlog under the highest load
WHOLE = 0.999  #: measured accuracy that counts as 1


@dataclass(frozen=True, slots=True)
class Noted:
    """A finished cycle of the controller."""

    at: float  #: seconds since 1970
    waiting: int  #: rows
    accuracy: float | None


def against_plain(
    out: Path, scale: float, which: Iterable[str] = tuple(RECIPES), loads: Sequence[float] = LOADS
) -> dict[str, Any]:
    """Compare both engines by recipe, each recipe on a cluster of its own.

    Args:
        out: directory of our recordings.
        scale: share of the full length of loads.
        which: names in `RECIPES`.
        loads: multiples of plain Spark's capacity, rising.

    """
    found: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name in which:
        print(f"recipe {name}", flush=True)
        try:
            found[name] = _compared(out / f"against-plain-{name}.jsonl", RECIPES[name], scale, loads)
        except Exception as error:  # keep the figures of the others
            left_out[name] = f"{type(error).__name__}: {error}".splitlines()[0]
            print(f"{name} is left out: {left_out[name]}", flush=True)
    return {"recipes": found, "left_out": left_out}


def _compared(record: Path, recipe: Recipe, scale: float, loads: Sequence[float]) -> dict[str, Any]:
    with running(record, {}, policy_name=DEFAULT_POLICY) as run:
        create_topics(run.session.kafka, dict.fromkeys((*recipe.topics, OURS, PLAINS), 1), retention=KEPT)
        plain = carrying(run, recipe, scale)
        print(f"capacity of plain Spark: {plain['rows_s']:,.0f} rows/s, best bound: {plain['bound']}", flush=True)
        period_s = run.session.controller.period_s
        all_loads = fitting(loads, plain["rows_s"])
        few = [times for times in all_loads if times <= PLAIN_UP_TO or times == all_loads[-1]]
        plain["loads"] = measured_plain(
            run, recipe, plain["bound"], staircase(few, plain["rows_s"], period_s, scale, AFTERWARDS)
        )
        warm(run, recipe, plain["saturated_s"])
        ours = measured_ours(run, recipe, staircase(all_loads, plain["rows_s"], period_s, scale, AFTERWARDS))
    return {"plain": plain, "ours": ours, "period_s": period_s, "stateless": recipe.stateless}


def measured_plain(run: Run, recipe: Recipe, bound: int | None, steps: Sequence[Step]) -> dict[str, Any]:
    """Figures by step. After an overload the query restarts from the newest rows."""
    kafka = run.session.kafka
    at_work = [PlainQuery(run.session, recipe, bound)]
    begun: dict[str, dict[str, int]] = {}
    overloaded = False
    seen = Sampler(kafka, [*recipe.topics, PLAINS], pid(first(run)), lambda: at_work[-1].batches())

    def at_step(step: Step, begins: bool) -> None:
        nonlocal overloaded
        if not begins:
            seen.collect()
            overloaded = step.times >= 1
            return
        if overloaded:
            at_work[-1].stop()
            at_work.append(PlainQuery(run.session, recipe, bound))
        begun[step.name] = {topic: sum(parts.values()) for topic, parts in at_work[-1].begun.items()}

    try:
        with seen:
            zero = climb(run, recipe.topics, steps, at_step)
    finally:
        at_work[-1].stop()
    found = {}
    for step in steps:
        end = zero + step.end
        waiting = sum(
            seen.ends[topic].offset(end) - reached(seen.found, topic, end, offset)
            for topic, offset in begun[step.name].items()
        )
        found[step.name] = {
            **_both(run, recipe, PLAINS, seen, step, zero),
            "backlog_periods": max(waiting, 0) / (step.rows_s * run.session.controller.period_s),
        }
    return found


def warm(run: Run, recipe: Recipe, seconds: float) -> None:
    """Run ours under the saturating load for as long as plain Spark's capacity was measured: the code that Spark
    generates for a query is slow until the JVM has compiled it, and differs between the two."""
    start(run.session, recipe)
    run.session.pause(open_shedders=True)
    load = run.inject(scenario(recipe.topics, recipe.saturating, LONG_S))
    run.wait(seconds)
    load.stop()
    run.session.stop_all()
    run.session.resume()


def measured_ours(run: Run, recipe: Recipe, steps: Sequence[Step]) -> dict[str, Any]:
    """Figures by step, the mode, and seconds from the last step's begin until accuracy was 1 again."""
    session = run.session
    start(session, recipe)
    instance = session.runtime.instances[f"{QUERY}.1"]
    topics = (*recipe.topics, OURS)
    with watched(run, topics, lambda: [batch for _, batch in list(instance.meter.spans)]) as (seen, cycles):
        zero = climb(run, recipe.topics, steps)
        run.wait(2 * session.controller.period_s)  # the last batches report
    mode, why = instance.mode, instance.mode_why
    session.stop_all()
    found = {}
    for step in steps:
        begin, end = zero + step.settled, zero + step.end
        read, kept = counts(seen.found, begin, end)
        meanwhile = [cycle for cycle in cycles if begin <= cycle.at <= end]
        period_rows = step.rows_s * session.controller.period_s
        found[step.name] = {
            **_both(run, recipe, OURS, seen, step, zero),
            "accuracy": kept / read if read else None,
            "worst_accuracy": min((c.accuracy for c in meanwhile if c.accuracy is not None), default=None),
            "kept_rows_s": kept / (end - begin),
            "backlog_periods": max((c.waiting / period_rows for c in meanwhile), default=None),
        }
    back = steps[-1]
    last = [cycle for cycle in cycles if zero + back.begin <= cycle.at <= zero + back.end]
    return {"loads": found, "mode": mode, "why": why, "back_s": recovered_s(last, zero + back.begin)}


def _both(run: Run, recipe: Recipe, results: str, seen: Sampler, step: Step, zero: float) -> dict[str, Any]:
    """The figures measured alike for both engines."""
    begin, end = zero + step.settled, zero + step.end
    if recipe.stateless:
        topic = seen.ends[results]
        aged = result_ages(run.session.kafka, results, topic.offset(begin), topic.offset(end))
    else:
        aged = ages(seen.found, seen.ends, begin, end)
    return {
        "times": step.times,
        "rows_s": step.rows_s,
        "age_s": median_age(aged),
        "cpu": seen.cpu_percent(begin, end),
    }


@contextmanager
def watched(
    run: Run, topics: Sequence[str], batches: Callable[[], Iterable[Batch]]
) -> Iterator[tuple[Sampler, list[Noted]]]:
    """Samples, and the cycles in which rows were measured, while the context lasts."""
    cycles: list[Noted] = []

    def note(cycle: Cycle) -> None:
        if cycle.measured is not None:
            waiting = sum(cycle.measured.lag.values())
            cycles.append(Noted(cycle.at.timestamp(), waiting, cycle.measured.accuracy.get(QUERY)))

    close = run.session.controller.subscribe(note)
    try:
        with Sampler(run.session.kafka, topics, pid(first(run)), batches) as seen:
            yield seen, cycles
    finally:
        close()


def recovered_s(cycles: Sequence[Noted], begin: float) -> float | None:
    """Seconds from `begin` to the first of these cycles from which on nothing is shed; None: never."""
    since = None
    for cycle in cycles:
        if cycle.accuracy is not None and cycle.accuracy < WHOLE:
            since = None
        elif since is None and cycle.accuracy is not None:
            since = cycle.at
    return None if since is None else since - begin
