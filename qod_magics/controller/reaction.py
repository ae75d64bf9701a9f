"""When to replan before the period is over: the input rate exceeds the planned rate. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qod_magics.core.snapshot import Snapshot

#: checks of the input rates per period
CHECKS = 5

#: checks in a row that make a step of the rate, so that a burst triggers no replan
SUSTAINED = 2

#: rows/s above the planned rate, below which nothing is a step
LEAST_STEP = 20.0


@dataclass(frozen=True, slots=True)
class RateCheck:
    """The sources whose input exceeds the planned rate, and for how many checks in a row.

    Only rises count: a fall costs only some accuracy, for less than a period.
    """

    rising: Mapping[str, int] = field(default_factory=dict)

    def after(self, rates: Mapping[str, float], planned: Mapping[str, float], above: float) -> RateCheck:
        """With one more check: the input rates, those of the last plan (rows/s), and the ratio that is a step."""
        return RateCheck(
            {
                name: self.rising.get(name, 0) + 1
                for name, rate in rates.items()
                if name in planned and rate > above * planned[name] and rate > planned[name] + LEAST_STEP
            }
        )

    @property
    def stepped(self) -> bool:
        """Whether some source exceeds it for long enough."""
        return any(times >= SUSTAINED for times in self.rising.values())


def planned_rates(snapshot: Snapshot) -> Mapping[str, float]:
    """The rows/s of each source that a plan for the snapshot assumes."""
    return {task.id: task.external_rate for task in snapshot.tasks if task.external_rate is not None}
