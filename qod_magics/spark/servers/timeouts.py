"""Timeouts for external calls that may hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, TypeVar

from qod_magics.errors import TaskManagerError

T = TypeVar("T")


#: For how long a thread waits for its next call, seconds.
IDLE_S = 10.0
#: Interval at which a waiting thread looks at signals, seconds: one that arrives just before it begins to wait does not
#: wake it.
SIGNALS_S = 0.5


class _Caller:
    """A daemon thread that makes one call after the other, and ends when it has had none for `IDLE_S` seconds."""

    _idle: ClassVar[list[_Caller]] = []
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[str, Callable[[], None]]] = SimpleQueue()

    @classmethod
    def run(cls, job: Callable[[], None], name: str) -> None:
        """Run `job`, which must not raise, on the thread that became idle last, or on a new one."""
        with cls._lock:
            caller = cls._idle.pop() if cls._idle else None
        if caller is None:
            caller = cls()
            threading.Thread(target=caller._loop, name=name, daemon=True).start()
        caller._jobs.put((name, job))

    def _loop(self) -> None:
        thread = threading.current_thread()
        while True:
            try:
                thread.name, job = self._jobs.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    if self in self._idle:
                        self._idle.remove(self)
                        return
                continue  # it has been given a job just now
            job()
            del job  # with the result, which the future has
            thread.name = "qod-idle"
            with self._lock:
                self._idle.append(self)


def begin(call: Callable[[], T], name: str) -> Future[T]:
    """Run `call` on a daemon thread that has nothing else to do: a call that never returns blocks neither caller nor
    exit. Threads are used again, the last one first: each new one could make the C library take another arena, with
    holes of its own (some 13 MiB an hour, with queries that restart)."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    _Caller.run(run, f"qod-{name}")
    return future


def call_within(call: Callable[[], T], timeout_s: float, what: str) -> T:
    """The result of `call`, or TaskManagerError after `timeout_s` seconds."""
    future = begin(call, what)
    try:
        if _ends_by(future, time.monotonic() + timeout_s):
            return future.result()
    except TimeoutError:  # the call's own
        pass
    raise TaskManagerError(f"{what} did not answer within {timeout_s:g} s.", name=what, value=timeout_s, rule="answers")


def _ends_by(future: Future[Any], deadline: float) -> bool:
    """Whether a call ends by this time of the monotonic clock."""
    while not future.done():
        rest = deadline - time.monotonic()
        if rest <= 0:
            return False
        wait((future,), min(rest, SIGNALS_S))
    return True


def gather(calls: Mapping[str, Callable[[], T]], timeout_s: float) -> dict[str, T | BaseException]:
    """The results (or errors) of concurrent calls, with a timeout of `timeout_s` seconds for all of them together."""
    futures = {name: begin(call, name) for name, call in calls.items()}
    deadline = time.monotonic() + timeout_s
    results: dict[str, Any] = {}
    for name, future in futures.items():
        if not _ends_by(future, deadline):
            why = f"{name} did not answer within {timeout_s:g} s."
            results[name] = TaskManagerError(why, name=name, value=timeout_s, rule="answers")
        else:
            results[name] = future.exception() or future.result()
    return results
