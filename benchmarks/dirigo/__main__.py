"""One experiment of Dirigo's source, by the number of its figure, or all: `python -m benchmarks.dirigo 6.12a`."""

from __future__ import annotations

import argparse

from benchmarks.dirigo import queue
from benchmarks.dirigo.row import table
from benchmarks.dirigo.setup import calibration
from benchmarks.dirigo.table import ALIASES, EXPERIMENTS, quick

CALIBRATIONS = {
    "forwarding": ("6.4", "6.5", "6.6"),
    "controlled": ("6.9", "6.10", "6.21a"),
    "social": ("6.12a", "6.12b", "6.14a", "6.14b", "6.15a", "6.15b"),
    "nexmark": ("6.18", "6.19", "6.20"),
}


def main() -> None:
    """Print what the source says, what we measure, and the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment", choices=[*EXPERIMENTS, *ALIASES, "all", "quick"])
    parser.add_argument("--scale", type=float, default=1.0, help="of the runs' lengths")
    given = parser.parse_args()
    if given.experiment == "quick":
        print(table(quick()))
        return
    chosen = list(EXPERIMENTS) if given.experiment == "all" else [ALIASES.get(given.experiment, given.experiment)]
    for name in chosen:
        for file, experiments in CALIBRATIONS.items():
            if name in experiments:
                print(f"Figure {name}, calibrations/{file}.json: {calibration(file)['anchor']}\n")
        print(table(EXPERIMENTS[name](given.scale)), flush=True)
        print()
        if name == "6.21b":
            print(queue.table(max(round(20 * given.scale), 2)))


if __name__ == "__main__":
    main()
