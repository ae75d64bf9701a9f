"""The evaluation of Getafix: `python -m benchmarks.getafix EXPERIMENT`.

    examples     the examples of the text: 5 copies instead of 7, 2 loads instead of 3
    optimum      the packing beside the least number of copies
    memory       total and largest memory, replication factors, makespan and latency beside Scarlett
    knee         with how many copies of every segment latency stops improving
    money        the estimate of what is saved
    skew         the skew of accesses
    calibrate    the choices behind the calibrations: Scarlett's factor by rate, the knee by CPU time
    all          all rows, as a table; with --json as data

Calibrations are in benchmarks/getafix/calibrations: each says which numbers the source gives, and which are chosen and
by what.
"""

from __future__ import annotations

import argparse
import json

from benchmarks.getafix import cluster, knee, static
from benchmarks.getafix.row import Row, table
from benchmarks.getafix.rows import rows

EXPERIMENTS = ("examples", "optimum", "memory", "knee", "money", "skew", "calibrate", "all")


def _experiment(name: str, quick: bool) -> list[Row]:
    seconds = 60.0 if quick else None
    if name == "examples":
        return static.examples()
    if name == "optimum":
        return static.optimality(*((300, 20) if quick else (2000, 200)))
    if name == "money":
        return static.money()
    if name == "skew":
        return static.skew(cluster.calibration("cluster"), 500 if quick else 5000)
    if name == "knee":
        found = knee.knees(2.0 if quick else None)
        print("\n".join(f"{nodes} nodes, {rate:,} queries/s: {each}" for (nodes, rate), each in found.items()), "\n")
        return knee.rows(found)
    measured = cluster.measured(seconds=seconds)
    ending = cluster.bursts(seconds=30.0) if quick else cluster.bursts()
    shifting = cluster.measured("shifting", cluster.FEW_AND_MANY, seconds=seconds, labels=("scarlett", "getafix"))
    print(f"{cluster.details(measured)}\n\nMost queries ask for the slice before the newest:\n")
    print(f"{cluster.details(shifting)}\n")
    return [*cluster.memory(measured), *cluster.speed(measured, shifting, ending), *cluster.traffic(measured)]


def _calibrate() -> None:
    print("Scarlett's replication factor with 20 clients by queries/s of each; the source's is 4.2")
    for rate, factor in cluster.scan([3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0]):
        print(f"  {rate:g} queries/s: {factor:.3f}", flush=True)
    print("Knee of 15 nodes and 2,500 queries/s by CPU time of a pair; the source's is 9")
    for us, each in knee.scan([700, 800, 850, 890, 898, 900, 950]):
        print(f"  {us:g} us: {each}", flush=True)


def main() -> None:
    """Print the rows of an experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--quick", action="store_true", help="short runs: to see that it works")
    parser.add_argument("--json", action="store_true", help="rows as data")
    words = parser.parse_args()
    if words.experiment == "calibrate":
        _calibrate()
        return
    found = rows(words.quick) if words.experiment == "all" else _experiment(words.experiment, words.quick)
    print(json.dumps([row.to_json() for row in found], indent=1) if words.json else table(found))


if __name__ == "__main__":
    main()
