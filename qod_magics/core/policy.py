"""The protocol that every policy obeys."""

from __future__ import annotations

from typing import Any, Protocol

from qod_magics.core.plan import Plan
from qod_magics.core.snapshot import Snapshot


class Policy(Protocol):
    """Decides, purely: the same snapshot and state always give the same plan.

    `state` is the policy's own memory between cycles (windows, cooldowns), None at the first cycle.
    It is opaque to the controller, which hands back what it got.
    """

    name: str  #: what `--policy` selects

    def decide(self, snapshot: Snapshot, state: Any) -> tuple[Plan, Any]:
        """The plan for this snapshot and the state for the next call."""
        ...
