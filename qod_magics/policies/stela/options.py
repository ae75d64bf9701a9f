"""What can be chosen where the source leaves a choice."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Literal

from qod_magics.core.wording import show
from qod_magics.errors import UsageProblem

Mode = Literal["set", "paths"]
Projection = Literal["measured", "capacity"]

CONGESTION_RATE = Fraction(6, 5)  #: section 2.2.3


@dataclass(frozen=True, slots=True)
class Options:
    """The readings of Stela. Raises UsageProblem, one line, for other values."""

    congestion_rate: Fraction | float = CONGESTION_RATE  #: input / processing rate above which an operator is congested
    #: "set": a sink counts once however many paths lead to it (Eq. 2.1); "paths": once for each (Algorithm 2.1)
    mode: Mode = "set"
    #: what input is compared with: "measured": the processing rate, literally; "capacity": that rate / the share of the
    #: time at work, where it is known, so that a child with idle capacity is not congested by a projection (R10)
    projection: Projection = "measured"
    cap_at_input: bool = False  #: a projected processing rate is at most the input (R11)

    def __post_init__(self) -> None:
        rate = self.congestion_rate
        if not isfinite(rate) or rate < 1:
            raise UsageProblem(
                f"congestion_rate: {show(float(rate))} is not a finite number >= 1; give one, such as 1.2"
            )
        if self.mode not in ("set", "paths"):
            raise UsageProblem(f'mode: {show(self.mode)} is unknown; give "set" or "paths"')
        if self.projection not in ("measured", "capacity"):
            raise UsageProblem(f'projection: {show(self.projection)} is unknown; give "measured" or "capacity"')

    @property
    def threshold(self) -> Fraction:
        """The congestion rate as it is written: 1.2 is 6/5, not the binary number next to it."""
        rate = self.congestion_rate
        return rate if isinstance(rate, Fraction) else Fraction(str(rate))


DEFAULT = Options()
