"""Goodput against offered load, live: two equal windowed queries of different priority on one core."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.evaluation.against_plain import KEPT, watched
from benchmarks.evaluation.ages import counts
from benchmarks.evaluation.applications import COLUMNS
from benchmarks.evaluation.carrying import risen
from benchmarks.evaluation.cluster import Run, running
from benchmarks.evaluation.recipes import PLAINS, STANDS
from benchmarks.evaluation.staircase import Step, climb, fitting, staircase
from qod_magics.data import trip_schema
from qod_magics.kafka.topics import create_topics
from qod_magics.policies import DEFAULT_POLICY

TIMES = (0.5, 1.0, 2.0, 3.0, 6.0, 12.0)  #: of the core's capacity for both together
QUERIES = {"higher": 2, "lower": 1}  #: priorities
RECIPE = STANDS
#: Minimum accuracy: so low that what the lower query costs at twelve times the capacity is reading, not its minimum.
LEAST = 0.005


def goodput_live(out: Path, scale: float, times: Sequence[float] = TIMES) -> dict[str, Any]:
    """Rows/s processed by each query under each load, and by the higher one without the other.

    The capacity for both is the mean throughput of two plain Spark queries under a saturating load, measured until it
    rises no more.
    """
    with running(out / "goodput-live-run.jsonl", {}, policy_name=DEFAULT_POLICY) as run:
        create_topics(run.session.kafka, dict.fromkeys((*RECIPE.topics, PLAINS), 1), retention=KEPT)
        rate = max(risen(run, RECIPE, scale, queries=len(QUERIES)))
        steps = staircase(fitting(times, rate), rate, run.session.controller.period_s, scale)
        both = _processed(run, tuple(QUERIES), steps)
        alone = _processed(run, ("higher",), steps)
    loads = {
        step.name: {"times": step.times, "rows_s": step.rows_s, **both[step.name], "alone": alone[step.name]["higher"]}
        for step in steps
    }
    return {"carried": rate, "least": LEAST, "loads": loads}


def _processed(run: Run, queries: Sequence[str], steps: Sequence[Step]) -> dict[str, dict[str, float]]:
    """Rows/s of each of these queries, by step, once settled."""
    session = run.session
    for name in queries:
        session.stream(
            name,
            RECIPE.query,
            topic=RECIPE.topics[0],
            schema=trip_schema(COLUMNS),
            priority=QUERIES[name],
            min_accuracy=LEAST,
        )
    instances = {name: session.runtime.instances[f"{name}.1"] for name in queries}

    def batches(name: str) -> list[Any]:
        return [batch for _, batch in list(instances[name].meter.spans)]

    with watched(run, RECIPE.topics, lambda: [b for name in queries for b in batches(name)]) as (seen, _):
        zero = climb(run, RECIPE.topics, steps)
        run.wait(2 * session.controller.period_s)  # the last batches report
    runs = {name: {batch.run_id for batch in batches(name)} for name in queries}
    session.stop_all()
    return {
        step.name: {
            name: counts([b for b in seen.found if b.run_id in runs[name]], zero + step.settled, zero + step.end)[1]
            / (step.end - step.settled)
            for name in queries
        }
        for step in steps
    }
