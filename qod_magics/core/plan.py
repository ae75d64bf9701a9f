"""A policy's plan: accuracies, and what it does to a cluster besides shedding. Pure.

Actions are instructions to the runtime, each with its reason. A runtime lists the kinds it carries out
(`Runtime.supports`); the others are refused, with an event. Two actions that differ only in their reason are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import float_info
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

from qod_magics.core.snapshot import Snapshot, nothing

Edge = tuple[str | None, str]  #: (from, to); from is None for the outside world
Pair: TypeAlias = tuple[str, str]  #: a stream between two tasks, (from, to)
Fraction: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=float_info.max)]
Limits: TypeAlias = tuple[Seconds, Seconds]  #: seconds of input


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
        """Return the moves among the actions."""
        return tuple(action for action in self.actions if isinstance(action, Move))

    @property
    def leaving(self) -> tuple[str, ...]:
        """Return the instances that stop where they run, including those that move."""
        return tuple(action.instance for action in self.actions if isinstance(action, Move | Stop))


#: Seconds of input; a controller thins no backlog below that.
_ALL_OF_IT_S = 1e9


def keeping_all(snapshot: Snapshot, actions: tuple[Action, ...] = ()) -> Plan:
    """Return a plan of a policy that sheds nothing: accuracy 1 everywhere, no backlog thinned, and these actions."""
    desired = {task.id: 1.0 for task in snapshot.tasks}
    edges = [(source, task.id) for task in snapshot.tasks for source in task.upstream or (None,)]
    return Plan(desired, dict.fromkeys(edges, 1.0), actions, backlog_s=(_ALL_OF_IT_S, _ALL_OF_IT_S))


class _Request(Struct, frozen=True, eq=False, omit_defaults=True, tag_field="action"):
    """An instruction to the runtime; two that differ only in their reason are equal."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._what() == other._what()

    def __ne__(self, other: object) -> bool:  # a struct's own would compare identities
        return not self == other

    def __hash__(self) -> int:
        return hash((type(self), self._what()))

    def _what(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name != "why")


class Move(_Request, frozen=True, tag="move"):
    """Stop an instance at the end of its batch and start it on another task manager, from the same offsets."""

    instance: str
    to: str  #: a task manager
    why: str = ""


class Stop(_Request, frozen=True, tag="stop"):
    """Stop an instance where it runs."""

    instance: str
    why: str = ""


class Scale(_Request, frozen=True, tag="scale"):
    """Run a task as this many instances: more start, or the last ones stop, and its partitions are assigned again."""

    task: str
    parallelism: Annotated[int, Meta(ge=1)]
    to: tuple[str, ...] = ()  #: task managers of the instances added, in their order; (): where the policy places them
    why: str = ""


class AddNode(_Request, frozen=True, tag="add-node"):
    """Start a task manager."""

    kind: str  #: one of those that the cluster can start
    why: str = ""


class ReleaseNode(_Request, frozen=True, tag="release-node"):
    """Move the instances of a task manager to the others, then end it."""

    id: str
    why: str = ""


class SetBatch(_Request, frozen=True, tag="set-batch"):
    """Start a task's micro-batches at least this far apart for as long as plans say so: without it they follow one
    another, or are as far apart as those of their task manager.

    With `due_s`, they also take turns with those of the other tasks that have one: while as many are under way as the
    task manager has cores, the one that is due first waits for the next end of a batch. It is due `due_s` after its
    oldest row came, and starts then at the latest.
    """

    task: str
    seconds: Seconds
    why: str = ""
    due_s: Seconds | None = None  #: None: it takes no turns


class Lend(_Request, frozen=True, tag="lend"):
    """Send a share of the rows whose keys belong to one instance of a task to another one, for as long as plans say so.
    Each counts its part of their groups, and who reads the results merges the parts."""

    task: str
    instance: str  #: the one that the keys belong to, the lessor
    to: str  #: the one that counts the share for it, the lessee
    share: Fraction
    why: str = ""


class Fuse(_Request, frozen=True, tag="fuse"):
    """Run both ends of a stream as one query, without Kafka between them."""

    edge: Pair
    why: str = ""


class Unfuse(_Request, frozen=True, tag="unfuse"):
    """Run both ends of a stream as separate queries."""

    edge: Pair
    why: str = ""


Action: TypeAlias = Move | Stop | Scale | AddNode | ReleaseNode | SetBatch | Lend | Fuse | Unfuse


@dataclass(frozen=True, slots=True)
class Refusal:
    """An action that is not carried out."""

    action: Action
    why: str  #: one clause
