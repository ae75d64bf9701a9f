"""The input of a policy: the cluster at one instant.

Accuracies are fractions of 1, CPU is % of one core (a busy core = 100), rates are rows/s.
Keys of the JSON form that are not named here are kept in `extra` and ignored by policies that do not know them:
a later policy (memory, traffic, latency, SLOs) adds optional keys, each with one owner, without a new format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

NOTHING: Mapping[str, Any] = MappingProxyType({})
_Value = TypeVar("_Value")


def nothing() -> Mapping[str, Any]:
    """Return NOTHING, as a default factory: before Python 3.12 a dataclass takes a mapping proxy for a mutable
    default."""
    return NOTHING


@dataclass(frozen=True, slots=True)
class TaskManager:
    """A place where task instances run."""

    id: str
    cores: float  #: > 0; may be a fraction: the part of the machine to plan with
    cpu: float  #: CPU of *all* processes on its cores, % of one core
    extra: Mapping[str, Any] = field(default_factory=nothing, compare=False)


@dataclass(frozen=True, slots=True)
class Task:
    """A node of the application's DAG; a *query* is a task without downstream."""

    id: str
    upstream: tuple[str, ...]
    external_rate: float | None  #: sources: rows/s that the outside produces; None: unknown, or no source
    priority: int | None  #: queries only; higher wins
    min_accuracy: float | None  #: queries only, 0..1
    extra: Mapping[str, Any] = field(default_factory=nothing, compare=False)


@dataclass(frozen=True, slots=True)
class Stream:
    """An edge of the DAG."""

    source: str  #: key "from" in JSON
    target: str  #: key "to" in JSON
    out_rate: float  #: rows/s *before* the shedder of this stream
    extra: Mapping[str, Any] = field(default_factory=nothing, compare=False)


@dataclass(frozen=True, slots=True)
class Instance:
    """One parallel instance of a task: a running query over its share of the partitions."""

    id: str
    task: str
    task_manager: str
    in_rate: float  #: rows/s *after* the shedder
    cpu: float  #: % of one core
    warming_up: bool
    extra: Mapping[str, Any] = field(default_factory=nothing, compare=False)


@dataclass(frozen=True)
class Snapshot:
    """The state of the cluster as the controller measured it at one instant.

    The tables are tuples, or `columns.Table`s where there are many rows.
    """

    task_managers: Sequence[TaskManager]
    tasks: Sequence[Task]
    streams: Sequence[Stream]
    instances: Sequence[Instance]
    extra: Mapping[str, Any] = field(default_factory=nothing, compare=False)
    #: when it was measured, seconds of a clock monotonic within a recording; None: unknown, as in older recordings
    at_s: float | None = field(default=None, compare=False)

    @cached_property
    def downstream(self) -> Mapping[str, tuple[str, ...]]:
        """Direct consumers of each task, in input order; () marks a query."""
        down: dict[str, list[str]] = {task.id: [] for task in self.tasks}
        for task in self.tasks:
            for upstream in task.upstream:
                down[upstream].append(task.id)
        return {task: tuple(consumers) for task, consumers in down.items()}

    @cached_property
    def _derived(self) -> dict[str, Any]:
        return {}

    def derived(self, key: str, make: Callable[[], _Value]) -> _Value:
        """Return a value computed from this snapshot alone, cached under `key`."""
        found = self._derived
        if key not in found:
            found[key] = make()
        value: _Value = found[key]
        return value
