"""A policy's reasons for its plan: clauses for the decision log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class Reasons(Protocol):
    """A policy's reasons for one decision, as clauses: without a full stop, to follow "; " or ": "."""

    def shedding(self, tasks: Sequence[str]) -> Mapping[str, str]:
        """By task, the reason for its desired accuracy."""
        ...

    def task(self, id: str) -> Sequence[str]:
        """The same at length, for one task."""
        ...

    def supply(self, id: str) -> str:
        """CPU that a task manager has and its tasks need; "" if the policy does not model it."""
        ...

    def task_manager(self, id: str) -> Sequence[str]:
        """What else limits or raises the CPU for a task manager's tasks."""
        ...

    def starved(self, id: str) -> str:
        """Why a task manager is starved."""
        ...

    def numbers(self, id: str) -> Mapping[str, float]:
        """The figures behind the clauses on a task manager, by name."""
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


class SheddingNothing:
    """A base for the Reasons of policies that shed nothing; without more, also of those that do not model CPU.

    What it says of tasks and task managers is each policy's own.
    """

    def __init__(self, policy: str) -> None:
        self.policy = policy  #: its name

    def shedding(self, tasks: Sequence[str]) -> Mapping[str, str]:
        """See `Reasons`."""
        return dict.fromkeys(tasks, f"policy {self.policy} sheds nothing")

    def supply(self, id: str) -> str:
        """See `Reasons`: CPU is not modelled."""
        return ""

    def starved(self, id: str) -> str:
        """See `Reasons`: none is."""
        return ""
