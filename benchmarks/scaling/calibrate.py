"""Find costs of rows for which the model gives the source's figures: `python -m benchmarks.scaling.calibrate`.

A seeded random search: each operator gets a rate at which an instance runs alone, of 1 to 5 times that of the
proportional model, and a CPU share of the time for a row. Writes `calibration.json` beside this module.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping
from math import log

from benchmarks.scaling.cluster import Cost
from benchmarks.scaling.compare import CALIBRATION, compared
from benchmarks.scaling.layouts import Layout, layouts

SEED = 20210501


def drawn(layout: Layout, draw: random.Random) -> dict[str, Cost]:
    """Random costs."""
    found = {}
    for op in layout.graph.ops:
        service = 1.0 / (float(layout.each[op]) * draw.choice((1.0, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)))
        share = draw.choice((0.02, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0))
        found[op] = Cost(share * service, (1 - share) * service)
    return found


def near(layout: Layout, costs: Mapping[str, Cost], draw: random.Random) -> dict[str, Cost]:
    """The same with one operator's costs changed."""
    op = draw.choice(layout.graph.ops)
    cost = costs[op]
    factor = draw.uniform(0.8, 1.25)
    service = (cost.cpu_s + cost.block_s) * factor
    share = min(max(cost.cpu_s / (cost.cpu_s + cost.block_s) + draw.uniform(-0.2, 0.2), 0.01), 1.0)
    return {**costs, op: Cost(share * service, (1 - share) * service)}


def error(layout: Layout, costs: Mapping[str, Cost]) -> float:
    """The sum of the squared logarithms of model / source, over the source's figures."""
    found = compared(layout, costs)
    figures = layout.figures
    wanted = {
        "stela": figures.stela,
        "storm-re-deal": figures.storm,
        "least-link-load": figures.link_load,
        "over": figures.over_storm,
    }
    found["over"] = found["stela"] / found["storm-re-deal"]
    total = sum(log(found[name] / figure) ** 2 for name, figure in wanted.items() if figure)
    rival = max(found["storm-re-deal"], found["least-link-load"])
    return total + max(0.0, log(rival / found["stela"]) + 0.05)  # the order counts more than the figures


def main() -> None:
    """Search and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=400, help="for each topology; as many again near the best")
    tries = parser.parse_args().tries
    kept = {}
    for layout in layouts():
        draw = random.Random(f"{SEED} {layout.name}")
        best = min((drawn(layout, draw) for _ in range(tries)), key=lambda costs: error(layout, costs))
        least = error(layout, best)
        for _ in range(tries):
            other = near(layout, best, draw)
            if (now := error(layout, other)) < least:
                best, least = other, now
        print(f"{layout.name}: squared error {least:.4f}", flush=True)
        kept[layout.name] = {op: {"cpu_s": cost.cpu_s, "block_s": cost.block_s} for op, cost in best.items()}
    CALIBRATION.write_text(json.dumps({"seed": SEED, "tries": tries, "costs": kept}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
