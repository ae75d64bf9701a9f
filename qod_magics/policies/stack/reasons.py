"""The reasons of a stack: those of Stream Economics, and the notes of its stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qod_magics.core.optional import stage_notes
from qod_magics.core.plan import Plan
from qod_magics.core.reasons import Reasons


class StackReasons:
    """See `core.reasons.Reasons`."""

    def __init__(self, shedding: Reasons, plan: Plan) -> None:
        self._shedding = shedding
        self._notes = stage_notes(plan)

    def __repr__(self) -> str:
        return f"{self._shedding!r}, with {len(self._notes)} notes of stages"

    def shedding(self, tasks: Sequence[str]) -> Mapping[str, str]:
        """See `core.reasons.Reasons`."""
        return self._shedding.shedding(tasks)

    def task(self, id: str) -> Sequence[str]:
        """See `core.reasons.Reasons`; each stage with something to say is named."""
        return [*self._shedding.task(id), *self._stages()]

    def supply(self, id: str) -> str:
        """See `core.reasons.Reasons`."""
        return self._shedding.supply(id)

    def task_manager(self, id: str) -> Sequence[str]:
        """See `core.reasons.Reasons`."""
        return [*self._shedding.task_manager(id), *self._stages()]

    def starved(self, id: str) -> str:
        """See `core.reasons.Reasons`."""
        return self._shedding.starved(id)

    def numbers(self, id: str) -> Mapping[str, float]:
        """See `core.reasons.Reasons`."""
        return self._shedding.numbers(id)

    def _stages(self) -> list[str]:
        return [f"stage {name}: {note}" for name, note in self._notes.items()]
