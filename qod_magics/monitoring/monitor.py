"""Count cycles, find alarms, and call hooks with them. Each hook has a thread and a bounded queue, so that none delays
the controller."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit

from qod_magics.controller.journal import describe
from qod_magics.controller.log import Cycle
from qod_magics.core.plan import Action, AddNode, Fuse, Move, ReleaseNode, Scale, Stop, Unfuse
from qod_magics.errors import UsageProblem, nearest
from qod_magics.monitoring.alarms import ALARMS, Alarm, Alarms

# --- Hooks ------------------------------------------------------------------------------------------------------------


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


# --- Counts over cycles -----------------------------------------------------------------------------------------------

#: What actions are called, by type.
ACTIONS: dict[type[Action], str] = {
    Move: "move",
    Scale: "scale",
    Fuse: "fuse",
    Unfuse: "unfuse",
    AddNode: "add-node",
    ReleaseNode: "release-node",
    Stop: "stop",
}
#: Kinds of the log's entries that are decisions, not events.
DECISIONS = frozenset({"shedding", "starved", "starved-over", *ACTIONS.values()})
#: Events of actions that are done; nodes have no single event for it.
DONE = frozenset({"move", "scale", "fuse", "unfuse", "stop"})
_BY_NAME = {each.__name__: name for each, name in ACTIONS.items()}


@dataclass(slots=True)
class Tally:
    """The counts, and the last cycle with a decision. `take` is called by one thread, the rest by any."""

    cycles: Counter[str] = field(default_factory=Counter)  #: by outcome: applied, recommended, unapplied or skipped
    decisions: Counter[str] = field(default_factory=Counter)  #: by kind, each once while it stands
    actions: Counter[tuple[str, str]] = field(default_factory=Counter)  #: by kind and outcome: decided, done, refused
    events: Counter[str] = field(default_factory=Counter)  #: by kind
    last: Cycle | None = None  #: the last one with a decision
    period_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, cycle: Cycle) -> None:
        """Count a finished cycle."""
        with self._lock:
            self.period_s = cycle.period_s
            self.cycles[outcome(cycle)] += 1
            for entry in cycle.entries:
                if entry.kind in DECISIONS:
                    self.decisions[entry.kind] += 1
                    if entry.kind in ACTIONS.values():
                        self.actions[entry.kind, "decided"] += 1
            for event in cycle.events:
                self.events[event.kind] += 1
                if event.kind in DONE:
                    self.actions[event.kind, "done"] += 1
                if event.kind == "action-refused":
                    self.actions[_BY_NAME.get(str(event.detail.get("action")), "other"), "refused"] += 1
            if cycle.decision is not None:
                self.last = cycle

    def copy(self) -> Tally:
        """Return the counts of one instant."""
        with self._lock:
            return Tally(
                Counter(self.cycles),
                Counter(self.decisions),
                Counter(self.actions),
                Counter(self.events),
                self.last,
                self.period_s,
            )


def outcome(cycle: Cycle) -> str:
    """Return the outcome of a cycle: "skipped" (no plan), "recommended" (paused), "applied" or "unapplied"."""
    if cycle.decision is None:
        return "skipped"
    if cycle.paused:
        return "recommended"
    return "applied" if cycle.applied else "unapplied"


#: Seconds between two looks for a controller that is silent, while there are hooks.
LOOK_S = 1.0


class Monitor:
    """Counts cycles and tells hooks of alarms. `take` is the controller's subscriber, and waits for nothing.

    Args:
        note: tells the decision log that a hook failed, with a kind and one line.
        clock: monotonic seconds.

    Attributes:
        tally: the counts since the session began.
        alarms: those that are open.

    """

    def __init__(
        self, note: Callable[[str, str], object] = lambda kind, words: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tally = Tally()
        self.alarms = Alarms(clock())
        self._note, self._clock = note, clock
        self._hooks: tuple[Hook, ...] = ()
        self._removed: tuple[Hook, ...] = ()  #: whose calls still count
        self._order = threading.Lock()  #: so that no hook hears the end of an alarm before its beginning
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"monitor of a session: {self.alarms!r}; {len(self._hooks)} hooks"

    def take(self, cycle: Cycle) -> None:
        """Take in a finished cycle."""
        self.tally.take(cycle)
        with self._order:
            self._tell(self.alarms.take(cycle, self._clock()))

    def tick(self) -> None:
        """Find out whether the controller is silent."""
        with self._order:
            self._tell(self.alarms.tick(self._clock(), datetime.now(UTC)))

    def on(self, hook: Call | str, kinds: Collection[str] = ()) -> Callable[[], None]:
        """Call a hook, a function or a URL, with each alarm from now on; returns what ends that. Raises UsageProblem:
        it is neither, or there is no such kind."""
        added = Hook(as_call(hook), kinds, lambda words: self._note("hook-failed", words))
        with self._lock:
            self._hooks = (*self._hooks, added)
            if self._watcher is None and not self._ended.is_set():
                self._watcher = threading.Thread(target=self._watch, name="qod-monitor", daemon=True)
                self._watcher.start()

        def remove() -> None:
            with self._lock:
                if added not in self._hooks:
                    return
                self._hooks = tuple(each for each in self._hooks if each is not added)
                self._removed = (*self._removed, added)
            added.close()

        return remove

    @property
    def calls(self) -> dict[str, int]:
        """Return the calls of hooks by outcome: delivered, failed, left-out."""
        with self._lock:
            hooks = (*self._removed, *self._hooks)
        return {
            "delivered": sum(hook.delivered for hook in hooks),
            "failed": sum(hook.failed for hook in hooks),
            "left-out": sum(hook.left_out for hook in hooks),
        }

    def close(self) -> None:
        """Give hooks a few seconds to handle the alarms that wait, then end."""
        self._ended.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(LOOK_S)
        with self._lock:
            hooks, self._hooks = self._hooks, ()
            self._removed = (*self._removed, *hooks)
        for hook in hooks:
            hook.close()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_S):
            self.tick()

    def _tell(self, alarms: Collection[Alarm]) -> None:
        for hook in self._hooks:
            for alarm in alarms:
                hook.put(alarm)
