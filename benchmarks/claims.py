"""Figures that a source claims for its system, beside ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Claim:
    """One figure of a source."""

    what: str
    source: str  #: the source's figure
    ours: str  #: in the simulator or model
    reproduced: bool
    why: str = ""  #: how it compares

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {name: getattr(self, name) for name in self.__slots__}
