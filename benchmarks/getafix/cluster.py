"""GX2 to GX5: an interactive analytics cluster of 20 nodes under 5 to 20 clients, Getafix beside Scarlett."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.findings import NOT_DECIDABLE, REPRODUCED, Row, Source, decided, is_factor
from qod_magics.core.engines import S
from qod_magics.simulator.segments import Results, SegmentScenario, run

GETAFIX = Source("Getafix")
CALIBRATIONS = Path(__file__).parent / "calibrations"
CLIENTS = (5, 10, 15, 20)
SEEDS = (1, 2)
FEW_AND_MANY = (5, 20)  #: clients, where the ends are enough

#: label -> policy and options
SETUPS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "scarlett": ("scarlett", {}),
    "getafix": ("getafix", {}),
    "balanced": ("getafix", {"balance": True}),
    "in order": ("getafix", {"match": False}),
}

#: of the source: least and greatest over the numbers of clients
TOTAL, LARGEST = (1.45, 2.15), (1.72, 1.92)
FACTORS = {"getafix": 1.9, "scarlett": 4.2}
#: what was chosen by them
CHOSEN = {
    "getafix": "the number of live segments was chosen by it: with 21 it is at most 1 + 19/21 = 1.90 by counting",
    "scarlett": "the rate of a client was chosen by it",
}
MAKESPAN = 0.05
COMPARABLE = 2.0  #: latencies that differ by less than this factor are called comparable here; the source has no bound


@dataclass(frozen=True, slots=True)
class Measured:
    """Runs by label and number of clients, one for each seed."""

    runs: Mapping[tuple[str, int], Sequence[Results]]
    clients: Sequence[int]

    def mean(self, label: str, clients: int, name: str) -> float:
        """The mean of a figure over the seeds."""
        return mean(getattr(each, name) for each in self.runs[label, clients])

    def ratios(self, name: str, label: str = "getafix") -> dict[int, float]:
        """Scarlett's figure over Getafix', by number of clients."""
        return {each: self.mean("scarlett", each, name) / self.mean(label, each, name) for each in self.clients}


def calibration(name: str) -> SegmentScenario:
    """The scenario of this name, such as "cluster"."""
    return SegmentScenario.read(CALIBRATIONS / f"{name}.json")


def measured(
    name: str = "cluster",
    clients: Sequence[int] = CLIENTS,
    seeds: Sequence[int] = SEEDS,
    seconds: float | None = None,
    labels: Sequence[str] = tuple(SETUPS),
) -> Measured:
    """Run a calibration under each policy; `seconds`: shorter runs than it says, without a third as warm-up."""
    scenario = calibration(name)
    if seconds is not None:
        scenario = replace(scenario, duration=round(seconds * S), warm_up=round(seconds * S / 3))
    return Measured(
        {
            (label, each): [run(replace(scenario, clients=each, seed=seed), *SETUPS[label]) for seed in seeds]
            for label in labels
            for each in clients
        },
        clients,
    )


def bursts(
    clients: Sequence[int] = FEW_AND_MANY, seeds: Sequence[int] = SEEDS, seconds: float = 120.0, queries: int = 4000
) -> Measured:
    """Shorter runs that end with a burst of queries: the source's problem, a set of queries to be answered early."""
    scenario = replace(
        calibration("cluster"), duration=round(seconds * S), warm_up=round(seconds * S / 3), burst=queries
    )
    return Measured(
        {
            (label, each): [run(replace(scenario, clients=each, seed=seed), *SETUPS[label]) for seed in seeds]
            for label in ("scarlett", "getafix", "balanced")
            for each in clients
        },
        clients,
    )


def spread(ratios: Mapping[int, float]) -> str:
    """First and last of several ratios."""
    values = list(ratios.values())
    return f"{min(values):.2f} to {max(values):.2f}"


def memory(found: Measured) -> list[Row]:
    """GX2, GX3 and GX5."""
    total = found.ratios("memory")
    values = list(total.values())
    grows = values == sorted(values)
    most = found.clients[-1]
    rows = [
        GETAFIX.row(
            "memory",
            "total memory, Scarlett / Getafix, 5 to 20 clients",
            f"{TOTAL[0]} to {TOTAL[1]}, growing with the clients",
            f"{spread(total)}, {'growing' if grows else 'not always growing'}",
            decided(is_factor(TOTAL[0], values[0]) and is_factor(TOTAL[1], values[-1]) and grows),
            "one number, the rate of a client, was chosen by Scarlett's replication factor with 20 clients",
        )
    ]
    sides = {label: found.ratios("largest_node", label) for label in ("getafix", "balanced")}
    inside = {label: all(is_factor(LARGEST[0], r) for r in ratios.values()) for label, ratios in sides.items()}
    low, high = (list(sides[label].values()) for label in sides)
    brackets = all(one <= LARGEST[1] and other >= LARGEST[0] for one, other in zip(low, high, strict=True))
    reproduced = any(inside.values())
    rows.append(
        GETAFIX.row(
            "memory",
            "memory of the node with most, Scarlett / Getafix",
            f"{LARGEST[0]} to {LARGEST[1]} (one section says 1.82)",
            f"{spread(sides['getafix'])}; {spread(sides['balanced'])} with even numbers of copies",
            REPRODUCED if reproduced else NOT_DECIDABLE if brackets else decided(False),
            "the source does not say whether numbers of copies were balanced, as its prototype can; "
            + ("the figure lies between the two" if brackets else "the figure does not lie between the two everywhere"),
        )
    )
    for label, figure in FACTORS.items():
        ours = found.mean(label, most, "replication_factor")
        rows.append(
            GETAFIX.row(
                "memory",
                f"effective replication factor of {label.capitalize()}, 20 nodes and {most} clients",
                f"{figure}",
                f"{ours:.2f}",
                decided(is_factor(figure, ours)),
                CHOSEN[label],
                calibrated=True,
            )
        )
    return rows


def speed(found: Measured, shifting: Measured, ending: Measured) -> list[Row]:
    """GX4: makespan and latency; `shifting`: most queries ask for the slice before the newest, `ending`: with a burst
    at the end."""
    makespan = found.ratios("makespan_s")
    worst = max(abs(ratio - 1) for ratio in makespan.values())
    rows = [
        GETAFIX.row(
            "memory",
            "makespan, Scarlett / Getafix",
            "within 5 %",
            f"within {worst:.2%}",
            decided(worst <= MAKESPAN),
            "queries arrive at their own times here, so both end soon after the last one: a weak test",
        )
    ]
    burst = {label: ending.ratios("after_s", label) for label in ("getafix", "balanced")}
    worst = max(abs(ratio - 1) for ratio in burst["getafix"].values())
    slower = min(burst["getafix"].values()) < 1 - MAKESPAN
    rows.append(
        GETAFIX.row(
            "memory",
            "makespan of many queries at once, Scarlett / Getafix",
            "within 5 %",
            f"{spread(burst['getafix'])}; {spread(burst['balanced'])} with even numbers of copies",
            decided(worst <= MAKESPAN),
            "Getafix ends later" if slower else "" if worst <= MAKESPAN else "Getafix ends earlier",
        )
    )
    for name, what in (("mean_ms", "mean latency"), ("p99_ms", "99th percentile of latency")):
        ours, other = found.ratios(name), shifting.ratios(name)
        near = all(1 / COMPARABLE <= ratio <= COMPARABLE for ratio in [*ours.values(), *other.values()])
        near_here = all(1 / COMPARABLE <= ratio <= COMPARABLE for ratio in ours.values())
        rows.append(
            GETAFIX.row(
                "memory",
                f"{what}, Scarlett / Getafix",
                "comparable",
                f"{spread(ours)}; {spread(other)} where the slice before the newest is asked for most",
                decided(near_here),
                f"comparable: within a factor of {COMPARABLE:g}, a bound of ours"
                + (
                    ""
                    if near
                    else "; where popularity shifts each minute, Getafix follows a round later and without "
                    "Scarlett's spare copy, so it is slower there at a high load"
                    if near_here
                    else ""
                ),
            )
        )
    return rows


def traffic(found: Measured) -> list[Row]:
    """What the matching saves in the running cluster; the source gives a figure for one example only."""
    ratios = {
        each: found.mean("in order", each, "loads") / found.mean("getafix", each, "loads") for each in found.clients
    }
    scarlett = {
        each: found.mean("getafix", each, "loads") / found.mean("scarlett", each, "loads") for each in found.clients
    }
    return [
        GETAFIX.row(
            "memory",
            "segments loaded without the matching / with it, in the cluster",
            "fewer with it",
            f"{spread(ratios)}; Getafix loads {spread(scarlett)} times what Scarlett does",
            decided(min(ratios.values()) > 1),
            "plans change each round with the measured times, and each change is loaded",
        )
    ]
