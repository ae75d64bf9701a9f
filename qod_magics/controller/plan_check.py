"""What a controller doesn't take on trust: a policy's plan (a runtime's snapshot has `core.validation`). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from qod_magics.controller.dag import Dag
from qod_magics.core.keyed import in_order
from qod_magics.core.plan import Plan
from qod_magics.core.snapshot import Snapshot
from qod_magics.errors import QodError, nearest


class PlanError(QodError, ValueError):
    """A plan that can't be carried out as it stands; the message names the field."""


def check_plan(plan: Plan, snapshot: Snapshot) -> None:
    """Hold a policy's plan to what every runtime relies on. Raises PlanError, which names the field.

    Fractions lie in 0..1; there is a `desired` for every task and a `non_drop` for every source and stream; only
    instances and task managers of the snapshot are named.
    """
    _check_fractions(plan)
    dag = Dag.of(snapshot)
    tasks = dag.topology.position
    try:
        in_order(plan.desired, dag.tasks)
        in_order(plan.non_drop, dag.edges)
    except KeyError:
        _check_complete(plan, snapshot)
    if len(plan.desired) != len(tasks):
        _check_known(plan, tasks)
    if plan.fail or plan.place:
        _check_moves(plan, snapshot)


def _check_known(plan: Plan, tasks: Mapping[str, int]) -> None:
    for unknown in sorted(plan.desired.keys() - tasks.keys()):
        raise PlanError(f"desired names {unknown!r}, which is no task.{nearest(unknown, tasks)}")


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


def _check_moves(plan: Plan, snapshot: Snapshot) -> None:
    instances = {instance.id for instance in snapshot.instances}
    managers = {manager.id for manager in snapshot.task_managers}
    for instance in (*plan.fail, *plan.place):
        if instance not in instances:
            raise PlanError(f"fail or place names {instance!r}, which is no instance.{nearest(instance, instances)}")
    for instance, manager in plan.place.items():
        if manager not in managers:
            raise PlanError(f"place[{instance!r}] is {manager!r}, no task manager.{nearest(manager, managers)}")


def _fractions(plan: Plan) -> Iterator[tuple[str, float]]:
    for task, value in plan.desired.items():
        yield f"desired[{task!r}]", value
    for (source, target), value in plan.non_drop.items():
        yield f"non_drop from {source!r} to {target!r}", value
