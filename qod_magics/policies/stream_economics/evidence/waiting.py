"""Backlogs in seconds of the input that they were collected from. Pure.

After a fall of the load, what waits is many seconds of the present input, though it was collected within a few: as a
sign of costs that are off, it is no larger than before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot

#: For how long the rate of before a fall counts, seconds: until then, a backlog of two periods is gone.
HELD_S = 15.0


@dataclass(frozen=True, slots=True)
class Collected:
    """By task: the input rate at which its backlog was collected, rows/s, and the last second in which it was."""

    rates: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def after(self, snapshot: Snapshot, measured: Measured, rest_s: float) -> Collected:
        """Return the rates one cycle later: the present one, or for `HELD_S` a higher one of before, while more than
        `rest_s` seconds of the present input wait."""
        now = snapshot.at_s or 0.0
        found = {}
        for task, (rows, rate) in backlogs(snapshot, measured).items():
            before, at_s = self.rates.get(task, (0.0, 0.0))
            held = before > rate and rows > rest_s * rate and now - at_s <= HELD_S
            found[task] = (before, at_s) if held else (rate, now)
        return Collected(found)

    def waiting_s(self, snapshot: Snapshot, measured: Measured) -> Mapping[str, float]:
        """Backlog by task, in seconds of the input that it was collected from; 0 where no rate is known."""
        found = {}
        for task, (rows, _) in backlogs(snapshot, measured).items():
            rate, _ = self.rates.get(task, (0.0, 0.0))
            found[task] = rows / rate if rate > 0.0 else 0.0
        return found


def backlogs(snapshot: Snapshot, measured: Measured) -> Mapping[str, tuple[int, float]]:
    """Return the backlog and the input rate of each task."""
    found = {}
    for task in snapshot.tasks:
        feeds: Collection[str] = [f"{source}>{task.id}" for source in task.upstream] or [task.id]
        rows = sum(measured.lag.get(name, 0) for name in feeds)
        rate = sum(measured.input_rate.get(name, 0.0) for name in feeds) or task.external_rate or 0.0
        found[task.id] = rows, rate
    return found
