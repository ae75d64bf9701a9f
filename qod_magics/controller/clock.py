"""Time, injected: the system's for a live run, a manual one for tests and for runs in virtual time."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """The controller's source of time."""

    def monotonic(self) -> float:
        """Return seconds since some fixed instant; never goes back."""
        ...

    def wall(self) -> datetime:
        """Date and time now, in UTC."""
        ...

    def wait(self, seconds: float, wake: threading.Event) -> bool:
        """Wait for `seconds`, or until `wake` is set. Returns whether it was set."""
        ...


class SystemClock:
    """The clock of the machine."""

    def monotonic(self) -> float:
        """Return seconds since some fixed instant; never goes back."""
        return time.monotonic()

    def wall(self) -> datetime:
        """Date and time now, in UTC."""
        return datetime.now(UTC)

    def wait(self, seconds: float, wake: threading.Event) -> bool:
        """Sleep for `seconds`, or until `wake` is set. Returns whether it was set."""
        return wake.wait(max(seconds, 0.0))


class ManualClock:
    """Virtual time: it stands still until somebody advances it, and waiting advances it at once.

    A controller on this clock runs as fast as its cycles can be computed. Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._start = datetime(2026, 1, 1, tzinfo=UTC)
        self._elapsed = 0.0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        """Virtual seconds since the clock was made."""
        with self._lock:
            return self._elapsed

    def wall(self) -> datetime:
        """Return the start instant plus the virtual seconds since."""
        return self._start + timedelta(seconds=self.monotonic())

    def advance(self, seconds: float) -> None:
        """Let `seconds` of virtual time pass. Raises ValueError when negative."""
        if seconds < 0:
            raise ValueError(f"time can't go back by {-seconds} s: give a number of seconds >= 0")
        with self._lock:
            self._elapsed += seconds

    def wait(self, seconds: float, wake: threading.Event) -> bool:
        """Advance by `seconds` at once; not at all when `wake` is set already. Returns whether it was set."""
        if wake.is_set():
            return True
        self.advance(max(seconds, 0.0))
        return False
