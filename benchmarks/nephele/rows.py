"""A figure of the source beside ours."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

REPRODUCED, REFUTED, UNDECIDED = "reproduced", "refuted", "not decidable"


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A row of the table of what was reproduced."""

    system: str
    figure: str  #: what was measured
    source: str  #: its value in the source
    ours: str
    verdict: str  #: "reproduced", "refuted" or "not decidable"
    why: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def decided(holds: bool) -> str:
    return REPRODUCED if holds else REFUTED


def within_half(source: float, ours: float) -> str:
    """Reproduced if ours is within half of the source's figure: 0.5 to 1.5 times as much."""
    return decided(abs(ours / source - 1) <= 0.5)


def factor_within_half(source: float, ours: float) -> str:
    """The same of an improvement: `ours` - 1 is at least half of `source` - 1."""
    return decided(ours - 1 >= 0.5 * (source - 1))
