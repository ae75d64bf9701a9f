"""Leases: whether a server that does not answer still works, by what its queries write into their checkpoints.

A driver renews its lease by working: each batch that it plans or ends is an entry in a log of a checkpoint. Behind a
proxy that stays up, calls to a server that is gone hang or fail like those to a slow one. Its lease has run out if rows
wait, and for a long time no query there has written anything, though one of them should have.

A driver that only stood still, and wakes up after that, can't go on: Spark refuses the entry of a batch that another
run has written, and the query ends. The batch that it was in has been read twice, as after a kill. It is not ruled out
that it writes state files of that batch once more before its query ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from qod_magics.spark.queries.checkpoints import local_path
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.task_manager import TaskManager

#: How many times as long as its longest known batch a query may write nothing, beyond the lease.
LONG_BATCHES = 3.0


def written_at(checkpoint: str) -> float | None:
    """Return when a log of a checkpoint has changed last, by the clock of its files; None: there is none, or it is at
    no local path."""
    place = local_path(checkpoint)
    found = []
    for log in ("offsets", "commits") if place is not None else ():
        with suppress(OSError):
            found.append(os.stat(f"{place}/{log}").st_mtime)
    return max(found, default=None)


@dataclass(slots=True)
class _Watch:
    written: float  #: the last change of its logs
    since: float  #: since when it is known, by our clock
    due: float | None = None  #: since when a batch should have been written; None: none should


class Leases:
    """Watches the checkpoints of silent servers. One thread calls it about once a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched: WeakKeyDictionary[TaskManager, dict[str, _Watch]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"leases of {len(self._watched)} silent task managers"

    def renewed(self, manager: TaskManager) -> None:
        """Forget a server, as it answers."""
        self._watched.pop(manager, None)

    def quiet_s(
        self, manager: TaskManager, here: Iterable[Instance], due: Callable[[Instance], bool], lease_s: float
    ) -> float:
        """Return for how many seconds nothing has been written there, once the lease of a silent server has run out;
        else 0, also where no checkpoint tells.

        Args:
            manager: the server.
            here: the instances that run there.
            due: tells whether an instance has rows to read, or ends batches without any.
            lease_s: for how long nothing may be written, seconds, beside the time that batches take.

        """
        now, watched = self._clock(), self._watched.setdefault(manager, {})
        quiet: list[float] = []
        over = False
        for instance in here:
            written = written_at(instance.checkpoint)
            if written is None:
                return 0.0
            watch = watched.get(instance.checkpoint)
            if watch is None or watch.written != written:
                watch = watched[instance.checkpoint] = _Watch(written, now)
            if not due(instance):
                watch.due = None
            elif watch.due is None:
                watch.due = now
            quiet.append(now - watch.since)
            over = over or (watch.due is not None and now - watch.due >= lease_s + _longest_s(instance))
        shortest = min(quiet, default=0.0)
        return shortest if over and shortest >= lease_s else 0.0


def _longest_s(instance: Instance) -> float:
    """Return how long an instance that works may write nothing, seconds."""
    longest_s = max((batch.end - batch.start for _, batch in list(instance.meter.spans)), default=0.0)
    return (instance.job.trigger_s or 0.0) + LONG_BATCHES * longest_s
