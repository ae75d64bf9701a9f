"""The table of the systems of the literature: for each, a claim of its source, a live run, and a verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.evaluation import scenario_rows, spark_rows, system_rows, turn_rows
from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.row import Row
from benchmarks.evaluation.section import Section, alike, shown

SECTIONS: Mapping[str, Section] = {
    **spark_rows.SECTIONS,
    **scenario_rows.SECTIONS,
    **system_rows.SECTIONS,
    **turn_rows.SECTIONS,
}
COMMAND = "python -m benchmarks.evaluation"
HOLDS, IN_PART, NOT, IMPOSSIBLE = "holds", "holds in part", "does not hold", "cannot hold on Spark"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a source claims, and by which figures of ours it is judged."""

    system: str
    says: str  #: with the source's figure
    part: str  #: of the evaluation, which ran it
    run: str  #: what was run, a clause
    figures: Mapping[str, Sequence[str]]  #: by part: the beginnings of the measures that judge it
    why: str = ""  #: why it falls short, if it does
    bars: str = ""  #: what Spark does not allow: it can't hold, if it falls short

    def rows(self, found: Mapping[str, Figures]) -> list[Row]:
        """Return the measures that judge it, and those to be seen beside them; of those that were measured."""
        return [
            row
            for part, begins in self.figures.items()
            if part in found
            for row in SECTIONS[part].rows(found[part]["runs"])
            if row.middle is not None and any(row.what.startswith(begin) for begin in begins)
        ]


CLAIMS: Sequence[Claim] = (
    Claim(
        "Stream Economics",
        "lag near 0 where the engine's grows; accuracies within 2.4 % of those desired",
        "against-plain",
        "six recipes up to 12 times plain Spark's capacity; scenario 1",
        {"against-plain": ("backlog beyond",), "scenario1": ("mean gap",)},
        why=scenario_rows.EARLIER_PLAN,
    ),
    Claim(
        "D-Storm",
        "63.9 % less traffic than round-robin; one node at a low load",
        "d-storm-live",
        "a chain of four at full and at a quarter of the load",
        {"d-storm-live": ("task managers used", "traffic")},
    ),
    Claim(
        "Stela",
        "throughput 1.45 times Storm's after a machine joins",
        "stela-live",
        "a chain at twice what a core carries; a task manager joins",
        {"stela-live": ("gain",)},
        why=system_rows.NOT_WHOLE,
    ),
    Claim(
        "Henge",
        "89 % of the greatest utility under a load that rises",
        "henge-live",
        "three queries with a target; a step of one's load",
        {"henge-live": ("satisfaction",)},
        why=system_rows.SOON_OVER,
    ),
    Claim(
        "Nephele Streaming",
        "latency 13 times lower at equal throughput",
        "nephele-live",
        "a chain of four; two light windowed queries",
        {"nephele-live": ("latency", "its throughput", "CPU at", "cycles")},
    ),
    Claim(
        "Cameo",
        "median 2.7, tail 3.2 times lower; others lose 2.5 %",
        "cameo-live",
        "two queries with a target of 2 s beside three heavy ones, one core",
        {"cameo-live": ("median", "95th", "cycles", "rows/s")},
        why="Batches have fixed costs and are not interrupted.",
    ),
    Claim(
        "Dirigo",
        "tail 60 % below static assignment",
        "dirigo-live",
        "a key with 60 % of the rows, 1.3 times what one of two task managers counts",
        {"dirigo-live": ("tail", "most backlog", "growth")},
        why="Rows that were sent before are counted where they are.",
    ),
    Claim(
        "Getafix",
        "1.45 to 2.15 times less memory, 1.72 to 1.92 on a node, equal times",
        "getafix-live",
        "queries over twelve slices of results, two task managers",
        {"getafix-live": ("memory", "on one", "time of a query / everywhere")},
        why="Two task managers leave at most a factor of 2; one host has no network to save.",
    ),
)
#: The parts that only this table shows.
PARTS = frozenset(claim.part for claim in CLAIMS[1:])


def shows(part: str, row: Row) -> bool:
    """Return whether the table shows this measure of a part."""
    begins = (begin for claim in CLAIMS for begin in claim.figures.get(part, ()))
    return any(row.what.startswith(begin) for begin in begins)


def verdict(rows: Sequence[Row], bars: str) -> str:
    """Return whether a claim holds: all its goals are reached, some, or none. `bars`: what Spark does not allow."""
    judged = [group for group in alike(rows) if any(row.limit for row in group)]
    held = sum(not any(row.short for row in group) for group in judged)
    if judged and held == len(judged):
        return HOLDS
    if bars:
        return IMPOSSIBLE
    return IN_PART if held else NOT


def table(found: Mapping[str, Figures]) -> Iterator[dict[str, Any]]:
    """Yield each system whose part was run."""
    for claim in CLAIMS:
        rows = claim.rows(found)
        if not rows or claim.part not in found:
            continue
        judged = verdict(rows, claim.bars)
        yield {
            "system": claim.system,
            "source": claim.says,
            "part": claim.part,
            "command": f"{COMMAND} {claim.part}",
            "run": claim.run,
            "ours": "; ".join(f"{group[0].what} {shown(group)}" for group in alike(rows)),
            "turns": max(len(row.values) for row in rows),
            "verdict": judged,
            "why": "" if judged == HOLDS else claim.bars or claim.why,
        }


def lines(found: Mapping[str, Figures], where: Path) -> Iterator[str]:
    """Yield the table for the document. `where`: the directory of tables, as links name it."""
    yield "| system | its source | live | ours | verdict | why |"
    yield "|---|---|---|---|---|---|"
    for line in table(found):
        linked = f"[{line['system']}]({where}/{line['part']}.csv)"
        ran = f"{line['run']}; {line['turns']} turn{'s' if line['turns'] > 1 else ''}"
        yield f"| {linked} | {line['source']} | {ran} | {line['ours']} | {line['verdict']} | {line['why']} |"
