"""What needs no cluster: the examples of sections 4.2 and 4.3, the optimum, the estimate of money, the skew."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction

from benchmarks.findings import NOT_DECIDABLE, Row, decided
from benchmarks.getafix.cluster import GETAFIX
from benchmarks.getafix.optimum import gap, optimum
from qod_magics.core.engines import S
from qod_magics.policies.getafix.packing import match, pack
from qod_magics.simulator.segments.scenario import SegmentScenario, queries

#: Accesses of the source's example, on three nodes; and its plan that is even but wasteful.
EXAMPLE = {"S1": 6, "S2": 3, "S3": 2, "S4": 1}
WASTEFUL = ({"S1": 3, "S2": 1}, {"S2": 2, "S3": 1, "S4": 1}, {"S1": 3, "S3": 1})
#: Figure 4.3: what nodes hold, and what the new plan asks for.
HAVE = ({"S2", "S3"}, {"S4"}, {"S1", "S2"})
EXPECTED = ({"S1"}, {"S2", "S4"}, {"S1", "S3"})
#: Accesses of a case in which the packing makes more copies than needed, on two nodes.
NOT_OPTIMAL = {"S1": 3, "S2": 3, "S3": 2, "S4": 2, "S5": 2, "S6": 2}

HOT_TB, USD_PER_GB_HOUR = 100, Fraction("0.005")
FACTORS = Fraction("1.9"), Fraction("4.2")  #: of Getafix and Scarlett, 20 nodes and 20 clients


_HOURS_OF_A_YEAR = 24 * 365
_GB_OF_A_TB = 1000


@dataclass(frozen=True, slots=True)
class Saving:
    """Memory that fewer copies of the same hot data leave free, and its price."""

    terabytes: Fraction
    usd_per_hour: Fraction

    @property
    def usd_per_year(self) -> Fraction:
        """Return the price of a year of 365 days."""
        return self.usd_per_hour * _HOURS_OF_A_YEAR


def saving(hot_tb: Fraction, factor: Fraction, other: Fraction, usd_per_gb_hour: Fraction) -> Saving:
    """Return what is saved by replication factor `factor` instead of `other`, of hot data in TB, at a price per GB and
    hour."""
    terabytes = hot_tb * (other - factor)
    return Saving(terabytes, terabytes * _GB_OF_A_TB * usd_per_gb_hour)


def examples() -> list[Row]:
    """GX8: the examples of the text."""
    copies, wasteful = pack(EXAMPLE, [1, 1, 1]).replicas, sum(len(each) for each in WASTEFUL)
    matched = match(HAVE, EXPECTED)
    return [
        GETAFIX.row(
            "examples",
            "copies of the example of section 4.2, against an even plan",
            "5 against 7",
            f"{copies} against {wasteful}",
            decided((copies, wasteful) == (5, 7)),
            f"the integer program says that {optimum(EXAMPLE, [1, 1, 1]).replicas} is the least",
        ),
        GETAFIX.row(
            "examples",
            "segments loaded in figure 4.3, against nodes that keep their numbers",
            "2 against 3",
            f"{matched.total} against {matched.in_order}",
            decided((matched.total, matched.in_order) == (2, 3)),
        ),
    ]


def optimality(cases: int, checked: int) -> list[Row]:
    """G-R1: is the packing optimal in copies, and in makespan?"""
    found = gap(cases, checked=checked)
    made, least = pack(NOT_OPTIMAL, [1, 1]).replicas, optimum(NOT_OPTIMAL, [1, 1]).replicas
    most = max(found.beyond)
    return [
        GETAFIX.row(
            "optimum",
            "ModifiedBestFit makes the fewest copies",
            "provably",
            f"{found.missed} of {found.cases:,} random cases have more, by {most} at most",
            decided(not found.missed and made <= least),
            f"counterexample: 3, 3, 2, 2, 2, 2 accesses on 2 nodes get {made} copies, {least} are enough; minima by "
            f"partitions, {found.checked} of them proved again by an integer program",
        ),
        GETAFIX.row(
            "optimum",
            "ModifiedBestFit ends as early as any plan",
            "provably",
            f"late in {found.makespan} of {found.cases:,} random cases",
            decided(not found.makespan),
            "no plan is below ceil(pairs / nodes)",
        ),
    ]


def money() -> list[Row]:
    """GX6: the estimate, from the source's replication factors."""
    found = saving(Fraction(HOT_TB), *FACTORS, USD_PER_GB_HOUR)
    ours = (float(found.terabytes), float(found.usd_per_hour))
    year = float(found.usd_per_year)
    return [
        GETAFIX.row(
            "money",
            "saved in a public cloud, from the source's replication factors",
            "230 TB, $1,150/h, about $10 M a year",
            f"{ours[0]:g} TB, ${ours[1]:,.0f}/h, ${year / 1e6:.2f} M a year",
            decided(ours == (230.0, 1150.0) and round(year / 1e6) == 10),
            "arithmetic; the factors themselves are another row",
        )
    ]


def skew(scenario: SegmentScenario, asked: int, slices: int = 1000) -> list[Row]:
    """GX7: the skew of the queries that are generated here."""
    rate = scenario.clients * scenario.queries_per_s
    many = replace(scenario, kept=slices, slice=None, duration=round(asked / rate * S))
    counts = Counter[int]()
    for query in queries(many):
        counts.update(range(query.newest - len(query.work) + 1, query.newest + 1))
    ranked = sorted((counts[number] for number in range(slices)), reverse=True)
    top, least = slices // 100, slices * 2 // 5
    ratio = (sum(ranked[:top]) / top) / max(sum(ranked[-least:]) / least, 1e-9)
    return [
        GETAFIX.row(
            "skew",
            "accesses of the top 1 % of the data over those of the least popular 40 %",
            "an order of magnitude more",
            f"{ratio:.0f} times, in the queries generated here over {slices:,} slices",
            NOT_DECIDABLE,
            "measured in Yahoo!'s cluster; our queries are drawn to have such a skew, which proves nothing about it",
        )
    ]
