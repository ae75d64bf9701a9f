"""Replan before the period is over: the input rate exceeds the planned rate, or has fallen far below it.

`RateCheck` decides that and is pure. `RateWatch` asks the runtime for the input rates several times a period.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from qod_magics.controller.clock import Clock
from qod_magics.controller.dials import Fall, noticed
from qod_magics.controller.journal import Journal, describe
from qod_magics.controller.log import Cycle
from qod_magics.controller.runtime_calls import BoundedCall
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import InputRateRuntime, Observation, Runtime
from qod_magics.core.snapshot import Snapshot, replace

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
class _Falling:
    """A source whose input rate may have fallen."""

    below: float  #: rows/s below which it has
    times: int  #: checks in a row


@dataclass(frozen=True, slots=True)
class RateCheck:
    """The sources whose input rate is far from the planned one, and for how many checks in a row."""

    rising: Mapping[str, int] = field(default_factory=dict)
    falling: Mapping[str, _Falling] = field(default_factory=dict)
    lately: tuple[tuple[float, Rates], ...] = ()  #: (second, rates) of the last checks, oldest first

    def after(self, now: float, rates: Rates, planned: Rates, above: float) -> RateCheck:
        """Return the state after one more check, at second `now`, given the input rates, those of the last plan, and
        the ratio that counts as a step up."""
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
        """Return the state after a plan. If the plan was made for these rates, instead of means, the checks of rises
        and of the falls among them begin again."""
        return RateCheck({}, {name: each for name, each in self.falling.items() if name not in by}, self.lately)

    def _falling(
        self, name: str, now: float, rates: Rates, planned: Rates, earlier: tuple[tuple[float, Rates], ...]
    ) -> _Falling | None:
        rate, before = rates[name], self.falling.get(name)
        if before is not None:
            still = rate < min(before.below, STILL * planned[name])
            return replace(before, times=before.times + 1) if still else None
        below = FALLEN * planned[name]
        return _Falling(below, 1) if rate < below and _is_lowest(name, rate, now, earlier) else None

    def highest(self, name: str, since: float) -> float:
        """Return the highest rate of a source in the checks from this second on, rows/s; 0 without any check."""
        return max((rates[name] for at, rates in self.lately if at >= since and name in rates), default=0.0)

    @property
    def stepped(self) -> bool:
        """Return whether the input rate of some source has exceeded the planned rate for long enough."""
        return any(times >= SUSTAINED for times in self.rising.values())

    @property
    def fallen(self) -> Collection[str]:
        """Return the sources whose input rate has been far below the planned rate for long enough. A source without any
        input is not among them: nothing is lost there."""
        return [name for name, each in self.falling.items() if each.times >= SUSTAINED]


def _planned_rates(snapshot: Snapshot) -> Rates:
    """Return the input rate of each source, rows/s, that a plan for the snapshot assumes."""
    return {task.id: task.external_rate for task in snapshot.tasks if task.external_rate is not None}


def _with_rates(seen: Observation, rates: Rates) -> Observation:
    """Return the observation with these input rates of sources, rows/s, in place of the measured ones."""
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
    """Return whether a rate is lower than all earlier ones of its source, which are known for long enough."""
    known = [(at, rates[name]) for at, rates in earlier if name in rates]
    return bool(known) and now - known[0][0] >= KNOWN_S and rate < LOWER * min(before for _, before in known)


class RateWatch:
    """Watches the input rates of a runtime that has them, for policies that ask for it (`Plan.react_above`).

    Attributes:
        falls: of the last periods, by source.

    """

    def __init__(self, runtime: Runtime, journal: Journal, clock: Clock, calling: BoundedCall[Rates]) -> None:
        self._runtime = runtime if isinstance(runtime, InputRateRuntime) else None
        self._journal = journal
        self._clock = clock
        self._calling = calling
        self._check = RateCheck()
        self.falls: Mapping[str, Fall] = {}

    def __repr__(self) -> str:
        return f"watch of input rates: {len(self.falls)} fell lately"

    def interval_s(self, plan: Plan | None, period_s: float) -> float | None:
        """Return the seconds between two checks that this plan asks for; None if it asks for none."""
        if plan is None or plan.react_above is None or self._runtime is None:
            return None
        return period_s / CHECKS

    @property
    def rises(self) -> bool:
        """Return whether the last check shows a rise."""
        return self._check.stepped

    def stepped(self, last: Cycle | None, period_s: float) -> Rates:
        """Check once; return the rates if they differ enough from those of the last plan to replan early. After a rise
        the result has all sources, after a fall those that fell. It is empty where no step is seen, or where the
        runtime has not answered by the next check. Errors of the runtime are not raised."""
        if last is None or last.plan is None or last.snapshot is None:
            return {}
        interval_s, runtime = self.interval_s(last.plan, period_s), self._runtime
        if interval_s is None or runtime is None:
            return {}
        self._calling.late()  # too old to decide on
        if self._calling.under_way:
            return {}
        outcome = self._calling.call(partial(runtime.input_rates, interval_s), interval_s)
        if outcome is None:
            return {}
        rates = outcome.value
        if rates is None:
            self._journal.fault("input-rates-failed", f"input_rates() failed: {describe(outcome.error)}")
            return {}
        try:  # a policy's request and a runtime's rates may be of any kind
            planned, above = _planned_rates(last.snapshot), float(last.plan.react_above or 0.0)
            self._check = check = self._check.after(self._clock.monotonic(), rates, planned, above)
        except (TypeError, ValueError) as error:
            self._journal.fault("input-rates-failed", f"the input rates can't be compared with the plan's: {error}")
            return {}
        self._journal.recovered("input-rates-failed", "input_rates() works again")
        return rates if check.stepped else {name: rates[name] for name in check.fallen}

    def corrected(
        self, seen: Observation, rates: Rates, now: float, period_s: float, remembered_s: float
    ) -> Observation:
        """Return the observation with the rates of a step, and those of sources that fell within the last period, whose
        means are still of both sides of the fall.

        Args:
            seen: what the runtime measured.
            rates: of `stepped`, rows/s by source.
            now: monotonic seconds.
            period_s: length of a cycle.
            remembered_s: for how long a fall is known.

        """
        check, known = self._check, seen.measured.accuracy
        if rates:
            self._journal.note(
                "reaction", "input rate is far from the planned rate: replanned early", rates=dict(rates)
            )
        before = {name: check.highest(name, now - 2 * period_s) for name in check.fallen if name in rates}
        new = {name: Fall(now, rate, rate * (known.get(name) or 0.0)) for name, rate in before.items()}
        self.falls = noticed(self.falls, new, now, remembered_s)
        latest = check.lately[-1][1] if check.lately else {}
        recent = [name for name, fall in self.falls.items() if now - fall.at < period_s and name in latest]
        rates = {**{name: latest[name] for name in recent}, **rates}
        return _with_rates(seen, rates) if rates else seen

    def decided(self, by: Rates) -> None:
        """Take note of a plan that was made, for these rates of a step if there are any."""
        self._check = self._check.decided(by)
