"""What a policy asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qod_magics.core.snapshot import nothing

Edge = tuple[str | None, str]  #: (from, to); from is None for the outside world


@dataclass(frozen=True, slots=True)
class Plan:
    """A policy's answer to one snapshot. All fractions are of 1.

    The six fields are common to all policies; what another policy adds (scale-out, node release, buffer sizes ...)
    lies in `extra` under a key of its own.
    """

    current_accuracy: Mapping[str, float]  #: by task, as measured (model item 3)
    desired: Mapping[str, float]  #: by task, the accuracy to run at from now
    non_drop: Mapping[Edge, float]  #: one for each source (from None) and each stream: probability that a row is kept
    fail: tuple[str, ...] = ()  #: instances to stop where they are
    place: Mapping[str, str] = field(default_factory=dict)  #: instance -> task manager to start it on
    starved: tuple[str, ...] = ()  #: task managers whose minimum does not fit and nothing can be moved
    extra: Mapping[str, Any] = field(default_factory=nothing)

    @property
    def leaving(self) -> tuple[str, ...]:
        """The instances that are to run elsewhere: those that fail, then those that only `place` names."""
        return (*self.fail, *(name for name in self.place if name not in self.fail))

    def to_json(self) -> dict[str, Any]:
        """The JSON form: `non_drop` as a list of {"from", "to", "d"}."""
        return {
            "current_accuracy": dict(self.current_accuracy),
            "desired": dict(self.desired),
            "non_drop": [{"from": a, "to": b, "d": d} for (a, b), d in self.non_drop.items()],
            "fail": list(self.fail),
            "place": dict(self.place),
            "starved": list(self.starved),
            **self.extra,
        }
