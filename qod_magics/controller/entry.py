"""An entry of the decision log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from qod_magics.core.snapshot import nothing


@dataclass(frozen=True, slots=True)
class Entry:
    """A decision, event or fault."""

    cycle: int  #: number of the cycle; 0: before the first
    at: datetime  #: UTC
    #: shedding, move, starved, warm-up, warm-up-over, a kind of event, or a fault (observe-slow, policy-failed ...)
    kind: str
    names: tuple[str, ...]  #: the tasks, instances, task managers and streams ("from>to") that it is about
    words: str
    numbers: Mapping[str, float] = field(default_factory=nothing)  #: those in the words, by name, at full precision

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S} #{self.cycle} {self.kind}: {self.words}"
