"""The input rates between two cycles: looked at several times a period, they say when to replan early."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from qod_magics.controller.bounded_call import BoundedCall
from qod_magics.controller.clock import Clock
from qod_magics.controller.cycle import Cycle
from qod_magics.controller.falls import Fall, noticed
from qod_magics.controller.journal import Journal, describe
from qod_magics.controller.reaction import CHECKS, RateCheck, Rates, planned_rates, with_rates
from qod_magics.core.optional import REACT
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import InputRateRuntime, Observation, Runtime


class RateWatch:
    """Watches the input rates of a runtime that has them, for policies that ask for it (`core.optional.REACT`).

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
        """Seconds between two checks that this plan asks for; None: it asks for none."""
        if plan is None or REACT.name not in plan.extra or self._runtime is None:
            return None
        return period_s / CHECKS

    @property
    def rises(self) -> bool:
        """Whether the last check shows a rise."""
        return self._check.stepped

    def stepped(self, last: Cycle | None, period_s: float) -> Rates:
        """Check once: the rates if they differ from those of the last plan by enough to replan early. After a rise they
        are those of all sources, after a fall of those that fell. Else empty, as when the runtime has not answered by
        the next check. The runtime's errors are not raised."""
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
            planned, above = planned_rates(last.snapshot), float(last.plan.extra[REACT.name])
            self._check = check = self._check.after(self._clock.monotonic(), rates, planned, above)
        except (TypeError, ValueError) as error:
            self._journal.fault("input-rates-failed", f"the input rates can't be compared with the plan's: {error}")
            return {}
        self._journal.recovered("input-rates-failed", "input_rates() works again")
        return rates if check.stepped else {name: rates[name] for name in check.fallen}

    def corrected(
        self, seen: Observation, rates: Rates, now: float, period_s: float, remembered_s: float
    ) -> Observation:
        """The observation with the rates of a step, and those of sources that fell within the last period, whose means
        are still of both sides of the fall.

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
        return with_rates(seen, rates) if rates else seen

    def decided(self, by: Rates) -> None:
        """A plan was made, for these rates of a step if there are any."""
        self._check = self._check.decided(by)
