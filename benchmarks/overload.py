"""An overload of a query with state: `python benchmarks/overload.py [--recipe dedup] [--records N ...]`.

For each bound on the records of a micro-batch, a query of the comparison with plain Spark runs by default options on
one pinned core, under a light load, an overload of 40 seconds and the light load again. Printed are rows read and kept
in batches that begin during the overload, rows waiting when it ends, the longest of these batches, and how long after
the overload the first batch begins that keeps all of its rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.evaluation.against_plain import KEPT, watched
from benchmarks.evaluation.cluster import running
from benchmarks.evaluation.recipes import OURS, QUERY, RECIPES, Recipe, scenario, start
from qod_magics.kafka.topics import create_topics
from qod_magics.policies import DEFAULT_POLICY
from qod_magics.policies.stream_economics.learning import learning
from qod_magics.spark.queries import instance as instances
from qod_magics.spark.queries.progress import Batch

BEFORE_S, OVER_S, AFTER_S = 62.0, 40.0, 60.0  #: a query's first minute is no time for an overload


def measure(recipe: Recipe, high: float, low: float) -> str:
    """The figures of one run, under `high` and `low` rows/s."""
    topics = (*recipe.topics, OURS)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder) / "overload.jsonl", {}, policy_name=DEFAULT_POLICY) as run,
    ):
        create_topics(run.session.kafka, dict.fromkeys(topics, 1), retention=KEPT)
        start(run.session, recipe)
        at = run.session.runtime.instances[f"{QUERY}.1"]
        end = BEFORE_S + OVER_S
        load = [(0.0, low), (BEFORE_S, low), (BEFORE_S, high), (end, high), (end, low), (end + AFTER_S, low)]
        with watched(run, topics, lambda: [batch for _, batch in list(at.meter.spans)]) as (seen, cycles):
            injector = run.inject(scenario(recipe.topics, load, end + AFTER_S))
            begun = time.time() - injector.position()
            injector.wait(end + 2 * AFTER_S)
        return told(seen.found, begun, [cycle for cycle in cycles if cycle.at < begun + end][-1].waiting)


def told(batches: Sequence[Batch], begun: float, waiting: int) -> str:
    """A line of figures."""
    over = [b for b in batches if begun + BEFORE_S <= b.start < begun + BEFORE_S + OVER_S]
    read, kept = sum(feed.read or 0 for b in over for feed in b.feeds), sum(b.rows for b in over)
    after = [b for b in batches if b.start >= begun + BEFORE_S + OVER_S]
    whole = [b.start for b in after if 0 < b.rows == sum(feed.read or 0 for feed in b.feeds)]
    back = f"{min(whole) - begun - BEFORE_S - OVER_S:.1f}" if whole else "never"
    return f"{read:>12,}{kept:>12,}{waiting:>12,}{max(b.end - b.start for b in over):>16.1f}{back:>12}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=[n for n in RECIPES if not RECIPES[n].stateless], default="dedup")
    parser.add_argument(
        "--rates", type=float, nargs=2, default=[160_000.0, 16_000.0], help="rows/s, overload and light"
    )
    parser.add_argument("--records", type=int, nargs="+", default=[250_000, instances.MOST_RECORDS])
    parser.add_argument("--batch", type=float, default=learning.LONG_BATCH_S, help="seconds of a batch with much state")
    words = parser.parse_args()
    learning.LONG_BATCH_S = words.batch
    print(f"{'records':>12}{'read':>12}{'kept':>12}{'waiting':>12}{'longest, s':>16}{'back, s':>12}", flush=True)
    for records in words.records:
        instances.MOST_RECORDS = records
        print(f"{records:>12,}{measure(RECIPES[words.recipe], *words.rates)}", flush=True)


if __name__ == "__main__":
    main()
