"""Scale-out by Stela and the policies that it was compared with: `python benchmarks/stela.py`.

Six topologies after the source's (Le Xu, dissertation, 2021, section 2.4), one machine added to each. Three tables:

- in the proportional model (an operator processes k_o times what one instance can, machines do not matter): throughput
  after / before, for both projections of R10, and the source's figure
- in a fluid model with cores, queues and interruptions (`benchmarks/scaling/cluster.py`), with costs of rows fitted to
  the source's figures by `python -m benchmarks.scaling.calibrate`: the same, convergence time and down time
- in that model with random costs instead: how often Stela gains more than the others, as much, or less

and the chance of picking the two best of eight machines among four.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collections import Counter
from fractions import Fraction
from statistics import median

from benchmarks.claims import Claim
from benchmarks.scaling.calibrate import SEED, drawn
from benchmarks.scaling.cluster import RESTART_S, SPLIT_S
from benchmarks.scaling.compare import (
    CAPACITY,
    NAMES,
    Run,
    blocking,
    calibrated,
    compared,
    plan_with_new_machine,
    scaled,
    settled,
)
from benchmarks.scaling.layouts import Figures, Layout, layouts
from qod_magics.core.actions import Scale
from qod_magics.policies.stela.etp import congested
from qod_magics.policies.stela.evaluation import chance_of_best
from qod_magics.policies.stela.job import job_of

EQUAL = 0.2  #: relative difference up to which convergence times count as equal
CLOSE = 0.02  #: relative difference from the source's figure up to which it counts as reproduced
SHOWN = (*NAMES, CAPACITY)


def proportional(layout: Layout, name: str) -> Fraction:
    """Throughput after / before in the proportional model, exact: by the policy's plan for measured rates."""
    model = layout.proportional
    before = dict.fromkeys(layout.graph.ops, layout.k)
    most = dict.fromkeys(layout.graph.ops, layout.most)
    cluster, _ = settled(layout, blocking(layout))
    plan = plan_with_new_machine(cluster, name)
    added = Counter({a.task: len(a.to) for a in plan.actions if isinstance(a, Scale)})
    after = {op: k + added[op] for op, k in before.items()}
    return Fraction(model.job(after, most).throughput) / Fraction(model.job(before, most).throughput)


def verdict(figures: Figures, stela: float, storm: float, link_load: float) -> str:
    """Which of the source's figures are reproduced, and which not."""
    pairs = (
        ("Stela", figures.stela, stela),
        ("Storm", figures.storm, storm),
        ("Least Link Load", figures.link_load, link_load),
        ("Stela over Storm", figures.over_storm, stela / storm),
    )
    missed = [
        f"{what} {found:.2f}, source {wanted:.2f}"
        for what, wanted, found in pairs
        if wanted is not None and abs(found / wanted - 1) > CLOSE
    ]
    order = "" if stela > max(storm, link_load) else "; the order is NOT reproduced"
    return ("reproduced" if not missed else f"not reproduced: {'; '.join(missed)}") + order


def shown(figures: Figures) -> str:
    """The source's figures."""
    found = (
        ("Stela", figures.stela),
        ("Storm", figures.storm),
        ("LLL", figures.link_load),
        ("Stela/Storm", figures.over_storm),
    )
    return ", ".join(f"{what} {figure:.2f}" for what, figure in found if figure is not None)


def seconds(value: float | None) -> str:
    """Whole seconds, or "none"."""
    return "none" if value is None else f"{value:.0f}"


def print_proportional() -> None:
    """The first table."""
    print("Proportional model: throughput after / before\n")
    print(f"| topology | {' | '.join(SHOWN)} | source | verdict |\n|---|{'---:|' * len(SHOWN)}---|---|")
    for layout in layouts():
        found = {name: float(proportional(layout, name)) for name in SHOWN}
        words = verdict(layout.figures, *(found[name] for name in NAMES))
        cells = " | ".join(f"{found[name]:.2f}" for name in SHOWN)
        print(f"| {layout.name} | {cells} | {shown(layout.figures)} | {words} |", flush=True)
    print(
        "\nMoves change nothing in this model, so Storm and Least Link Load stay at 1.00. A topology that starts with "
        "half of its\ntasks as executors can gain no more than 2.00 of any operator, so +120 % needs a model with "
        "machines (R18).\n"
    )


def print_fluid() -> None:
    """The second table."""
    print("Fluid model. The costs of rows were fitted to the source's figures: agreement says that it can produce them")
    print(f"A restart takes {RESTART_S:g} s, a new split of an operator's input {SPLIT_S:g} s\n")
    print(f"| topology | {' | '.join(SHOWN)} | source | verdict |\n|---|{'---:|' * len(SHOWN)}---|---|")
    times = []
    fitted = calibrated()
    for layout in layouts():
        costs = fitted[layout.name]
        runs: dict[str, Run] = {name: scaled(layout, costs, name) for name in SHOWN}
        cells = " | ".join(f"{runs[name].ratio:.2f}" for name in SHOWN)
        words = verdict(layout.figures, *(runs[name].ratio for name in NAMES))
        print(f"| {layout.name} | {cells} | {shown(layout.figures)} | {words} |", flush=True)
        times.append((layout, runs))
    if any("not reproduced" in verdict(layout.figures, *(runs[n].ratio for n in NAMES)) for layout, runs in times):
        print(
            "\nWhere a figure is missed, the search over costs found none that give it together with the others of its "
            "topology:\ninput is split evenly among instances, and with Storm nothing changes but the placement."
        )
    print("\nConvergence time / down time, s; Stela's convergence relative to Storm's\n")
    print(f"| topology | {' | '.join(NAMES)} | here | source | verdict |\n|---|{'---:|' * len(NAMES)}---|---|---|")
    for layout, runs in times:
        cells = " | ".join(f"{seconds(runs[name].convergence_s)} / {runs[name].down_s:.0f}" for name in NAMES)
        here = settles(*(runs[name].convergence_s for name in NAMES[:2]))
        wanted = layout.figures.settles
        same = "same direction" if here.split()[0] == wanted.split()[0] else "not reproduced"
        print(f"| {layout.name} | {cells} | {here} | {wanted} | {same} |")


def settles(stela: float | None, storm: float | None) -> str:
    """Stela's convergence time relative to Storm's, in words; one that does not settle within the record is longer."""
    if stela is None or storm is None:
        return "equal" if stela == storm else "longer" if stela is None else "lower"
    if abs(stela / storm - 1) < EQUAL:
        return "equal"
    return f"lower by {1 - stela / storm:.0%}" if stela < storm else f"longer by {stela / storm - 1:.0%}"


def claims() -> list[Claim]:
    """The source's figures beside those of the fluid model, with the proportional model's in brackets; and convergence
    times."""
    found = []
    fitted = calibrated()
    for layout in layouts():
        runs = {name: scaled(layout, fitted[layout.name], name) for name in NAMES}
        ratios = [runs[name].ratio for name in NAMES]
        words = verdict(layout.figures, *ratios)
        alone = float(proportional(layout, NAMES[0]))
        ours = ", ".join(f"{name} {ratio:.2f}" for name, ratio in zip(NAMES, ratios, strict=True))
        what = f"throughput after / before a scale-out, {layout.name}"
        reproduced = words == "reproduced"
        why = f"{words}; costs of rows were fitted to the source's figures" if reproduced else words
        found.append(
            Claim(what, shown(layout.figures), f"{ours} (proportional: {NAMES[0]} {alone:.2f})", reproduced, why)
        )
        here, wanted = settles(*(runs[name].convergence_s for name in NAMES[:2])), layout.figures.settles
        same = here.split()[0] == wanted.split()[0]
        what = f"convergence time against Storm's, {layout.name}"
        found.append(Claim(what, wanted, here, same, "same direction" if same else "another direction"))
    return found


def print_random(number: int) -> None:
    """The third table."""
    print(f"\nRandom costs, {number} clusters of each topology that can't process all of their input\n")
    print("| topology | Stela gains most | as much | less | Stela, median | best of the others, median |")
    print("|---|---:|---:|---:|---:|---:|")
    for layout in layouts():
        draw = random.Random(f"{SEED} {layout.name}")
        gains: list[tuple[float, float]] = []
        while len(gains) < number:
            costs = drawn(layout, draw)
            cluster, _ = settled(layout, costs)
            if not congested(job_of(cluster.snapshot())):
                continue
            found = compared(layout, costs)
            stela = found.pop("stela")
            gains.append((stela, max(found.values())))
        more = sum(1 for stela, other in gains if stela > other * 1.001)
        less = sum(1 for stela, other in gains if stela < other / 1.001)
        middle = " | ".join(f"{median(column):.2f}" for column in zip(*gains, strict=True))
        print(f"| {layout.name} | {more} | {number - more - less} | {less} | {middle} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=40, help="clusters of each topology with random costs")
    number = parser.parse_args().random
    print_proportional()
    print_fluid()
    print_random(number)
    chance = chance_of_best(8, 2, 4)
    print(f"\nFour of eight machines picked at random contain both of the best two: {chance} = {float(chance):.2f}")


if __name__ == "__main__":
    main()
