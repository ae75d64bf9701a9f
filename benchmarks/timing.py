"""What it costs to time records for latencies: `python benchmarks/timing.py [--pairs N] [--rows N] [--jit MODE]`.

Set up as `shedder.py`: a local task manager on one core reads a prefilled topic, sheds it at d = 1 and hands it to a
no-op sink, with and without timing, in turns (A B, B A, A B ...). The rows are not parsed, so that what timing adds is
not lost in the rest. Printed, for each mode's way of timing: CPU of a row without and with it, microseconds (medians
over the runs), what it adds in nanoseconds (median of the pairs, with its 95 % bootstrap interval), and that as a share
of the CPU of a row which is read, shed and parsed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import DataFrame

from benchmarks.shedder import Bench, Plan, Run, compare, interval, opened_bench
from qod_magics.jvm.jit import DEFAULT_JIT, JIT_OPTIONS
from qod_magics.spark.plans import shedder
from qod_magics.spark.plans.timing import AGE_WHEN_READ, WHEN_WRITTEN, Timing

MODES = {"micro-batch": WHEN_WRITTEN, "real-time": AGE_WHEN_READ}


def shed(bench: Bench, timing: Timing | None, parsed: bool = False) -> Plan:
    """Records of the topic behind a source's shedder."""

    def plan() -> DataFrame:
        keep = bench.dial(bench.board.source("in"))
        rows = shedder.shed_source(bench.records("trips"), keep, "shed.trips", timing=timing)
        return bench.parsed(rows, shedder.WEIGHT) if parsed else rows.select("value", shedder.WEIGHT)

    return plan


def row_us(runs: Sequence[Run]) -> list[float]:
    """CPU of a row in each run, microseconds."""
    return [1e6 * run.cpu_s / run.rows for run in runs if run.cpu_s]


def main() -> int:
    parser = argparse.ArgumentParser(description="What it costs to time records.")
    parser.add_argument("--pairs", type=int, default=25)
    parser.add_argument("--warm-ups", type=int, default=4, help="runs of each plan that do not count")
    parser.add_argument("--rows", type=int, default=800_000, help="of each run")
    parser.add_argument("--jit", choices=JIT_OPTIONS, default=DEFAULT_JIT, help="as in Session.up")
    words = parser.parse_args()
    with opened_bench(words.rows, words.jit) as bench:
        bench.manager.turn({bench.board.source("in"): 1.0})
        whole = median(row_us([bench.run(shed(bench, None, parsed=True)) for _ in range(5)])[2:])
        print(f"{words.rows} rows a run, {words.pairs} pairs, JIT {words.jit}; a row that is parsed: {whole:.2f} us")
        for mode, timing in MODES.items():
            a, b = compare(bench, shed(bench, None), shed(bench, timing), words.pairs, words.warm_ups)
            without, timed = row_us(a), row_us(b)
            added = [1e3 * (y - x) for x, y in zip(without, timed, strict=True)]
            low, high = interval(added)
            share = 100 * median(added) / 1e3 / whole
            print(
                f"{mode:<12}{median(without):8.3f} us {median(timed):8.3f} us   adds {median(added):6.0f} ns "
                f"[{low:.0f}, {high:.0f}], {share:.2f} % of a parsed row",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
