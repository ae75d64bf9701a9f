"""Static binding: every function on its own worker (2.4)."""

from __future__ import annotations

from qod_magics.policies.dirigo.base import Dirigo


class PriorityBased(Dirigo):
    """Send to the lessor, which runs the earliest deadline first. State is always local; hot functions queue up."""

    name = "dirigo-static"

    def range(self) -> int:
        """The lessor alone."""
        return 1
