"""A figure of the source beside ours, and whether that is the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

ALIKE = 0.1  #: relative difference up to which two figures are alike
TOLERANCE = 0.5  #: of the size of an effect
REPRODUCED, REFUTED, NOT_DECIDABLE = "reproduced", "refuted", "not decidable"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure."""

    figure: str  #: of the source, and what it says
    source: str
    ours: str
    verdict: str
    why: str = ""
    system: str = "Dirigo"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def factor(figure: str, source: float, ours: float, why: str = "", *, calibrated: bool = False) -> Row:
    """A ratio of two policies or settings: reproduced if the effect is within half of the source's size."""
    held = is_within(source, ours)
    words = why
    if not held:
        same = (source - 1) * (ours - 1) > 0
        reason = "less than half as much, or more than half again" if same else "no such difference, or the opposite"
        words = f"{reason}{'; ' if why else ''}{why}"
    if calibrated:
        words = f"calibrated to this figure{'; ' if words else ''}{words}"
    return Row(figure, f"x{source:.2f}", f"x{ours:.2f}", REPRODUCED if held else REFUTED, words)


def is_within(source: float, ours: float) -> bool:
    """Whether a factor is within half of the source's, both taken as their excess over 1; of 1, alike.

    Factors below 1 are turned over: 0.67 is as 1.5.
    """
    if source == 1:
        return abs(ours - 1) <= ALIKE
    if source < 1:
        source, ours = 1 / source, 1 / ours if ours else float("inf")
    if ours <= 1:
        return False
    return 1 - TOLERANCE <= (ours - 1) / (source - 1) <= 1 + TOLERANCE


def said(figure: str, source: str, ours: str, held: bool, why: str = "") -> Row:
    """Something the source says without a number: a sign, or an order."""
    return Row(figure, source, ours, REPRODUCED if held else REFUTED, why)


def open_question(figure: str, source: str, ours: str, why: str) -> Row:
    """A figure that says nothing about the policy in our model."""
    return Row(figure, source, ours, NOT_DECIDABLE, why)


def table(rows: list[Row]) -> str:
    """As Markdown."""
    lines = ["| figure | source | ours | verdict |", "|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row.figure} | {row.source} | {row.ours} | {row.verdict}{': ' if row.why else ''}{row.why} |")
    return "\n".join(lines)
