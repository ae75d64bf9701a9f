"""Snapshots of one observation window averaged into one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from qod_magics.core.optional import BYTES, INSTANCE_MEMORY, LATENCY_P50, LATENCY_P95, Field
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager

_Row = TypeVar("_Row", TaskManager, Task, Stream, Instance)


def is_measured(instance: Instance) -> bool:
    """Whether its metrics count: it is not warming up, and none of them is missing."""
    missing = instance.extra.get("missing", ())
    return not instance.warming_up and "cpu" not in missing and "in_rate" not in missing


def mean(snapshots: Sequence[Snapshot]) -> Snapshot:
    """The newest of one or more snapshots with the mean of each metric, over the snapshots where it was measured."""
    newest = snapshots[-1]
    if len(snapshots) == 1:
        return newest
    return replace(
        newest,
        task_managers=_means([s.task_managers for s in snapshots], lambda row: row.id, ("cpu",)),
        tasks=_means([s.tasks for s in snapshots], lambda row: row.id, ("external_rate",), (LATENCY_P50, LATENCY_P95)),
        streams=_means([s.streams for s in snapshots], lambda row: (row.source, row.target), ("out_rate",), (BYTES,)),
        instances=_means(
            *([s.instances for s in snapshots], lambda row: row.id, ("in_rate", "cpu"), (INSTANCE_MEMORY,)),
            counts=is_measured,
        ),
    )


def _means(
    tables: Sequence[Sequence[_Row]],
    key: Callable[[_Row], Hashable],
    names: Sequence[str],
    optional: Sequence[Field] = (),
    counts: Callable[[_Row], bool] = lambda _: True,
) -> tuple[_Row, ...]:
    """The rows of the last table, with means of these fields."""
    values: dict[tuple[Hashable, str], list[float]] = defaultdict(list)
    for table in tables:
        for row in table:
            if counts(row):
                for name in names:
                    if (value := getattr(row, name)) is not None:
                        values[key(row), name].append(value)
                for field in optional:
                    if (value := field.of(row)) is not None:
                        values[key(row), field.name].append(value)
    found = []
    for row in tables[-1]:
        changed: dict[str, Any] = {}
        for name in names:
            if there := values.get((key(row), name)):
                changed[name] = sum(there) / len(there)
        more = {field.name: values[key(row), field.name] for field in optional if (key(row), field.name) in values}
        if more:
            changed["extra"] = {**row.extra, **{name: sum(there) / len(there) for name, there in more.items()}}
        found.append(replace(row, **changed))
    return tuple(found)
