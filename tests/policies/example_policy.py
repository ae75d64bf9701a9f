"""A policy of another package, as whoever writes one begins: all queries shed alike, whatever their priority."""

from __future__ import annotations

from typing import Any

from qod_magics.core.plan import Plan
from qod_magics.core.snapshot import Snapshot

HEADROOM = 0.9  #: of a core, for queries


class Alike:
    """Every query runs at the same accuracy: what one core has by what the busiest task manager uses, at least at its
    minimum. Rows are dropped at the sources."""

    name = "alike"

    def decide(self, snapshot: Snapshot, state: Any) -> tuple[Plan, Any]:
        """The plan; `state` is the accuracy of the last one."""
        before = 1.0 if state is None else state
        busiest = max((m.cpu / (100 * m.cores * HEADROOM) for m in snapshot.task_managers), default=0.0)
        wanted = min(before / max(busiest, 0.1), 1.0)
        desired = {task.id: max(wanted, task.min_accuracy or 0.0) for task in snapshot.tasks}
        most = max(desired.values(), default=1.0)  # a source serves whoever wants most
        keep: dict[tuple[str | None, str], float] = {}
        for task in snapshot.tasks:
            if not task.upstream:
                desired[task.id] = desired[task.id] if task.min_accuracy is not None else most
                keep[None, task.id] = desired[task.id]
        for stream in snapshot.streams:
            keep[stream.source, stream.target] = min(desired[stream.target] / desired[stream.source], 1.0)
        return Plan(desired, keep), wanted
