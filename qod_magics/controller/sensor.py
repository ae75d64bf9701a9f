"""What a cycle decides on: the runtime's observation, asked for with a timeout and checked."""

from __future__ import annotations

from dataclasses import replace

from qod_magics.controller.bounded_call import BoundedCall
from qod_magics.controller.clock import Clock
from qod_magics.controller.journal import Journal, describe
from qod_magics.core.optional import PAUSED
from qod_magics.core.runtime import Observation, Runtime
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.validation import check_snapshot

#: Why a cycle is skipped that a stopping loop no longer waits for.
STOPPING = "the controller is being stopped"


class Sensor:
    """Observes one runtime, at most once at a time. A failure is reported in the journal when it begins, and when it is
    over."""

    def __init__(self, runtime: Runtime, journal: Journal, clock: Clock, calling: BoundedCall[Observation]) -> None:
        self._runtime = runtime
        self._journal = journal
        self._clock = clock
        self._calling = calling
        self._passed: Snapshot | None = None  #: the last valid one

    def __repr__(self) -> str:
        return "sensor: waits for the runtime" if self._calling.under_way else "sensor"

    def observe(self, timeout_s: float, *, paused: bool) -> Observation | str:
        """The observation, or why there is none to decide on, in words.

        Args:
            timeout_s: how long to wait for the runtime; a call that takes longer goes on, and no other is made
                meanwhile.
            paused: whether plans are only recommended; the policy sees it in the snapshot.

        """
        journal = self._journal
        late = self._calling.late()
        if late is not None:
            if late.value is not None:  # too old to decide on, but its events count
                journal.happened(*late.value.events)
            journal.recovered("observe-slow", f"observe() came back after {late.took_s:.1f} s")
        slow = f"observe() takes longer than {timeout_s:g} s; cycles are skipped until it comes back"
        if self._calling.under_way:
            return journal.skipped("observe-slow", slow)
        outcome = self._calling.call(self._runtime.observe, timeout_s)
        if outcome is None:
            return STOPPING if self._calling.interrupted else journal.skipped("observe-slow", slow)
        seen = outcome.value
        if seen is None:
            return journal.skipped("observe-failed", f"observe() failed: {describe(outcome.error)}")
        journal.recovered("observe-failed", "observe() works again")
        journal.happened(*seen.events)
        try:
            check_snapshot(seen.snapshot, self._passed)
        except Exception as error:
            return journal.skipped("snapshot-invalid", f"the runtime's snapshot is invalid: {describe(error)}")
        self._passed = seen.snapshot
        journal.recovered("snapshot-invalid", "the runtime's snapshot is valid again")
        extra = {**seen.snapshot.extra, PAUSED: True} if paused else seen.snapshot.extra
        at_s = round(self._clock.monotonic(), 3)
        return replace(seen, snapshot=replace(seen.snapshot, at_s=at_s, extra=extra))
