"""What can be chosen where the source leaves a choice."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from qod_magics.core.wording import show
from qod_magics.errors import UsageProblem

Choice = Literal["best", "first", "largest"]
Measure = Literal["time", "count"]
Cost = Literal["copies", "bytes"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """The readings of Getafix. Raises UsageProblem, one line, for other values."""

    choice: Choice = "best"  #: how the next node is chosen: "best" is ModifiedBestFit
    alpha: float = 0.5  #: share of a segment's popularity that remains after a round
    measure: Measure = "time"  #: popularity counts milliseconds of access time, or accesses
    match: bool = True  #: give the sets of the plan to the nodes so that few segments are loaded; else in order
    cost: Cost = "copies"  #: what a load costs in that matching; bytes only where sizes are known (G-R8)
    balance: bool = False  #: even out the numbers of copies, at the price of even load
    memory_limit: float | None = None  #: share of a node's memory above which its least popular copies go; None: none

    def __post_init__(self) -> None:
        for name, known in (
            ("choice", ("best", "first", "largest")),
            ("measure", ("time", "count")),
            ("cost", ("copies", "bytes")),
        ):
            value = getattr(self, name)
            if value not in known:
                raise UsageProblem(f"Getafix: {name}: {show(value)} is unknown; give one of {', '.join(known)}")
        if not 0 <= self.alpha < 1:
            raise UsageProblem(f"Getafix: alpha: {show(self.alpha)} is not in [0, 1); give a share such as 0.5")
        if self.memory_limit is not None and not 0 < self.memory_limit <= 1:
            raise UsageProblem(
                f"Getafix: memory_limit: {show(self.memory_limit)} is not in (0, 1]; give a share such as 0.8, or none"
            )

    @property
    def decay(self) -> Fraction:
        """Alpha as it is written: 0.1 is 1/10, not the binary number next to it."""
        return Fraction(str(self.alpha))


DEFAULTS = Parameters()
