"""Calls that hang hold nobody up for longer than their bound."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.spark.servers.connection import Callers, begin, call_within, gather
from tests.raising import breaks


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Set at the end of the test, so that no thread is left waiting."""
    event = threading.Event()
    yield event
    event.set()


def test_the_result_or_the_error_of_a_call() -> None:
    assert call_within(lambda: 7, 5.0, "seven") == 7
    with pytest.raises(ZeroDivisionError):
        call_within(lambda: 1 // 0, 5.0, "a fraction")


def test_a_call_that_hangs_is_left_to_itself(never: threading.Event) -> None:
    with pytest.raises(TaskManagerError, check=breaks("answers", name="tm1: dials", value=0.05)):
        call_within(never.wait, 0.05, "tm1: dials")


def test_a_call_runs_on_a_daemon_thread_of_its_own() -> None:
    thread = begin(threading.current_thread, "x").result(5)
    assert thread is not threading.current_thread()
    assert thread.daemon


def test_threads_are_used_again_but_not_while_they_are_busy() -> None:
    def one_after_the_other() -> set[threading.Thread]:
        found = set()
        for i in range(20):
            found.add(begin(threading.current_thread, str(i)).result(5))
            time.sleep(0.005)  # the thread becomes idle after its result is there
        return found

    assert len(one_after_the_other()) < 5
    met = threading.Barrier(4)

    def meet() -> threading.Thread:
        met.wait(5)
        return threading.current_thread()

    busy = [begin(meet, "meeting") for _ in range(4)]
    assert len({each.result(5) for each in busy}) == 4


def test_a_thread_without_calls_ends() -> None:
    callers = Callers(idle_s=0.05)
    threads = {begin(threading.current_thread, str(i), callers).result(5) for i in range(8)}
    assert begin(lambda: 3, "the next", callers).result(5) == 3
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def test_even_what_ends_a_thread_reaches_who_waits() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        begin(leave, "leaving").result(5)


def test_calls_are_made_at_the_same_time_and_each_has_its_own_outcome(never: threading.Event) -> None:
    met = threading.Barrier(2)

    def meet() -> str:
        met.wait(5)
        return "met"

    found = gather({"a": meet, "b": meet, "broken": lambda: 1 // 0, "hangs": never.wait}, 0.5)
    assert list(found) == ["a", "b", "broken", "hangs"]
    assert (found["a"], found["b"]) == ("met", "met")
    assert isinstance(found["broken"], ZeroDivisionError)
    assert isinstance(found["hangs"], TaskManagerError)


def test_the_bound_is_for_all_calls_together(never: threading.Event) -> None:
    """Ten calls that hang cost one bound, not ten."""
    began = time.monotonic()
    alone = gather({"one": never.wait}, 0.2)
    once = time.monotonic() - began
    began = time.monotonic()
    found = gather({str(i): never.wait for i in range(10)}, 0.2)
    ten = time.monotonic() - began
    assert all(isinstance(error, TaskManagerError) for error in (*alone.values(), *found.values()))
    assert ten < 5 * once


def test_who_is_interrupted_waits_no_longer(never: threading.Event) -> None:
    def interrupt() -> None:
        time.sleep(0.2)  # the main thread waits by then, or begins to
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        never.wait()

    # as Python has it, unless it was started with interrupts ignored: by nohup, or in the background of a script
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            gather({"a": interrupt}, 30.0)
    finally:
        signal.signal(signal.SIGINT, before)
