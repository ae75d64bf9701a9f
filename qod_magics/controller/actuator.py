"""Carrying out plans: one at a time, with a timeout, and what is known to be in force."""

from __future__ import annotations

from functools import partial

from qod_magics.controller.bounded_call import BoundedCall
from qod_magics.controller.journal import Journal, describe
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Dials, Runtime


class Actuator:
    """Applies plans to one runtime. A failure is reported in the journal when it begins, and when it is over.

    Attributes:
        in_force: the settings known to be in force; None before any were applied.

    """

    def __init__(self, runtime: Runtime, journal: Journal, calling: BoundedCall[None]) -> None:
        self._runtime = runtime
        self._journal = journal
        self._calling = calling
        self._under_way: tuple[int, Plan, Dials] | None = None  #: cycle, and what it applies
        self.in_force: Dials | None = None

    def __repr__(self) -> str:
        if self._under_way is not None:
            return f"actuator: applies the plan of cycle {self._under_way[0]}"
        return f"actuator: {'nothing' if self.in_force is None else 'a plan'} in force"

    def apply(self, plan: Plan, dials: Dials, timeout_s: float) -> bool:
        """Whether they are now in force. A call that takes longer than `timeout_s` seconds goes on, and no other is
        made meanwhile: see `late`."""
        if self._under_way is None:
            outcome = self._calling.call(partial(self._runtime.apply, plan, dials), timeout_s)
            if outcome is not None:
                return self._ended(dials, outcome.error)
            self._under_way = (self._journal.cycle, plan, dials)
        if not self._calling.interrupted:
            words = f"apply() of cycle {self._under_way[0]} is still under way; no other is begun until it ends"
            self._journal.fault("apply-slow", words)
        return False

    def late(self) -> Plan | None:
        """The plan of a call that took longer than its timeout, once it has come into force; does not wait."""
        late = self._calling.late()
        if late is None or self._under_way is None:
            return None
        number, plan, dials = self._under_way
        self._under_way = None
        self._journal.recovered("apply-slow", f"apply() of cycle {number} ended after {late.took_s:.1f} s")
        return plan if self._ended(dials, late.error) else None

    def _ended(self, dials: Dials, error: BaseException | None) -> bool:
        if error is not None:
            self._journal.fault("apply-failed", f"apply() failed: {describe(error)}")
            return False
        self._journal.recovered("apply-failed", "apply() works again")
        self.in_force = dials
        return True
