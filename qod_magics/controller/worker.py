"""Calls that may hang, made on a worker, so that the caller can go on without the result."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

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
        """How the call ended, waiting for at most `timeout_s`; None while it is under way."""
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
        """Accept no more calls. A call that hangs is abandoned."""
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
