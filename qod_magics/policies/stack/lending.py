"""The lending stage: rows of a hot key go to an instance that has time before any are shed for it. Pure.

Dirigo decides (`policies.dirigo.live`), with one rule of its own here: it looks at the rows that would come without
shedding, as far as all instances together could count them, and at the backlog that they would be. By what comes and
waits it would lend nothing while shedding keeps the backlog of the hot key short, and all keys would stay shed for the
sake of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from qod_magics.core.plan import Lend
from qod_magics.core.snapshot import Snapshot, Task
from qod_magics.policies.dirigo.live import DirigoLive, Lent, Worker, why_lent, workers_of
from qod_magics.policies.stack.stage import Lever

#: The part of its core from which on an instance is one that shedding keeps within what it counts. Below, its rows are
#: shed for the sake of another task manager, and come no sooner where some are lent.
BUSY = 0.7


@dataclass(frozen=True, slots=True)
class Lending:
    """Lends rows of queries that were declared so. It moves and restarts nothing, so it decides in every cycle."""

    decides: DirigoLive = field(default_factory=DirigoLive)

    name = "lend"
    owns = frozenset({Lever.LENDING})

    def lends(self, snapshot: Snapshot, lent: Lent, accuracy: Mapping[str, float]) -> tuple[Lend, ...]:
        """Return what instances lend from now on.

        Args:
            snapshot: a valid one.
            lent: what they lent while it was measured.
            accuracy: the accuracies that were planned meanwhile, by task.

        """
        return tuple(
            each
            for task in snapshot.tasks
            if task.lends
            for each in self._of_task(snapshot, task, lent, accuracy.get(task.id, 1.0))
        )

    def _of_task(self, snapshot: Snapshot, task: Task, lent: Lent, accuracy: float) -> list[Lend]:
        target_s = self.decides.target_s(task)
        measured = workers_of(snapshot, task, lent)
        full = unshed(measured, accuracy)
        lends = self.decides.of_task(task, tuple(behind(each, target_s) for each in full))
        why = {each.id: why_lent(each, target_s, more.own_rate) for each, more in zip(measured, full, strict=True)}
        return [Lend(each.task, each.instance, each.to, each.share, why[each.instance]) for each in lends]


def unshed(workers: Sequence[Worker], accuracy: float) -> tuple[Worker, ...]:
    """Return instances with the rows of their keys that would come at accuracy 1, or at the highest one at which all
    instances together can count them; as they are where none of them is busy. `accuracy`: the one at which they were
    measured."""
    busy = [each.own_rate * each.row_s for each in workers]
    if max(busy, default=0.0) < BUSY or not accuracy:
        return tuple(workers)
    factor = min(1.0 / accuracy, len(workers) / sum(busy))
    return tuple(replace(each, own_rate=each.own_rate * factor) for each in workers)


def behind(worker: Worker, target_s: float) -> Worker:
    """Return an instance with the least backlog that it would come to: if more rows come than it counts, further ones
    are late at last, whatever the target; what waits now only says how soon."""
    if worker.own_rate * worker.row_s <= 1.0:
        return worker
    return replace(worker, waiting=max(worker.waiting, ceil(target_s / worker.row_s)))
