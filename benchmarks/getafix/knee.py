"""GX1: with how many copies of every segment latency stops improving, for two sizes and two rates."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.findings import NOT_DECIDABLE, Row, decided, is_near
from benchmarks.getafix.cluster import GETAFIX, calibration
from qod_magics.core.engines import S
from qod_magics.simulator.segments import SegmentScenario, run
from qod_magics.simulator.segments.scenario import NodeInfo, QueryKind

#: nodes, queries/s -> copies at the knee. The source has three of the four: 9 for the first, 6 for "the other two".
CONFIGURATIONS = ((15, 2500), (15, 1500), (30, 2500), (30, 1500))
SOURCE = {(15, 2500): 9}
OTHERS = 6
NOT_SHOWN = (30, 1500)  #: taken to be the fourth
#: The knee: the fewest copies with a mean latency of at most this multiple of that with a copy on every node.
NEAR = 1.2


@dataclass(frozen=True, slots=True)
class Knee:
    """A curve of mean latency by copies, and its knee."""

    copies: int
    curve: tuple[tuple[int, float], ...]  #: (copies, ms), up to the knee, and of a copy on every node

    def __str__(self) -> str:
        return f"{self.copies} copies ({', '.join(f'{r}: {ms:.1f} ms' for r, ms in self.curve)})"


def configured(nodes: int, rate: int, seconds: float | None = None, service_us: float | None = None) -> SegmentScenario:
    """The scenario of knee.json with other nodes; `rate`: queries/s in all, `service_us`: mean CPU time of a pair."""
    scenario = calibration("knee")
    if seconds is not None:
        scenario = replace(scenario, duration=round(seconds * S), warm_up=round(seconds * S / 4))
    if service_us is not None:
        scenario = replace(scenario, kinds=(QueryKind("query", 1.0, round(service_us * 1000)),))
    infos = tuple(NodeInfo(f"node{h + 1}", scenario.nodes[0].cores) for h in range(nodes))
    return replace(scenario, nodes=infos, queries_per_s=rate / scenario.clients)


def knee(scenario: SegmentScenario) -> Knee:
    """Add copies until the mean latency is near that of full replication."""
    nodes = len(scenario.nodes)
    full = run(scenario, "uniform", {"copies": nodes}).mean_ms
    curve: list[tuple[int, float]] = []
    for copies in range(1, nodes):
        curve.append((copies, run(scenario, "uniform", {"copies": copies}).mean_ms))
        if curve[-1][1] <= NEAR * full:
            return Knee(copies, (*curve, (nodes, full)))
    return Knee(nodes, (*curve, (nodes, full)))


def knees(seconds: float | None = None) -> dict[tuple[int, int], Knee]:
    """All four configurations."""
    return {(nodes, rate): knee(configured(nodes, rate, seconds)) for nodes, rate in CONFIGURATIONS}


def rows(found: dict[tuple[int, int], Knee]) -> list[Row]:
    """The figures."""
    made = []
    for (nodes, rate), each in found.items():
        chosen, shown = (nodes, rate) in SOURCE, (nodes, rate) != NOT_SHOWN
        source = SOURCE.get((nodes, rate), OTHERS)
        made.append(
            GETAFIX.row(
                "knee",
                f"copies at the knee of latency, {nodes} nodes and {rate:,} queries/s",
                f"{source}" if shown else f"{source}, if it is shown",
                f"{each.copies}",
                decided(is_near(source, each.copies)) if shown else NOT_DECIDABLE,
                "the CPU time of a pair was chosen by it"
                if chosen
                else f"within half of it; knee: within {NEAR - 1:.0%} of a copy on every node, a bound of ours; the "
                "source shows three of the four configurations and does not name the other two",
                calibrated=chosen,
            )
        )
    return made
