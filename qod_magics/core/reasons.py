"""Why a plan is as it is: clauses for the decision log, by the policy that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class Reasons(Protocol):
    """What a policy says of one decision. A clause is without a full stop and stands behind "; " or ": "."""

    def shedding(self, tasks: Sequence[str]) -> Mapping[str, str]:
        """For each of these tasks, why it gets the accuracy that it gets."""
        ...

    def task(self, id: str) -> Sequence[str]:
        """The same at length, for one task."""
        ...

    def supply(self, id: str) -> str:
        """What a task manager has and its tasks need; "" if the policy has nothing to say of that."""
        ...

    def task_manager(self, id: str) -> Sequence[str]:
        """What else decides what the tasks of a task manager are given."""
        ...

    def starved(self, id: str) -> str:
        """Why a task manager is starved."""
        ...

    def numbers(self, id: str) -> Mapping[str, float]:
        """The figures behind what is said of a task manager, by name."""
        ...


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The Reasons of a policy that gives none."""

    policy: str  #: its name

    def shedding(self, tasks: Sequence[str]) -> Mapping[str, str]:
        """See `Reasons`."""
        return dict.fromkeys(tasks, f"policy {self.policy} decided so")

    def task(self, id: str) -> Sequence[str]:
        """See `Reasons`."""
        return [f"policy {self.policy} decided so"]

    def supply(self, id: str) -> str:
        """See `Reasons`."""
        return ""

    def task_manager(self, id: str) -> Sequence[str]:
        """See `Reasons`."""
        return []

    def starved(self, id: str) -> str:
        """See `Reasons`."""
        return f"policy {self.policy} finds no room for the minimum accuracies on {id}"

    def numbers(self, id: str) -> Mapping[str, float]:
        """See `Reasons`."""
        return {}
