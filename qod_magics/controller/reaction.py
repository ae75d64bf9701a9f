"""When to replan before the period is over: the input exceeds the planned rate, or has fallen far below it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from qod_magics.core.runtime import Observation
from qod_magics.core.snapshot import Snapshot

#: checks of the input rates per period
CHECKS = 5

#: checks in a row that make a step of the rate, so that a burst triggers no replan
SUSTAINED = 2

#: rows/s above or below the planned rate, within which nothing is a step
LEAST_STEP = 20.0

#: share of the planned rate below which a rate may be a fall; and that of a plan made meanwhile, for a mean over both
#: sides of the fall
FALLEN, STILL = 0.5, 0.9

#: a fall is lower than this share of every rate of the last `LOOKED_BACK_S` seconds: a source that sends in bursts or
#: waves was as low before
LOWER, LOOKED_BACK_S = 0.75, 30.0

#: seconds for which a source must have been checked before anything counts as a fall
KNOWN_S = 10.0


Rates = Mapping[str, float]  #: rows/s by source


@dataclass(frozen=True, slots=True)
class Falling:
    """A source whose input may have fallen."""

    below: float  #: rows/s below which it has
    times: int  #: checks in a row


@dataclass(frozen=True, slots=True)
class RateCheck:
    """The sources whose input is far from the planned rate, and for how many checks in a row."""

    rising: Mapping[str, int] = field(default_factory=dict)
    falling: Mapping[str, Falling] = field(default_factory=dict)
    lately: tuple[tuple[float, Rates], ...] = ()  #: (second, rates) of the last checks, oldest first

    def after(self, now: float, rates: Rates, planned: Rates, above: float) -> RateCheck:
        """With one more check, at second `now`: the input rates, those of the last plan, and the ratio that is a step
        up."""
        earlier = tuple(each for each in self.lately if now - LOOKED_BACK_S <= each[0] < now)
        rising = {
            name: self.rising.get(name, 0) + 1
            for name, rate in rates.items()
            if name in planned and rate > above * planned[name] and rate > planned[name] + LEAST_STEP
        }
        low = [name for name, rate in rates.items() if 0.0 < rate < planned.get(name, 0.0) - LEAST_STEP]
        falling = {name: found for name in low if (found := self._falling(name, now, rates, planned, earlier))}
        return RateCheck(rising, falling, (*earlier, (now, rates)))

    def decided(self, by: Rates) -> RateCheck:
        """After a plan, for these rates instead of means if there are any: rises, and falls that it is for, count
        anew."""
        return RateCheck({}, {name: each for name, each in self.falling.items() if name not in by}, self.lately)

    def _falling(
        self, name: str, now: float, rates: Rates, planned: Rates, earlier: tuple[tuple[float, Rates], ...]
    ) -> Falling | None:
        rate, before = rates[name], self.falling.get(name)
        if before is not None:
            still = rate < min(before.below, STILL * planned[name])
            return replace(before, times=before.times + 1) if still else None
        below = FALLEN * planned[name]
        return Falling(below, 1) if rate < below and _is_lowest(name, rate, now, earlier) else None

    def highest(self, name: str, since: float) -> float:
        """The highest rate of a source in the checks from this second on, rows/s; 0 without any."""
        return max((rates[name] for at, rates in self.lately if at >= since and name in rates), default=0.0)

    @property
    def stepped(self) -> bool:
        """Whether the input of some source exceeds the planned rate for long enough."""
        return any(times >= SUSTAINED for times in self.rising.values())

    @property
    def fallen(self) -> Collection[str]:
        """The sources whose input has been far below the planned rate for long enough. Nothing is lost where no row
        arrives at all, so that is no fall."""
        return [name for name, each in self.falling.items() if each.times >= SUSTAINED]


def planned_rates(snapshot: Snapshot) -> Rates:
    """The rows/s of each source that a plan for the snapshot assumes."""
    return {task.id: task.external_rate for task in snapshot.tasks if task.external_rate is not None}


def with_rates(seen: Observation, rates: Rates) -> Observation:
    """The observation with these rates of sources, rows/s, in place of the measured ones."""
    rates = {task.id: rates[task.id] for task in seen.snapshot.tasks if not task.upstream and task.id in rates}
    tasks = tuple(
        replace(task, external_rate=rates[task.id]) if task.id in rates else task for task in seen.snapshot.tasks
    )
    return replace(
        seen,
        snapshot=replace(seen.snapshot, tasks=tasks),
        measured=replace(seen.measured, input_rate={**seen.measured.input_rate, **rates}),
    )


def _is_lowest(name: str, rate: float, now: float, earlier: tuple[tuple[float, Rates], ...]) -> bool:
    """Whether a rate is lower than all earlier ones of its source, which are known for long enough."""
    known = [(at, rates[name]) for at, rates in earlier if name in rates]
    return bool(known) and now - known[0][0] >= KNOWN_S and rate < LOWER * min(before for _, before in known)
