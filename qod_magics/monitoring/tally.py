"""Counts over cycles since the session began: cycles, decisions, actions, events, alarms. Pure."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from qod_magics.controller.log import Cycle
from qod_magics.core.plan import Action, AddNode, Fuse, Move, ReleaseNode, Scale, Stop, Unfuse

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
DONE = frozenset({"move", "scale", "fuse", "unfuse"})
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
