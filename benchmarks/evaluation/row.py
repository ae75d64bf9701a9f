"""One figure of the evaluation, with its reference and its goal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

PAPERS = "stream-economics"  #: the paper's policy
REACTIVE = "stream-economics-reactive"  #: the best of the others
DEFAULT = "default"  #: ours without options: the default policy, each query in the mode chosen for it
REALTIME = "real-time mode"  #: the same with all queries in Spark's real-time mode
#: In figures from before micro-batches became the default of stateful queries; there, `REACTIVE` is in real-time mode.
BATCHED = f"{REACTIVE}, micro-batches"
#: The other engines, as named in tables and figures.
ALONE, FIXED, BOUNDED, FLINK = "spark alone", "fixed drop", "spark, bounded batches", "flink"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: its reference (mostly the paper's), its value in each run, and its goal."""

    what: str
    source: str
    values: Sequence[float | None]
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None
    source_value: float | None = None  #: for the ratio
    of: str = ""  #: its subject, where a section has several
    why: str = ""  #: why it falls short, if it does: a sentence or two

    @property
    def middle(self) -> float | None:
        """The median of the runs that have a value."""
        known = [value for value in self.values if value is not None]
        return median(known) if known else None

    @property
    def short(self) -> bool:
        """Whether there is a goal and it is missed, as it is without a value."""
        if self.middle is None:
            return bool(self.limit)
        return (self.at_most is not None and self.middle > self.at_most) or (
            self.at_least is not None and self.middle < self.at_least
        )

    @property
    def limit(self) -> str:
        """The goal; empty without one."""
        if self.at_most is not None and self.at_least is not None:
            return f"{self.at_least:g} to {self.at_most:g}{self.unit}"
        if self.at_most is not None:
            return f"<= {self.at_most:g}{self.unit}"
        return "" if self.at_least is None else f">= {self.at_least:g}{self.unit}"

    def shown(self) -> str:
        """The median of the runs that have a value, with their range unless all are equal."""
        known = [value for value in self.values if value is not None]
        if not known:
            return "never"
        text = f"{median(known):.3g}{self.unit}"
        ends = [f"{end:.3g}" for end in (min(known), max(known))]
        if ends[0] != ends[1]:
            text += f" ({ends[0]} to {ends[1]})"
        missing = len(self.values) - len(known)
        return text + (f"; in {missing} of {len(self.values)} runs never" if missing else "")
