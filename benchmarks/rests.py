"""The rest between back-to-back micro-batches: `python -m benchmarks.rests [--recipe totals] [--rests 0.1 0.2 ...]`.

Plain Spark in batches of its best bound, then ours with each of these rests (as a part of a batch), then plain Spark
again: the same recipe on the same pinned core under 0.3, 0.6 and three steps around 0.9 times what plain Spark carries,
for full lengths. Printed are the median age of rows when their batch ends, and the CPU of the task manager.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.evaluation.against_plain import KEPT, measured_ours, measured_plain, warm
from benchmarks.evaluation.carrying import carrying
from benchmarks.evaluation.cluster import running
from benchmarks.evaluation.recipes import OURS, PLAINS, RECIPES
from benchmarks.evaluation.staircase import staircase
from qod_magics.kafka.topics import create_topics
from qod_magics.policies import DEFAULT_POLICY
from qod_magics.spark.queries import pace

LOADS = (0.3, 0.6, 0.89, 0.9, 0.91)
CARRYING = 0.5  #: share of the full length of the measurement of plain Spark's capacity


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=[n for n in RECIPES if not RECIPES[n].stateless], default="totals")
    parser.add_argument("--rests", type=float, nargs="+", default=[pace.REST, 2 * pace.REST])
    words = parser.parse_args()
    recipe = RECIPES[words.recipe]
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder) / "rests.jsonl", {}, policy_name=DEFAULT_POLICY) as run,
    ):
        create_topics(run.session.kafka, dict.fromkeys((*recipe.topics, OURS, PLAINS), 1), retention=KEPT)
        plain = carrying(run, recipe, CARRYING)
        steps = staircase(LOADS, plain["rows_s"], run.session.controller.period_s, 1.0)
        print(f"{'':<12}" + "".join(f"{step.name:>14}" for step in steps), flush=True)
        told("plain", measured_plain(run, recipe, plain["bound"], steps))
        warm(run, recipe, plain["saturated_s"])
        for rest in words.rests:
            pace.REST = rest
            told(f"rest {rest:g}", measured_ours(run, recipe, steps)["loads"])
        told("plain", measured_plain(run, recipe, plain["bound"], steps))


def told(what: str, loads: dict[str, Any]) -> None:
    """Print a line of figures."""
    cells = (f"{found['age_s']:.2f} s {found['cpu']:.0f} %" for found in loads.values())
    print(f"{what:<12}" + "".join(f"{cell:>14}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
