"""A session without a cluster: what `Outside` needs, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar

from qod_magics.monitoring.alarms import Alarm, Open
from qod_magics.monitoring.metrics import Told
from qod_magics.monitoring.monitor import Monitor
from qod_magics.session.outside import Outlets, Outside


class Session(Outside):
    """A session without a cluster."""

    made: ClassVar[list[Session]] = []

    def __init__(self) -> None:
        self.id, self.up, self.finish_s, self.looks = "abc", True, -1.0, 0
        self.monitor = Monitor()
        self._outlets = Outlets(self.monitor, lambda: Told("abc", "0.1", "fixed", ()), self.health)
        Session.made.append(self)

    @property
    def alive(self) -> bool:
        return self.up

    @property
    def sampled_at(self) -> float:
        """As if the broker were asked between any two looks."""
        self.looks += 1
        return float(self.looks)

    def down(self, *, finish_s: float = 0.0) -> Sequence[str]:
        self.up, self.finish_s = False, finish_s
        self.monitor.close()
        self._outlets.close()
        return ()

    def alarm(self, kind: str, ago_s: float = 0.0) -> None:
        """Have an alarm be open since so many seconds."""
        alarm = Alarm(kind, "it", f"it is {kind}", datetime.now(UTC), detail={"why": "divided by 0"})
        opened = {(kind, "it"): Open(alarm, time.monotonic() - ago_s)}
        self.monitor.alarms._open = {**self.monitor.alarms.open, **opened}
