"""The decision log: what was decided, when, about whom and why, in words with the numbers before and after."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from qod_magics.controller.cycle import Cycle
from qod_magics.controller.entry import Entry
from qod_magics.controller.explain import why
from qod_magics.errors import UsageProblem, nearest


class DecisionLog:
    """The last `size` entries, and what is needed to say why. Safe to use from several threads.

    It always holds the newest entry of each kind about each name, even after that has left the window.
    """

    def __init__(self, size: int = 2000) -> None:
        self._entries: deque[Entry] = deque(maxlen=size)
        self._newest: dict[str, dict[str, Entry]] = {}  #: by name and kind
        self._decided: Cycle | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        entries = self.entries()
        return f"decision log: {len(entries)} entries" + (f", the last: {entries[-1].words}" if entries else "")

    def append(self, entries: Iterable[Entry]) -> None:
        """Add entries, oldest first."""
        with self._lock:
            for entry in entries:
                self._entries.append(entry)
                for name in entry.names:
                    if name not in self._newest:
                        self._newest[name] = {}
                    self._newest[name][entry.kind] = entry

    def decided(self, cycle: Cycle) -> None:
        """Remember the last cycle with a decision, for `why`. Forget names that are gone."""
        snapshot = cycle.snapshot
        if snapshot is None:
            return
        with self._lock:
            self._decided = cycle
            if len(self._newest) > 2 * (len(snapshot.tasks) + len(snapshot.instances)) + 100:
                known = names(cycle)
                self._newest = {name: kinds for name, kinds in self._newest.items() if name in known}

    def entries(self, name: str | None = None, *, kind: str | None = None) -> tuple[Entry, ...]:
        """The entries in the window, oldest first; only those about `name`, or of one `kind`, where given."""
        with self._lock:
            found = tuple(self._entries)
        return tuple(e for e in found if name in (None, *e.names) and kind in (None, e.kind))

    def newest(self, name: str) -> tuple[Entry, ...]:
        """The newest entry of each kind about `name`, newest first."""
        with self._lock:
            found = list(self._newest.get(name, {}).values())
        return tuple(sorted(found, key=lambda entry: entry.cycle, reverse=True))

    def why(self, name: str) -> str:
        """What was last decided about a stream (task), an instance or a task manager, and why, in words.

        Raises UsageProblem when there is no such name, or when nothing was decided so far.
        """
        with self._lock:
            cycle = self._decided
        if cycle is None:
            raise UsageProblem(f"nothing was decided so far, so there is no why for {name!r}; wait for a cycle")
        known = names(cycle)
        if name not in known:
            raise UsageProblem(f"there is no stream, instance or task manager {name!r}.{nearest(name, known)}")
        assert cycle.decision is not None
        return why(name, cycle, cycle.decision, {entry.kind: entry for entry in reversed(self.newest(name))})


def names(cycle: Cycle) -> frozenset[str]:
    """The names that `why` knows after `cycle`: tasks, instances, task managers."""
    snapshot = cycle.snapshot
    if snapshot is None:
        return frozenset()
    return frozenset(
        [each.id for each in snapshot.tasks]
        + [each.id for each in snapshot.instances]
        + [each.id for each in snapshot.task_managers]
    )
