"""For how long a query in real-time mode has stood still. Pure: what is seen at each look comes in.

Its batches end every few seconds, rows or none. One that takes longer may be at work all the same, on cores that have
too much to do; then it ends later, and a restart would only cost more. So what counts is the time in which it could
have ended one: while its broker and its task manager answer, and while cores are free, or queries beside it end
theirs. Time in which nobody looked (a computer that slept) counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Cores that are busy for less than this share have time for who wants it.
FREE = 0.5
#: How much of the time counts on busy cores where other queries end batches, and where nothing is known of the cores.
BESIDE_OTHERS, UNKNOWN = 1 / 2, 1 / 3
#: The most that one look counts, seconds.
LONGEST_LOOK_S = 2.0


def share(busy: float | None, others_end: bool) -> float:
    """How much of the time since the last look counts.

    Args:
        busy: how busy the task manager's cores are, as a share of them; None where they are out of reach.
        others_end: whether batches of other queries on it end.

    """
    if busy is not None and busy < FREE:
        return 1.0
    if others_end:
        return BESIDE_OTHERS
    return UNKNOWN if busy is None else 0.0


@dataclass(slots=True)
class StallDetector:
    """Of one instance, since its last batch ended or its present run began."""

    counted_s: float = 0.0  #: in which it could have ended a batch
    watched_s: float = 0.0  #: in all
    _since: tuple[str | None, int] | None = None  #: the run, and how many batches of it have ended
    _looked_at: float = 0.0

    def look(self, now: float, run_id: str | None, ended: int, share: float) -> None:
        """What is seen now (monotonic seconds): the run, its number of ended batches, and how much of the time since
        the last look counts."""
        if self._since == (run_id, ended):
            passed = min(now - self._looked_at, LONGEST_LOOK_S)
            self.watched_s += passed
            self.counted_s += share * passed
        else:
            self.counted_s = self.watched_s = 0.0
            self._since = (run_id, ended)
        self._looked_at = now
