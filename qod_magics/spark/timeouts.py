"""Timeouts for external calls that may hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from qod_magics.errors import TaskManagerError

T = TypeVar("T")


def begin(call: Callable[[], T], name: str) -> Future[T]:
    """Run `call` on its own daemon thread: a call that never returns blocks neither caller nor exit."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=f"qod-{name}", daemon=True).start()
    return future


def call_within(call: Callable[[], T], timeout_s: float, what: str) -> T:
    """The result of `call`, or TaskManagerError after `timeout_s` seconds."""
    try:
        return begin(call, what).result(timeout_s)
    except TimeoutError:
        raise TaskManagerError(f"{what} did not answer within {timeout_s:g} s.") from None


def gather(calls: Mapping[str, Callable[[], T]], timeout_s: float) -> dict[str, T | BaseException]:
    """The results (or errors) of concurrent calls, with a timeout of `timeout_s` seconds for all of them together."""
    futures = {name: begin(call, name) for name, call in calls.items()}
    deadline = time.monotonic() + timeout_s
    results: dict[str, Any] = {}
    for name, future in futures.items():
        if not wait((future,), max(deadline - time.monotonic(), 0.0)).done:
            results[name] = TaskManagerError(f"{name} did not answer within {timeout_s:g} s.")
        else:
            results[name] = future.exception() or future.result()
    return results
