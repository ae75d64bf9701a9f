"""The busy fraction of micro-batches: the time for rows, without that which each batch takes in any case. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qod_magics.core.snapshot import Instance, Snapshot, Window, nothing
from qod_magics.policies.stream_economics.learning.cost_fit import CostFit
from qod_magics.policies.stream_economics.learning.learning import is_new

#: An instance can't keep up if more rows wait than so many of its batches read. Back to back, the rows of up to three
#: batches wait: of the batch under way, until it has ended, and of the next two.
QUEUED = 4.0
#: Readings beyond these teach nothing: thousands of rows/s, and batches/s with their reciprocal.
MOST_ROWS, MOST_BATCHES = 1e6, 1e4
#: The fixed time of a batch is known once the largest batch has had so many times the rows of the smallest. Before, the
#: fit's prior decides: it is made for CPU, and takes most of the time for fixed time.
SPREAD = 1.25


def busy_with_rows(instance: Instance, batch_time_s: float | None) -> float:
    """Return the share of the time in which an instance works on rows.

    Micro-batches back to back are always under way, however few rows they read: the time that they would take without
    rows (`batch_time_s`, as learned; None: unknown) is no sign of congestion. It counts where more rows wait than
    `QUEUED` batches read: that instance is at its limit, whatever was learned.
    """
    if instance.busy is None:
        return instance.cpu / 100.0
    rate = instance.batches_per_s
    if batch_time_s is None or instance.at_work is None or not rate:
        return instance.busy
    if (instance.waiting or 0) * rate > QUEUED * instance.in_rate:
        return instance.busy
    return max(min(instance.at_work, instance.busy) - rate * batch_time_s, 0.0)


@dataclass(frozen=True, slots=True)
class Batches:
    """What readings have taught about the time of batches, by task, and the last reading of each instance."""

    fits: Mapping[str, CostFit] = field(default_factory=nothing)
    windows: Mapping[str, Window | None] = field(default_factory=nothing)
    rows: Mapping[str, tuple[float, float]] = field(default_factory=nothing)  #: per batch, least and most, by task

    def after(self, snapshot: Snapshot) -> Batches:
        """Return the same with the new readings of a snapshot; tasks that are gone are forgotten."""
        fits = {task.id: self.fits[task.id] for task in snapshot.tasks if task.id in self.fits}
        spread = {task: self.rows[task] for task in fits}
        windows = {}
        for each in snapshot.instances:
            before = self.windows.get(each.id)
            windows[each.id] = each.window or before
            if is_new(each, before) and _teaches(each):
                rows, busy, batches = each.in_rate / 1e3, 100.0 * (each.at_work or 0.0), each.batches_per_s
                known = fits.get(each.task)
                fits[each.task] = (
                    CostFit.first(rows, rows, busy, batches)
                    if known is None
                    else known.after(rows, rows, busy, batches)
                )
                read = each.in_rate / (batches or 1.0)
                least, most = spread.get(each.task, (read, read))
                spread[each.task] = min(least, read), max(most, read)
        return Batches(fits, windows, spread)

    def fixed_s(self, task: str) -> float | None:
        """Return the seconds that a batch of a task takes without rows; None: not known, as where all its batches
        have had about the same number of rows."""
        if task not in self.fits:
            return None
        least, most = self.rows[task]
        return self.fits[task].costs[0] / 100.0 if most >= SPREAD * least else None


def _teaches(instance: Instance) -> bool:
    """Return whether it runs micro-batches with rows, as a machine can."""
    batches = instance.batches_per_s
    return (
        instance.at_work is not None
        and batches is not None
        and 1.0 / MOST_BATCHES <= batches <= MOST_BATCHES
        and 1.0 / MOST_ROWS <= instance.in_rate / 1e3 <= MOST_ROWS
    )
