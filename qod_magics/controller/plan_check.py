"""Validation of a policy's plan (`core.validation` is for a runtime's snapshot). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import assert_never

from qod_magics.core.dag import Dag
from qod_magics.core.fusing import fused_into
from qod_magics.core.plan import (
    Action,
    AddNode,
    Fuse,
    Lend,
    Move,
    Plan,
    Refusal,
    ReleaseNode,
    Scale,
    SetBatch,
    Stop,
    Unfuse,
)
from qod_magics.core.snapshot import Snapshot
from qod_magics.errors import QodError, nearest


class PlanError(QodError, ValueError):
    """A plan that can't be carried out as it stands; the message names the field."""


def check_plan(plan: Plan, snapshot: Snapshot) -> None:
    """Check a policy's plan for what every runtime relies on. Raises PlanError, which names the field.

    Fractions lie in 0..1; there is a `desired` for every task and a `non_drop` for every source and stream.
    """
    _check_fractions(plan)
    dag = Dag.of(snapshot)
    tasks = dag.topology.position
    try:
        dag.tasks.values(plan.desired)
        dag.edges.values(plan.non_drop)
    except KeyError:
        _check_complete(plan, snapshot)
    if len(plan.desired) != len(tasks):
        for unknown in sorted(plan.desired.keys() - tasks.keys()):
            raise PlanError(f"desired names {unknown!r}, which is no task.{nearest(unknown, tasks)}")
    if len(plan.non_drop) != len(dag.edges.all):
        for source, target in sorted(plan.non_drop.keys() - set(dag.edges.all), key=str):
            raise PlanError(f"non_drop has a row from {source!r} to {target!r}, but there is no such input or stream")


def _check_fractions(plan: Plan) -> None:
    values = (*plan.desired.values(), *plan.non_drop.values())
    if not [value for value in values if not 0.0 <= value <= 1.0]:
        return
    for name, value in _fractions(plan):
        if not 0.0 <= value <= 1.0:
            raise PlanError(f"{name} is {value!r}; a policy must give a fraction from 0 to 1")


def _check_complete(plan: Plan, snapshot: Snapshot) -> None:
    for task in snapshot.tasks:
        if task.id not in plan.desired:
            raise PlanError(f"desired has no value for {task.id!r}; a policy must give one for every task")
        for source in task.upstream or (None,):
            if (source, task.id) not in plan.non_drop:
                raise PlanError(f"non_drop has no row from {source!r} to {task.id!r}; give one for it")


def refusals(plan: Plan, snapshot: Snapshot, supports: Collection[type[Action]]) -> tuple[Refusal, ...]:
    """Return the actions of a plan to refuse, each with the reason: the runtime does not support them (`supports`), or
    they name something that the snapshot does not have."""
    if not plan.actions:
        return ()
    known = {
        "instance": {instance.id for instance in snapshot.instances},
        "task": {task.id for task in snapshot.tasks},
        "task manager": {manager.id for manager in snapshot.task_managers},
        "stream": {f"{stream.source}>{stream.target}" for stream in snapshot.streams},
        "stream within a task": {f"{source}>{target}" for source, target in fused_into(snapshot)},
    }
    found = []
    for action in plan.actions:
        if type(action) not in supports:
            can = ", ".join(sorted(kind.__name__ for kind in supports)) or "nothing"
            found.append(Refusal(action, f"this cluster does not support {type(action).__name__}; it supports {can}"))
            continue
        for kind, name in _named(action):
            if name not in known[kind]:
                found.append(Refusal(action, f"there is no {kind} {name!r}.{nearest(name, known[kind])}"))
                break
    return tuple(found)


def _named(action: Action) -> Iterator[tuple[str, str]]:
    """Yield what an action refers to: kind and name of each thing."""
    match action:
        case Move(instance, to):
            yield "instance", instance
            yield "task manager", to
        case Stop(instance):
            yield "instance", instance
        case Scale(task, _, managers):
            yield "task", task
            yield from (("task manager", name) for name in managers)
        case SetBatch(task):
            yield "task", task
        case Lend(task, lessor, lessee):
            yield "task", task
            yield "instance", lessor
            yield "instance", lessee
        case ReleaseNode(name):
            yield "task manager", name
        case Fuse((source, target)):
            yield "stream", f"{source}>{target}"
        case Unfuse((source, target)):
            yield "stream within a task", f"{source}>{target}"
        case AddNode():
            pass
        case _:
            assert_never(action)


def _fractions(plan: Plan) -> Iterator[tuple[str, float]]:
    for task, value in plan.desired.items():
        yield f"desired[{task!r}]", value
    for (source, target), value in plan.non_drop.items():
        yield f"non_drop from {source!r} to {target!r}", value
