"""A call to the runtime with a timeout, never made twice at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from qod_magics.controller.worker import Outcome, PendingCall, Worker

T = TypeVar("T")


class BoundedCall(Generic[T]):
    """One kind of call (observe, apply) on a worker of its own.

    At any given time at most one call is under way. One that timed out goes on; its outcome is handed out once, by
    `late`.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._under_way: PendingCall[T] | None = None
        self.interrupted = False  #: whether no call waits, until `close`

    @property
    def under_way(self) -> bool:
        """Whether a call timed out and its outcome is not yet taken."""
        return self._under_way is not None

    def call(self, function: Callable[[], T], timeout_s: float) -> Outcome[T] | None:
        """Make a call and wait for at most `timeout_s` seconds; None when it goes on after that.

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
        """The outcome of the call that timed out, once it has ended; does not wait."""
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
