"""Stall detection. Pure: observations come in with each look.

In real-time mode, batches end every few seconds, rows or none; micro-batches end as long as rows wait. One that takes
longer may still make progress, on overloaded cores; then it ends later, and a restart would only add load. So only time
counts in which a batch could have ended: while its broker and its task manager answer, and while cores are free, or
other queries' batches end. Long gaps between looks (a suspended computer) do not count.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Below this utilization, a fraction of 1, cores count as free.
FREE = 0.5
#: Share of the time that counts on busy cores where other queries end batches, and on cores of unknown utilization.
BESIDE_OTHERS, UNKNOWN = 1 / 2, 1 / 3
#: Maximum time that one look adds, seconds.
LONGEST_LOOK_S = 2.0


def share(busy: float | None, others_end: bool) -> float:
    """Return the share of the time since the last look that counts.

    Args:
        busy: utilization of the task manager's cores, a fraction of 1; None if unknown.
        others_end: whether batches of other queries on it end.

    """
    if busy is not None and busy < FREE:
        return 1.0
    if others_end:
        return BESIDE_OTHERS
    return UNKNOWN if busy is None else 0.0


@dataclass(slots=True)
class StallDetector:
    """Measures for one instance how long no batch has ended, since its last batch or the start of its present run."""

    counted_s: float = 0.0  #: time in which it could have ended a batch
    watched_s: float = 0.0  #: total time
    _since: tuple[str | None, int] | None = None  #: the run, and the id of its last ended batch
    _looked_at: float = 0.0

    def reset(self) -> None:
        """Begin again, as no batch is due: nothing waits."""
        self._since = None

    def look(self, now: float, run_id: str | None, ended: int, share: float) -> None:
        """Update at `now` (monotonic seconds) with the run, the id of its last ended batch, and the share of the time
        since the last look that counts."""
        if self._since == (run_id, ended):
            passed = min(now - self._looked_at, LONGEST_LOOK_S)
            self.watched_s += passed
            self.counted_s += share * passed
        else:
            self.counted_s = self.watched_s = 0.0
            self._since = (run_id, ended)
        self._looked_at = now
