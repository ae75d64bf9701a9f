"""The topologies of the source's experiments: rates by our scenarios, machines and workers by its Table 2.1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from qod_magics.policies.stela.evaluation import Proportional
from qod_magics.policies.stela.job import Edge, Graph

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "tests" / "policies" / "stela" / "data" / "s9_scenarios.json"


@dataclass(frozen=True, slots=True)
class Figures:
    """Throughput after a scale-out as the source gives it, relative to that before; None: not given."""

    stela: float | None = None
    storm: float | None = None
    link_load: float | None = None
    over_storm: float | None = None  #: Stela's relative to Storm's
    settles: str = ""  #: Stela's convergence time, relative to Storm's: lower, equal or longer, and by how much


@dataclass(frozen=True, slots=True)
class Layout:
    """One topology before a machine is added."""

    name: str
    graph: Graph
    offered: Mapping[str, Fraction]  #: rows/s, by source
    each: Mapping[str, Fraction]  #: rows/s that one instance can process
    selectivity: Mapping[Edge, Fraction]
    k: int  #: instances of each operator
    most: int  #: the maximum of those
    machines: int
    cores: float  #: of each machine
    workers: int  #: slots that Storm deals instances to
    figures: Figures

    @property
    def proportional(self) -> Proportional:
        """The model without machines."""
        return Proportional(self.graph, self.offered, self.each, self.selectivity)


#: By scenario: cores of a machine, worker processes, figures.
_TABLE: Mapping[str, tuple[float, int, Figures]] = {
    "star": (1.0, 12, Figures(over_storm=1.65, settles="longer")),
    "linear": (1.0, 24, Figures(storm=1.0, over_storm=1.45, settles="equal")),
    "diamond": (1.0, 24, Figures(storm=1.0, over_storm=2.20, settles="lower by 92 %")),
    "pageload_like": (1.0, 28, Figures(1.80, 0.80, 1.0, 2.25, "lower by 88 %")),
    "processing_like": (1.0, 32, Figures(1.80, 0.80, 1.0, 2.25, "lower by 75 %")),
    "network_like": (4.0, 32, Figures(1.21, 1.0, None, 1.21, "longer")),
}


def layouts() -> tuple[Layout, ...]:
    """All six, in the source's order."""
    return tuple(map(_layout, json.loads(SCENARIOS.read_text(encoding="utf-8"))["cases"]))


def _layout(case: Mapping[str, Any]) -> Layout:
    cores, workers, figures = _TABLE[case["name"]]
    return Layout(
        case["name"],
        Graph(tuple(case["ops"]), tuple((a, b) for a, b in case["edges"])),
        {op: Fraction(rate) for op, rate in case["offered"].items()},
        {op: Fraction(rate) for op, rate in case["r"].items()},
        {(edge.split(">")[0], edge.split(">")[1]): Fraction(ratio) for edge, ratio in case.get("sel", {}).items()},
        case["k"],
        case["tasks"],
        case["machines"],
        cores,
        workers,
        figures,
    )
