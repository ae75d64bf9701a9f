"""Count cycles, find alarms, and call hooks with them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from qod_magics.controller.log import Cycle
from qod_magics.core.plan import Action, AddNode, Fuse, Move, ReleaseNode, Scale, Stop, Unfuse
from qod_magics.monitoring.alarms import Alarm, Alarms
from qod_magics.monitoring.hooks import Call, Hook, as_call

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
