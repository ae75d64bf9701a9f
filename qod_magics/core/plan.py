"""A policy's plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qod_magics.core.actions import Action, Move, Stop
from qod_magics.core.optional import BACKLOG
from qod_magics.core.snapshot import Snapshot, nothing

Edge = tuple[str | None, str]  #: (from, to); from is None for the outside world


def edge_name(edge: Edge) -> str:
    """The name of its shedder: that of a source, or "from>to"."""
    source, target = edge
    return target if source is None else f"{source}>{target}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A policy's answer to one snapshot. All fractions are of 1.

    Further requests of a policy (`core.optional.REQUESTS`) are keys of `extra`.
    """

    desired: Mapping[str, float]  #: by task, the accuracy to run at from now
    non_drop: Mapping[Edge, float]  #: one for each source (from None) and each stream: probability that a row is kept
    actions: tuple[Action, ...] = ()  #: no instance is named twice
    starved: tuple[str, ...] = ()  #: task managers whose minimums don't fit and which nothing can leave
    extra: Mapping[str, Any] = field(default_factory=nothing)

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves among the actions."""
        return tuple(action for action in self.actions if isinstance(action, Move))

    @property
    def leaving(self) -> tuple[str, ...]:
        """The instances that stop where they run, including those that move."""
        return tuple(action.instance for action in self.actions if isinstance(action, Move | Stop))


#: Seconds of input; a controller thins no backlog below that.
ALL_OF_IT_S = 1e9


def keeping_all(snapshot: Snapshot, actions: tuple[Action, ...] = (), extra: Mapping[str, Any] | None = None) -> Plan:
    """A plan of a policy that sheds nothing: accuracy 1 everywhere, no backlog thinned, and these actions."""
    desired = {task.id: 1.0 for task in snapshot.tasks}
    edges = [(source, task.id) for task in snapshot.tasks for source in task.upstream or (None,)]
    whole = {BACKLOG.name: [ALL_OF_IT_S, ALL_OF_IT_S], **(extra or {})}
    return Plan(desired, dict.fromkeys(edges, 1.0), actions, extra=whole)
