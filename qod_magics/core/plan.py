"""A policy's plan: accuracies, and what it does to a cluster besides shedding. Pure.

Actions are instructions to the runtime, each with its reason. A runtime lists the kinds it carries out
(`Runtime.supports`); the others are refused, with an event. Two actions that differ only in their reason are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from qod_magics.core.snapshot import Snapshot, nothing

Edge = tuple[str | None, str]  #: (from, to); from is None for the outside world
Limits: TypeAlias = tuple[float, float]  #: seconds of input


def edge_name(edge: Edge) -> str:
    """Return the name of its shedder: that of a source, or "from>to"."""
    source, target = edge
    return target if source is None else f"{source}>{target}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A policy's answer to one snapshot. All fractions are of 1.

    Requests that few policies have are None or empty for the others.
    """

    desired: Mapping[str, float]  #: by task, the accuracy to run at from now
    non_drop: Mapping[Edge, float]  #: one for each source (from None) and each stream: probability that a row is kept
    actions: tuple[Action, ...] = ()  #: no instance is named twice
    starved: tuple[str, ...] = ()  #: task managers whose minimums don't fit and which nothing can leave
    #: replan early when the input rate of a source exceeds this multiple of the planned rate, or falls far below it
    react_above: float | None = None
    #: thin a backlog that exceeds the second of these, in seconds of input, down to the first; or such pairs by task
    backlog_s: Limits | Mapping[str, Limits] | None = None
    #: by task manager: minimum interval between micro-batches of each query there, s
    pace_s: Mapping[str, float] = field(default_factory=nothing)
    #: by stage of a policy of stages: what it does, or why it does nothing
    stages: Mapping[str, str] = field(default_factory=nothing)
    unknown: Mapping[str, Any] = field(default_factory=nothing)  #: other keys of its JSON object

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves among the actions."""
        return tuple(action for action in self.actions if isinstance(action, Move))

    @property
    def leaving(self) -> tuple[str, ...]:
        """The instances that stop where they run, including those that move."""
        return tuple(action.instance for action in self.actions if isinstance(action, Move | Stop))


#: Seconds of input; a controller thins no backlog below that.
_ALL_OF_IT_S = 1e9


def keeping_all(snapshot: Snapshot, actions: tuple[Action, ...] = ()) -> Plan:
    """Return a plan of a policy that sheds nothing: accuracy 1 everywhere, no backlog thinned, and these actions."""
    desired = {task.id: 1.0 for task in snapshot.tasks}
    edges = [(source, task.id) for task in snapshot.tasks for source in task.upstream or (None,)]
    return Plan(desired, dict.fromkeys(edges, 1.0), actions, backlog_s=(_ALL_OF_IT_S, _ALL_OF_IT_S))


@dataclass(frozen=True, slots=True)
class Move:
    """Stop an instance at the end of its batch and start it on another task manager, from the same offsets."""

    instance: str
    to: str  #: a task manager
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop an instance where it runs."""

    instance: str
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Scale:
    """Run a task as this many instances: more start, or the last ones stop, and its partitions are assigned again."""

    task: str
    parallelism: int
    to: tuple[str, ...] = ()  #: task managers of the instances added, in their order; (): where the policy places them
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class AddNode:
    """Start a task manager."""

    kind: str  #: one of those that the cluster can start
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ReleaseNode:
    """Move the instances of a task manager to the others, then end it."""

    id: str
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class SetBatch:
    """Start a task's micro-batches this far apart."""

    task: str
    seconds: float
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Fuse:
    """Run both ends of a stream as one query, without Kafka between them."""

    edge: tuple[str, str]  #: (from, to)
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Unfuse:
    """Run both ends of a stream as separate queries."""

    edge: tuple[str, str]  #: (from, to)
    why: str = field(default="", compare=False)


Action: TypeAlias = Move | Stop | Scale | AddNode | ReleaseNode | SetBatch | Fuse | Unfuse


@dataclass(frozen=True, slots=True)
class Refusal:
    """An action that is not carried out."""

    action: Action
    why: str  #: one clause
