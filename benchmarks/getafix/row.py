"""A figure of the source beside ours, and whether they agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["reproduced", "refuted", "not decidable"]

SYSTEM = "Getafix"
#: A gain is reproduced if ours is at least this share of the source's, and at most as much above it.
HALF = 0.5


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table."""

    figure: str
    source: str  #: its value
    ours: str
    verdict: Verdict
    why: str = ""
    system: str = SYSTEM

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        names = ("system", "figure", "source", "ours", "verdict", "why")
        return {name: getattr(self, name) for name in names}


def of_gain(source: float, ours: float) -> Verdict:
    """Whether a factor above 1 is reproduced: its gain, factor - 1, within half of the source's."""
    return "reproduced" if HALF <= (ours - 1) / (source - 1) <= 2 - HALF else "refuted"


def of_all(*parts: Verdict) -> Verdict:
    """Reproduced if all parts are."""
    return "reproduced" if all(part == "reproduced" for part in parts) else "refuted"


def of_equal(source: object, ours: object) -> Verdict:
    """Whether an exact figure is."""
    return "reproduced" if source == ours else "refuted"


def table(rows: list[Row]) -> str:
    """As Markdown."""
    head = "| figure | source | ours | verdict | why |\n|---|---|---|---|---|"
    return "\n".join([head, *(f"| {r.figure} | {r.source} | {r.ours} | {r.verdict} | {r.why} |" for r in rows)])
