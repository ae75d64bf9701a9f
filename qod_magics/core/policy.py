"""The protocol that every policy obeys, and those that a policy may obey beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from qod_magics.core.placement import Placer, Unplaced, fewest_first
from qod_magics.core.plan import Plan
from qod_magics.core.reasons import Reasons, Unexplained
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Instance, Snapshot, TaskManager


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


@runtime_checkable
class PlacingPolicy(Policy, Protocol):
    """A policy that says where instances start: at first, and after their task manager was lost."""

    def place(
        self, unplaced: Sequence[Unplaced], managers: Sequence[TaskManager], running: Sequence[Instance]
    ) -> Mapping[str, str]:
        """Task manager by instance; one without a place waits. Purely."""
        ...


@runtime_checkable
class ExplainingPolicy(Policy, Protocol):
    """A policy that says why."""

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """The reasons of `plan`, which it made of this snapshot. Purely."""
        ...


def placer_of(policy: Policy) -> Placer:
    """Who places instances under this policy: itself, or else the task manager with the fewest is next."""
    return policy.place if isinstance(policy, PlacingPolicy) else fewest_first


def reasons_of(policy: Policy, snapshot: Snapshot, plan: Plan) -> Reasons:
    """Why the policy made `plan` of this snapshot, as far as it says so."""
    return policy.explain(snapshot, plan) if isinstance(policy, ExplainingPolicy) else Unexplained(policy.name)
