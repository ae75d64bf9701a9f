"""The snapshots of the current observation window."""

from __future__ import annotations

from dataclasses import dataclass

from qod_magics.core.snapshot import Snapshot
from qod_magics.core.table import column
from qod_magics.policies.d_storm.means import is_measured, mean
from qod_magics.policies.d_storm.parameters import Parameters


@dataclass(frozen=True, slots=True)
class Monitor:
    """One window: it begins anew when an instance comes, goes or moves, since metrics of two placements do not mix."""

    began_s: float
    seen: tuple[tuple[float, Snapshot], ...] = ()  #: each with its time, s; those of the last window

    def seeing(self, snapshot: Snapshot, now_s: float, parameters: Parameters) -> Monitor:
        """With one snapshot more."""
        if self.seen and _placement(self.seen[-1][1]) != _placement(snapshot):
            return Monitor(now_s, ((now_s, snapshot),))
        kept = tuple((at_s, old) for at_s, old in self.seen if now_s - at_s < parameters.window_s)
        return Monitor(self.began_s, (*kept, (now_s, snapshot)))

    def is_full(self, now_s: float, parameters: Parameters) -> bool:
        """Whether the window is over, nothing warms up, and every instance was measured in it."""
        if now_s - self.began_s < parameters.window_s:
            return False
        newest = self.seen[-1][1]
        if any(instance.warming_up for instance in newest.instances):
            return False
        measured = {each.id for _, snapshot in self.seen for each in snapshot.instances if is_measured(each)}
        return measured.issuperset(column(newest.instances, "id"))

    @property
    def mean(self) -> Snapshot:
        """The window's means."""
        return mean([snapshot for _, snapshot in self.seen])


def _placement(snapshot: Snapshot) -> dict[str, str]:
    ids, managers = column(snapshot.instances, "id"), column(snapshot.instances, "task_manager")
    return dict(zip(ids, managers, strict=True))
