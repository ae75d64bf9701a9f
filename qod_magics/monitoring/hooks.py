"""Hooks: what is called with each alarm. Each has a thread and a bounded queue, so that none delays the controller."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import urllib.request
from collections.abc import Callable, Collection
from contextlib import suppress
from urllib.parse import urlsplit

from qod_magics.controller.journal import describe
from qod_magics.errors import UsageProblem, nearest
from qod_magics.monitoring.alarms import ALARMS, Alarm

LOG = logging.getLogger(__name__)

#: Alarms that wait for a hook; of more, the oldest are left out, which is counted.
WAITING = 100
#: Seconds for which a webhook may take to answer, and those between its tries.
ANSWER_S, TRIES_AFTER_S = 5.0, (0.0, 1.0, 5.0)
#: Seconds for which the end of a session waits for hooks.
END_S = 2.0

Call = Callable[[Alarm], object]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for an error: urllib would follow it by a GET, without the alarm."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""


_OPENER = urllib.request.build_opener(_NoRedirect)


class Webhook:
    """Posts alarms as JSON to a URL; an alarm that is not taken is posted again, twice.

    Raises UsageProblem: the URL is none of http or https.
    """

    def __init__(self, url: str, tries_after_s: Collection[float] = TRIES_AFTER_S) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageProblem(
                f"a webhook must be an http or https URL, got {url!r}; pass a function for anything else",
                value=url,
                rule="http",
            )
        self._url, self._host, self._tries = url, parts.hostname, tuple(tries_after_s)

    def __repr__(self) -> str:
        return f"webhook at {self._host}"  # its path may hold a secret

    def __call__(self, alarm: Alarm) -> None:
        """Post an alarm. Raises OSError: it was not taken."""
        body = json.dumps(alarm.to_json(), default=str).encode()
        for number, wait_s in enumerate(self._tries, 1):
            time.sleep(wait_s)
            request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
            try:
                with _OPENER.open(request, timeout=ANSWER_S):
                    return
            except OSError:  # URLError and HTTPError, too
                if number == len(self._tries):
                    raise


class Hook:
    """Calls a function with alarms, one after the other, on a thread of its own.

    At any given time `delivered + failed + left_out` and those in the queue or under way are all that it was given.

    Args:
        call: the function.
        kinds: of alarms that it is called with; empty: all.
        failed: called with one line when it begins to raise, on the hook's thread.

    """

    def __init__(self, call: Call, kinds: Collection[str] = (), failed: Callable[[str], object] = LOG.warning) -> None:
        for kind in kinds:
            if kind not in ALARMS:
                raise UsageProblem(
                    f"kinds must be of alarms, got {kind!r}.{nearest(kind, ALARMS)}", value=kind, rule="exists"
                )
        self._call, self._kinds, self._failed = call, frozenset(kinds), failed
        self._queue: queue.Queue[Alarm | None] = queue.Queue(WAITING)
        self._ended = threading.Event()
        self.delivered = self.failed = self.left_out = 0
        self._failing = False  #: whether its last call raised
        self._thread = threading.Thread(target=self._run, name="qod-hook", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"hook {self._call!r}: {self.delivered} delivered, {self.failed} failed, {self.left_out} left out"

    def put(self, alarm: Alarm) -> None:
        """Have it called with an alarm. Never waits: if too many wait, the oldest is left out."""
        if self._ended.is_set() or (self._kinds and alarm.kind not in self._kinds):
            return
        while True:
            try:
                self._queue.put_nowait(alarm)
            except queue.Full:
                try:
                    self._queue.get_nowait()
                except queue.Empty:
                    continue
                self.left_out += 1
            else:
                return

    def close(self, timeout_s: float = END_S) -> None:
        """Call it with what waits, for at most `timeout_s` seconds, then no more."""
        deadline = time.monotonic() + timeout_s
        while not self._queue.empty() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._ended.set()
        with suppress(queue.Full):  # it looks at `_ended` after each call
            self._queue.put_nowait(None)
        if self._thread is not threading.current_thread():
            self._thread.join(max(deadline - time.monotonic(), 0.0))

    def _run(self) -> None:
        while (alarm := self._queue.get()) is not None and not self._ended.is_set():
            try:
                self._call(alarm)
            except Exception as error:
                self.failed += 1
                if not self._failing:
                    self._tell(error)
                self._failing = True
            else:
                self.delivered += 1
                self._failing = False

    def _tell(self, error: BaseException) -> None:
        try:
            self._failed(f"{self._call!r} failed: {describe(error)}")
        except Exception:
            LOG.exception("a hook's failure can't be told")


def as_call(hook: object) -> Call:
    """Return the function that a hook calls: itself, or one that posts to its URL. Raises UsageProblem."""
    if isinstance(hook, str):
        return Webhook(hook)
    if callable(hook):
        return hook
    raise UsageProblem(
        f"a hook must be a function or a URL, got {type(hook).__name__}; pass one that takes an alarm",
        value=type(hook).__name__,
        rule="callable",
    )
