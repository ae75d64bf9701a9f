"""Call the runtime with timeouts: `observe` and `apply`, each at most once at a time.

A `BoundedCall` that times out goes on, and its outcome can be fetched once it has ended. The `Sensor` checks what it
observes; the `Actuator` knows which settings are in force.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from qod_magics.controller.clock import Clock
from qod_magics.controller.journal import Journal, describe
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Dials, Observation, Runtime
from qod_magics.core.snapshot import Snapshot, replace
from qod_magics.core.validation import check_snapshot

# --- Workers for calls that may hang ----------------------------------------------------------------------------------

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """How a call ended: with a value, or with an error."""

    value: T | None
    error: BaseException | None
    took_s: float  #: from the start of the call to its end


class PendingCall(Protocol[T]):
    """One call: under way, or ended."""

    def wait(self, timeout_s: float) -> Outcome[T] | None:
        """Return how the call ended, waiting for at most `timeout_s`; None while it is under way."""
        ...


class Worker(Protocol):
    """Makes one call at a time."""

    def begin(self, function: Callable[[], T]) -> PendingCall[T]:
        """Start a call. The call before must have ended."""
        ...

    def interrupt(self) -> None:
        """End the wait for the call under way and, until `close`, for later ones; the calls themselves go on.

        Safe from any thread.
        """
        ...

    def close(self) -> None:
        """Accept no more calls. A hanging call is abandoned."""
        ...


def attempt(function: Callable[[], T]) -> Outcome[T]:
    """Make a call on this thread, and turn whatever it raises into an outcome."""
    started = time.monotonic()
    try:
        value = function()
    except BaseException as error:  # left to the thread that waits
        return Outcome(None, error, time.monotonic() - started)
    return Outcome(value, None, time.monotonic() - started)


@dataclass(slots=True)
class _ThreadJob(Generic[T]):
    function: Callable[[], T]
    changed: threading.Event
    outcome: Outcome[T] | None = None

    def run(self) -> None:
        self.outcome = attempt(self.function)
        self.changed.set()

    def wait(self, timeout_s: float) -> Outcome[T] | None:
        self.changed.wait(max(timeout_s, 0.0))
        return self.outcome


class ThreadWorker:
    """One daemon thread of the given name, started at the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_ThreadJob[object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: _ThreadJob[object] | None = None
        self._interrupted = False

    def begin(self, function: Callable[[], T]) -> PendingCall[T]:
        """Start a call on the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        job = _ThreadJob(function, threading.Event())
        self._last = job  # type: ignore[assignment]
        if self._interrupted:  # after _last is set, as `interrupt` does it the other way round
            job.changed.set()
        self._jobs.put(job)  # type: ignore[arg-type]
        return job

    def interrupt(self) -> None:
        """End the wait for the call under way and, until `close`, for later ones. From any thread."""
        self._interrupted = True
        if (job := self._last) is not None:
            job.changed.set()

    def close(self) -> None:
        """End the thread, after the call under way if there is one. A later call starts another thread."""
        thread, self._thread = self._thread, None
        self._interrupted = False
        if thread is None:
            return
        jobs, self._jobs = self._jobs, queue.SimpleQueue()
        jobs.put(None)
        if self._last is None or self._last.outcome is not None:
            thread.join()

    def _run(self) -> None:
        jobs = self._jobs
        while (job := jobs.get()) is not None:
            job.run()


@dataclass(frozen=True, slots=True)
class _Ended(Generic[T]):
    outcome: Outcome[T]

    def wait(self, timeout_s: float) -> Outcome[T] | None:
        return self.outcome


class InlineWorker:
    """Makes each call on the caller's own thread, however long it takes: for runs in virtual time."""

    def __init__(self, name: str) -> None:
        self.name = name

    def begin(self, function: Callable[[], T]) -> PendingCall[T]:
        """Make the call; it has ended when this returns."""
        return _Ended(attempt(function))

    def interrupt(self) -> None:
        """Nothing is ever under way."""

    def close(self) -> None:
        """Nothing is ever left over."""


class BoundedCall(Generic[T]):
    """One kind of call (observe, apply) on a worker of its own.

    At any given time at most one call is under way. A call that timed out goes on; `late` returns its outcome, once.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._under_way: PendingCall[T] | None = None
        self.interrupted = False  #: whether no call waits, until `close`

    @property
    def under_way(self) -> bool:
        """Return whether a call timed out whose outcome was not fetched yet."""
        return self._under_way is not None

    def call(self, function: Callable[[], T], timeout_s: float) -> Outcome[T] | None:
        """Make a call and wait for at most `timeout_s` seconds; return None if it takes longer. It then goes on.

        Raises RuntimeError while an earlier call is under way.
        """
        if self._under_way is not None:
            raise RuntimeError("an earlier call is under way: ask late() first")
        job = self._worker.begin(function)
        outcome = job.wait(timeout_s)
        if outcome is None:
            self._under_way = job
        return outcome

    def late(self) -> Outcome[T] | None:
        """Return the outcome of the call that timed out, once it has ended. Does not wait."""
        if self._under_way is None:
            return None
        outcome = self._under_way.wait(0.0)
        if outcome is not None:
            self._under_way = None
        return outcome

    def interrupt(self) -> None:
        """End the wait in `call`, from another thread; until `close` no call waits."""
        self.interrupted = True
        self._worker.interrupt()

    def close(self) -> None:
        """End the worker; a later call starts it again."""
        self._worker.close()
        self.interrupted = False


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
        """Return the observation, or why there is none to decide on, in words.

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
        at_s = round(self._clock.monotonic(), 3)
        return replace(seen, snapshot=replace(seen.snapshot, at_s=at_s, paused=paused))


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
        """Apply a plan; return whether it is now in force. A call that takes longer than `timeout_s` seconds goes on,
        and no other call is made meanwhile: see `late`."""
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
        """Return the plan of a call that timed out, once it has come into force. Does not wait."""
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
