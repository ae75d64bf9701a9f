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
from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.recipes import LEAST, PLAINS, STANDS
from benchmarks.evaluation.row import Row
from benchmarks.evaluation.staircase import Step, climb, fitting, staircase
from qod_magics.data import trip_schema
from qod_magics.kafka.topics import create_topics
from qod_magics.policies import DEFAULT_POLICY

ENOUGH = 0.95  #: goal: of what the higher query gets alone
WHY = (
    "The lower query reads all of its input, too, and keeps its minimum: from 3x on that alone leaves less than the "
    "goal. The rest of the difference is CPU outside of the tasks, which batches of two queries need more of."
)
TIMES = (0.5, 1.0, 2.0, 3.0, 6.0, 12.0)  #: of the core's capacity for both together
QUERIES = {"higher": 2, "lower": 1}  #: priorities
RECIPE = STANDS


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
    return {"carried": rate, "loads": loads}


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


def most_possible(times: float) -> float:
    """The most rows/s possible for the higher of the two queries / alone, if only work on rows costs CPU: each needs
    half a core at 1x, and the lower one keeps its minimum."""
    alone = min(1.0, 2 / times)
    return min(1.0, max(2 / times - LEAST, LEAST)) / alone


def goodput_live_section(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    """Text and table. Pure."""
    loads = dict.fromkeys((load, f["times"]) for run in runs for load, f in run["loads"].items())
    lines = [
        "Goodput against offered load (live)",
        "Two equal queries (count and sum per ten seconds and nearest taxi stand) of priority 2 and 1, each with a "
        f"minimum accuracy of {LEAST:g}, on one core, with default options: rows/s processed by each, and by the "
        "higher one alone under the same load. 1x is the capacity for two such plain Spark queries together. The "
        "reference is the optimum if only work on rows costs CPU, and the lower query keeps its minimum.",
        "",
        "| load | rows/s offered | higher | lower | higher alone |",
        "|---|---:|---:|---:|---:|",
    ]
    rows = []
    for load, times in loads:
        figures = [run["loads"][load] for run in runs if load in run["loads"]]
        cells = [[each[key] for each in figures] for key in ("rows_s", "higher", "lower", "alone")]
        lines.append(f"| {load} | {' | '.join(f'{sum(values) / len(values):,.0f}' for values in cells)} |")
        share: list[float | None] = [each["higher"] / each["alone"] if each["alone"] else None for each in figures]
        most = most_possible(times)
        what = f"goodput of the higher query at {load} / alone"
        rows.append(Row(what, f"at most {most:.2f}", share, source_value=most, at_least=ENOUGH, why=WHY))
    return "\n".join(lines), rows
