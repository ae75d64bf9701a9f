"""Hooks hear alarms, and hurt nothing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.monitoring.alarms import Alarm
from qod_magics.monitoring.monitor import WAITING, Hook, Monitor, Webhook, as_call
from tests.controller.scripted import FixedPolicy, bench
from tests.raising import breaks


def alarm(number: int = 1, kind: str = "starved") -> Alarm:
    return Alarm(kind, f"tm{number}", "why", datetime(2026, 1, 1, tzinfo=UTC))


def eventually(condition: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_hook_is_called_in_order_with_the_kinds_that_it_wants() -> None:
    heard: list[Alarm] = []
    hook = Hook(heard.append, ["starved"])
    given = [alarm(1), alarm(2, "given-up"), alarm(3)]
    for each in given:
        hook.put(each)
    hook.close()
    assert heard == [given[0], given[2]]
    assert (hook.delivered, hook.failed, hook.left_out) == (2, 0, 0)


def test_a_hook_that_hangs_delays_neither_cycles_nor_other_hooks() -> None:
    go_on, heard = threading.Event(), []
    b = bench(policy=FixedPolicy(starved=("tm1",)))
    monitor = Monitor()
    b.controller.subscribe(monitor.take)
    monitor.on(lambda _: go_on.wait(60.0))
    monitor.on(heard.append)
    begun = time.monotonic()
    b.cycles(20)
    eventually(lambda: len(heard) == 1)
    assert time.monotonic() - begun < 5.0
    closing = time.monotonic()
    go_on.set()
    monitor.close()
    assert time.monotonic() - closing < 5.0


def test_of_too_many_alarms_the_oldest_are_left_out_and_counted() -> None:
    go_on, heard = threading.Event(), []

    def slow(each: Alarm) -> None:
        go_on.wait(60.0)
        heard.append(each.subject)

    hook = Hook(slow)
    hook.put(alarm(0))
    eventually(hook._queue.empty)  # it is under way
    for number in range(1, WAITING + 11):
        hook.put(alarm(number))
    go_on.set()
    hook.close(10.0)
    assert heard == ["tm0", *(f"tm{number}" for number in range(11, WAITING + 11))]
    assert (hook.delivered, hook.left_out) == (WAITING + 1, 10)


def test_a_hook_that_fails_again_after_a_success_is_told_again() -> None:
    told: list[str] = []
    hook = Hook(lambda each: 1 // (each.subject == "tm3"), (), told.append)
    for number in (1, 2, 3, 4, 5):
        hook.put(alarm(number))
    hook.close()
    assert (hook.delivered, hook.failed, len(told)) == (1, 4, 2)
    assert "ZeroDivisionError" in told[0]


def test_what_a_hook_raises_is_told_once_in_the_log_and_counted() -> None:
    policy = FixedPolicy(starved=("tm1",))
    b = bench(policy=policy)
    monitor = Monitor(b.controller.note)
    b.controller.subscribe(monitor.take)

    def broken(_: Alarm) -> None:
        raise ValueError("no such channel")

    monitor.on(broken)
    b.cycles(1)
    policy.more = {}
    b.cycles(1)
    eventually(lambda: monitor.calls["failed"] == 2)
    assert all(cycle.applied for cycle in b.cycles(2))
    assert b.kinds().count("hook-failed") == 1
    monitor.close()


def test_a_hook_that_is_removed_hears_nothing_more_and_stays_counted() -> None:
    heard: list[Alarm] = []
    b = bench(policy=FixedPolicy(starved=("tm1",)))
    monitor = Monitor()
    b.controller.subscribe(monitor.take)
    remove = monitor.on(heard.append)
    b.cycles(1)
    eventually(lambda: heard)
    assert monitor.calls["delivered"] == 1
    remove()
    remove()
    b.controller.policy = FixedPolicy()
    b.cycles(1)
    monitor.close()
    assert len(heard) == 1
    assert monitor.calls == {"delivered": 1, "failed": 0, "left-out": 0}


def test_no_thread_is_left_when_it_ends() -> None:
    before = set(threading.enumerate())
    monitor = Monitor()
    monitor.on(print)
    monitor.close()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(("hook", "rule"), [("ftp://host/x", "http"), ("example", "http"), (3, "callable")])
def test_what_is_no_hook_is_refused(hook: Any, rule: str) -> None:
    with pytest.raises(UsageProblem, check=breaks(rule)):
        as_call(hook)


def test_a_kind_that_is_none_is_refused() -> None:
    with pytest.raises(UsageProblem, check=breaks("exists", value="starve")):
        Hook(print, ["starve"])


class Receiver:
    """An HTTP server that refuses the first requests."""

    def __init__(self, refused: int, by: int = 503) -> None:
        self.bodies: list[Any] = []
        self.requests = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests += 1
                good = receiver.requests > refused
                if good:
                    receiver.bodies.append(json.loads(body))
                self.send_response(204 if good else by)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook?secret=x"


@pytest.fixture
def receiver(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    made = Receiver(request.param)
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.thread.join()


@pytest.mark.parametrize("receiver", [0, 2], indirect=True)
def test_a_webhook_posts_an_alarm_until_it_is_taken(receiver: Receiver) -> None:
    webhook = Webhook(receiver.url, (0.0, 0.0, 0.0))
    webhook(alarm())
    assert receiver.bodies == [alarm().to_json()]
    assert "secret" not in repr(webhook)


def test_one_that_is_redirected_is_not_delivered() -> None:
    made = Receiver(3, by=302)
    try:
        with pytest.raises(OSError, match="302"):
            Webhook(made.url, (0.0, 0.0, 0.0))(alarm())
    finally:
        made.server.shutdown()
        made.server.server_close()
    assert made.bodies == []


@pytest.mark.parametrize("receiver", [3], indirect=True)
def test_one_that_nobody_takes_is_an_error(receiver: Receiver) -> None:
    with pytest.raises(OSError, match="503"):
        Webhook(receiver.url, (0.0, 0.0, 0.0))(alarm())
    assert receiver.requests == 3
