"""What a plan does to a cluster besides shedding: instructions to the runtime, each with its reason.

A runtime lists the kinds it carries out (`Runtime.supports`); the others are refused, with an event. Two actions that
differ only in their reason are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


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
    """Run a task as this many instances: more are started, or the last ones stop, and its partitions are dealt anew."""

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
