"""Backlogs that a load leaves when it falls: how they are drained, so that rows that come later are kept. Pure.

Such a backlog counts many seconds of the present input, but it was collected within a few. Thinned over two periods,
as any other, it would take the rows of all that time with it. Thinned as strongly as the load before, it is read in
the time in which it was collected; a cycle a second looks whether it has been, and then every row is kept. One that
was small for what was processed before is not thinned at all. Such cycles go on until no dropped row shows in the
accuracy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from qod_magics.controller.backlog import Backlog, Limits
from qod_magics.core.load import FULL_ACCURACY
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Measured

#: times in which a backlog is drained: for so long at most a cycle a second looks whether no dropped row shows
SETTLED_WITHIN = 2.0


@dataclass(frozen=True, slots=True)
class Fall:
    """A fall of a source's input."""

    at: float  #: when it was noticed, monotonic seconds
    before: float  #: rows/s that arrived before
    kept: float  #: of these, rows/s that the shedder kept

    def spares(self, backlog: Backlog, within_s: float) -> bool:
        """Whether the backlog goes within this time without dropping rows: at the rate that was processed before, less
        the present input."""
        return backlog.rows <= within_s * (self.kept - (backlog.rate or 0.0))

    def drain_s(self, backlog: Backlog) -> float:
        """Seconds in which the backlog was collected."""
        return backlog.rows / max(self.before, 1e-9)


def noticed(
    known: Mapping[str, Fall], new: Mapping[str, Fall], now: float, forgotten_after_s: float
) -> Mapping[str, Fall]:
    """The falls known so far, except those that are older than this, and the new ones."""
    return {**recent(known, now, forgotten_after_s), **new}


def recent(known: Mapping[str, Fall], now: float, within_s: float) -> Mapping[str, Fall]:
    """The falls of the last seconds: what an earlier one left is a backlog as any other."""
    return {name: fall for name, fall in known.items() if now - fall.at < within_s}


def waiting(
    found: Mapping[str, Backlog], falls: Mapping[str, Fall], limits: Limits, within_s: float
) -> Mapping[str, Backlog]:
    """The backlogs that are to be drained, by task. Of one that a fall left, the CPU that is free now reads the rest
    once that would begin no drain by itself."""
    return {
        task: backlog
        for task, backlog in found.items()
        if task not in falls or (limits.begins_drain(task, backlog) and not falls[task].spares(backlog, within_s))
    }


def unsettled(falls: Mapping[str, Fall], plan: Plan, measured: Measured) -> Collection[str]:
    """The sources that fell of which the plan keeps every row, while rows dropped before show in their accuracy."""
    whole = [name for name in falls if plan.non_drop.get((None, name)) == 1.0]
    shown = {name: accuracy for name in whole if (accuracy := measured.accuracy.get(name)) is not None}
    return [name for name, accuracy in shown.items() if accuracy < FULL_ACCURACY]


def hastened(
    left_s: Mapping[str, float], found: Mapping[str, Backlog], falls: Mapping[str, Fall], least_s: float
) -> Mapping[str, float]:
    """`left_s`, the seconds that each drain may take, with those of backlogs that a fall left: the time in which these
    were collected, at least `least_s`."""
    return {
        task: min(max(falls[task].drain_s(found[task]), least_s), seconds) if task in falls else seconds
        for task, seconds in left_s.items()
    }
