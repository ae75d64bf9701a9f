"""Queries whose intents are not met: what lacks, and for how long. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qod_magics.core.freshness import has_failed
from qod_magics.core.optional import LATENCY_P95, MAX_LATENCY, OLDEST
from qod_magics.core.plan import Plan
from qod_magics.core.snapshot import Snapshot, Task

#: Accuracy from which on a query counts as whole.
WHOLE = 0.98


@dataclass(frozen=True, slots=True)
class Pressure:
    """A query that is shed, or late."""

    query: str
    since_s: float  #: on the clock of the snapshots
    accuracy: float  #: planned, fraction of 1
    latency_s: float | None  #: the 95th percentile; None: unmeasured, or within its target

    @property
    def words(self) -> str:
        """One clause."""
        late = "" if self.latency_s is None else f", late ({self.latency_s:.1f} s)"
        return f"{self.query} at {self.accuracy:.2f}{late}"


def pressures(snapshot: Snapshot, plan: Plan, now_s: float, before: Mapping[str, Pressure]) -> Mapping[str, Pressure]:
    """The queries under pressure, by name; one that was so `before` keeps its beginning. One that has failed is late
    for another reason than a lack of CPU."""
    found = {}
    failed = {instance.task for instance in snapshot.instances if has_failed(instance)}
    for task in snapshot.tasks:
        if snapshot.downstream[task.id] or task.id in failed:
            continue
        accuracy, late_s = plan.desired[task.id], lateness(task)
        if accuracy >= WHOLE and late_s is None:
            continue
        known = before.get(task.id)
        found[task.id] = Pressure(task.id, now_s if known is None else known.since_s, accuracy, late_s)
    return found


def lateness(task: Task) -> float | None:
    """The latency of a query beyond its target, seconds. None: within the target, or without one."""
    target = MAX_LATENCY.of(task)
    return latency(task) if target is not None and latency(task) > target else None


def latency(task: Task) -> float:
    """The latency of a query, seconds: the 95th percentile, or the age of its oldest row where that is greater; 0 where
    neither is measured."""
    return max(LATENCY_P95.of(task) or 0.0, OLDEST.of(task) or 0.0)
