"""The rules of a snapshot: values in range, references that exist, a DAG, restrictions on queries only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import compress
from math import isfinite
from typing import Any, Protocol

from qod_magics.core.snapshot import Snapshot, Task, column
from qod_magics.errors import SnapshotError, hint, show


class _Named(Protocol):
    @property
    def id(self) -> str: ...


def check_snapshot(snapshot: Snapshot, passed: Snapshot | None = None) -> None:
    """Raise SnapshotError, naming the field as in the JSON form, unless `snapshot` obeys every rule of the format.

    A snapshot that passes can be given to any policy. `passed`: one that did before, such as the last cycle's; if only
    measurements differ, only those are checked.
    """
    if passed is not None and _is_same(snapshot, passed):
        _check_values(snapshot, measured_only=True)
        _check_external_rates(snapshot)
        return
    _check_ids("task_managers", snapshot.task_managers)
    _check_ids("tasks", snapshot.tasks)
    _check_ids("instances", snapshot.instances)
    _check_values(snapshot)
    position = {task.id: i for i, task in enumerate(snapshot.tasks)}
    _check_upstream(snapshot.tasks, position)
    _check_acyclic(snapshot.tasks, position)
    _check_restrictions(snapshot)
    _check_external_rates(snapshot)
    _check_streams(snapshot, position)
    _check_instances(snapshot, position)


#: the fields that are not measured
_DECLARED = {
    "task_managers": ("id",),
    "tasks": ("id", "upstream", "priority", "min_accuracy"),
    "streams": ("source", "target"),
    "instances": ("id", "task", "task_manager"),
}


def _is_same(snapshot: Snapshot, passed: Snapshot) -> bool:
    """Return whether the two differ in measured fields only."""
    pairs = (
        (column(getattr(snapshot, table), name), column(getattr(passed, table), name))
        for table, names in _DECLARED.items()
        for name in names
    )
    return all(now is before or now == before for now, before in pairs)


def _check_ids(table: str, rows: Sequence[_Named]) -> None:
    if len({row.id for row in rows}) == len(rows):
        return
    first: dict[str, int] = {}
    for i, row in enumerate(rows):
        earlier = first.setdefault(row.id, i)
        if earlier != i:
            raise SnapshotError(
                f"{table}[{i}].id: {show(row.id)} is taken by {table}[{earlier}]; give each its own id", rule="unique"
            )


def _are_measures(values: Sequence[float]) -> bool:
    """Return whether all are finite numbers >= 0: a fast check before the one that words errors. False, too, if the sum
    overflows."""
    return isfinite(sum(values)) and min(values, default=0.0) >= 0


def _check_measure(field: str, value: float, unit: str) -> None:
    if not isfinite(value) or value < 0:
        raise SnapshotError(
            f"{field}: {show(value)} is not a finite number >= 0; give it in {unit}", rule="measure", value=value
        )


def _check_values(snapshot: Snapshot, measured_only: bool = False) -> None:
    _check_task_managers(snapshot)
    rates, minimums = column(snapshot.tasks, "external_rate"), column(snapshot.tasks, "min_accuracy")
    if not _are_measures([rate for rate in rates if rate is not None]):
        for i, rate in enumerate(rates):
            if rate is not None:
                _check_measure(f"tasks[{i}].external_rate", rate, "rows/s, or null for unknown")
    for i, minimum in enumerate(() if measured_only else minimums):
        if minimum is not None and not 0 <= minimum <= 1:
            raise SnapshotError(
                f"tasks[{i}].min_accuracy: {show(minimum)} is not between 0 and 1; give a fraction of 1 (60 % is 0.6)",
                rule="fraction",
                value=minimum,
            )
    if not _are_measures(column(snapshot.streams, "out_rate")):
        for i, stream in enumerate(snapshot.streams):
            _check_measure(f"streams[{i}].out_rate", stream.out_rate, "rows/s")
    if all(_are_measures(column(snapshot.instances, name)) for name in ("in_rate", "cpu")):
        return
    for i, instance in enumerate(snapshot.instances):
        _check_measure(f"instances[{i}].in_rate", instance.in_rate, "rows/s")
        _check_measure(f"instances[{i}].cpu", instance.cpu, "% of one core")


def _check_task_managers(snapshot: Snapshot) -> None:
    cores = column(snapshot.task_managers, "cores")
    if min(cores, default=1.0) > 0 and _are_measures(cores) and _are_measures(column(snapshot.task_managers, "cpu")):
        return
    for i, manager in enumerate(snapshot.task_managers):
        if not isfinite(manager.cores) or manager.cores <= 0:
            raise SnapshotError(
                f"task_managers[{i}].cores: {show(manager.cores)} is not a finite number > 0; "
                "give the cores that may be planned with",
                rule="measure",
                value=manager.cores,
            )
        _check_measure(f"task_managers[{i}].cpu", manager.cpu, "% of one core")


def _raise_unknown(field: str, name: str, kind: str, known: Iterable[str]) -> None:
    raise SnapshotError(
        f"{field}: there is no {kind} {show(name)}; name one that is listed.{hint(name, known)}",
        rule="exists",
        value=name,
    )


def _check_upstream(tasks: Sequence[Task], position: dict[str, int]) -> None:
    for i, task in enumerate(tasks):
        if not task.upstream:
            continue
        for k, upstream in enumerate(task.upstream):
            if upstream not in position:
                _raise_unknown(f"tasks[{i}].upstream[{k}]", upstream, "task", position)
        if len(task.upstream) > 1 and len(set(task.upstream)) < len(task.upstream):
            k = next(k for k, name in enumerate(task.upstream) if name in task.upstream[:k])
            raise SnapshotError(
                f"tasks[{i}].upstream[{k}]: {show(task.upstream[k])} is listed twice; list each upstream task once",
                rule="once",
            )


def _check_acyclic(tasks: Sequence[Task], position: dict[str, int]) -> None:
    if not [i for i, task in enumerate(tasks) if task.upstream and max(map(position.__getitem__, task.upstream)) >= i]:
        return  # listed in topological order
    try:
        TopologicalSorter({task.id: task.upstream for task in tasks}).prepare()
    except CycleError as error:
        cycle = error.args[1]  # along the flow of rows; the first is the last
    else:
        return
    here = position[cycle[0]]
    names = " -> ".join(map(show, cycle if len(cycle) <= 12 else [*cycle[:6], *cycle[-5:]]))
    shortened = "" if len(cycle) <= 12 else f" ({len(cycle) - 1} tasks, the middle left out)"
    raise SnapshotError(
        f"tasks[{here}].upstream: a cycle, {names}{shortened}; tasks form a DAG: remove one of these",
        rule="acyclic",
        value=tuple(cycle),
    )


def _check_restrictions(snapshot: Snapshot) -> None:
    feeding = {name for task in snapshot.tasks for name in task.upstream}
    queries = [task.id for task in snapshot.tasks if task.priority is not None and task.min_accuracy is not None]
    others = [task.id for task in snapshot.tasks if task.priority is None and task.min_accuracy is None]
    if feeding == set(others) and len(queries) + len(others) == len(snapshot.tasks):
        return
    downstream = snapshot.downstream
    for i, task in enumerate(snapshot.tasks):
        consumers = downstream[task.id]
        restrictions: tuple[tuple[str, Any, str], ...] = (
            ("priority", task.priority, "an integer, higher wins"),
            ("min_accuracy", task.min_accuracy, "a fraction of 1"),
        )
        for key, value, meaning in restrictions:
            if consumers and value is not None:
                raise SnapshotError(
                    f"tasks[{i}].{key}: {show(value)} on {show(task.id)}, which feeds {show(consumers[0])}; "
                    "only tasks without downstream have one: write null",
                    rule="of a query",
                    value=value,
                )
            if not consumers and value is None:
                raise SnapshotError(
                    f"tasks[{i}].{key}: null on {show(task.id)}, which nothing consumes; give {meaning}",
                    rule="restricted",
                )


def _check_external_rates(snapshot: Snapshot) -> None:
    rates, upstream = column(snapshot.tasks, "external_rate"), column(snapshot.tasks, "upstream")
    if not set(compress(rates, upstream)) - {None}:  # the fast check
        return
    each = enumerate(zip(rates, upstream, strict=True))
    for i in [i for i, (rate, sources) in each if sources and rate is not None]:
        raise SnapshotError(
            f"tasks[{i}].external_rate: {show(rates[i])} on {show(snapshot.tasks[i].id)}, which reads from "
            f"{show(upstream[i][0])}; only sources have one: write null",
            rule="of a source",
            value=rates[i],
        )


def _check_streams(snapshot: Snapshot, position: dict[str, int]) -> None:
    given = [(stream.source, stream.target) for stream in snapshot.streams]
    if given == [(name, task.id) for task in snapshot.tasks for name in task.upstream]:
        return
    first: dict[tuple[str, str], int] = {}
    for i, stream in enumerate(snapshot.streams):
        for key, name in (("from", stream.source), ("to", stream.target)):
            if name not in position:
                _raise_unknown(f"streams[{i}].{key}", name, "task", position)
        relation = f"{show(stream.source)} -> {show(stream.target)}"
        if stream.source not in snapshot.tasks[position[stream.target]].upstream:
            raise SnapshotError(
                f"streams[{i}].from: {relation} is no upstream relation; remove this row, or add {show(stream.source)} "
                f"to tasks[{position[stream.target]}].upstream",
                rule="an edge",
            )
        earlier = first.setdefault((stream.source, stream.target), i)
        if earlier != i:
            raise SnapshotError(
                f"streams[{i}].from: {relation} is also streams[{earlier}]; keep one row for each", rule="unique"
            )
    for i, task in enumerate(snapshot.tasks):
        for k, upstream in enumerate(task.upstream):
            if (upstream, task.id) not in first:
                raise SnapshotError(
                    f"tasks[{i}].upstream[{k}]: streams has no row from {show(upstream)} to {show(task.id)}; "
                    "add one with its out_rate",
                    rule="has a row",
                )


def _check_instances(snapshot: Snapshot, position: dict[str, int]) -> None:
    managers = {manager.id for manager in snapshot.task_managers}
    seen = {instance.task for instance in snapshot.instances}
    if seen == position.keys() and managers >= {instance.task_manager for instance in snapshot.instances}:
        return
    for i, instance in enumerate(snapshot.instances):
        if instance.task not in position:
            _raise_unknown(f"instances[{i}].task", instance.task, "task", position)
        if instance.task_manager not in managers:
            _raise_unknown(f"instances[{i}].task_manager", instance.task_manager, "task manager", managers)
    for i, task in enumerate(snapshot.tasks):
        if task.id not in seen:
            raise SnapshotError(
                f"tasks[{i}].id: {show(task.id)} has no instance; add one to instances", rule="has an instance"
            )
