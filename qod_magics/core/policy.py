"""The protocol that every policy obeys."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot


@runtime_checkable
class Policy(Protocol):
    """Decides, purely: the same snapshot and state always give the same plan.

    `state` is the policy's own memory between cycles (windows, cooldowns), None at the first cycle.
    It is opaque to the controller, which hands back what it got.
    """

    name: str  #: what `--policy` selects

    def decide(self, snapshot: Snapshot, state: Any) -> tuple[Plan, Any]:
        """The plan for this snapshot and the state for the next call."""
        ...


@runtime_checkable
class LearningPolicy(Policy, Protocol):
    """A policy that knows more than one snapshot can tell, such as what a row costs.

    What it has learned is not in its state but in the snapshot: before each decision the controller has the snapshot
    completed by `learn`, decides on that, and records it. So a plan is still a function of its snapshot, a recorded
    snapshot gives the same plan again, and a what-if on it uses what was known then.
    """

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, Any]:
        """`snapshot` with what is known now in its optional fields (`core.optional`), and the memory for the next call.

        Purely: the same snapshot, measurements and memory (None at the first cycle) always give the same.
        """
        ...
