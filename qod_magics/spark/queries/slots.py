"""Task slots of task managers. The tasks of a query in real-time mode run all at once, each in a slot of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from qod_magics.core import snapshot as core
from qod_magics.core.runtime import Placer, Unplaced
from qod_magics.lifecycle.events import State
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.modes import slots_needed
from qod_magics.spark.servers.task_manager import TaskManager


def slots_of(instance: Instance) -> int:
    """Return the slots that its run holds, or that a new run would need: one per partition that it reads, and one for
    the aggregation if it keeps state; 0 in micro-batches, whose tasks wait for one another."""
    return slots_needed(instance.job, instance.facts) if instance.may_run_realtime else 0


def free(managers: Iterable[TaskManager], instances: Iterable[Instance]) -> dict[str, float]:
    """Return by task manager the slots that no query in real-time mode holds; infinite where their number is
    unknown."""
    found = {manager.id: inf if manager.slots is None else float(manager.slots) for manager in managers}
    for instance in instances:
        home = instance.task_manager
        if home is not None and home.id in found and instance.state is not State.GAVE_UP:
            found[home.id] -= slots_of(instance)
    return found


def placed(
    place: Placer,
    unplaced: Sequence[Unplaced],
    managers: Sequence[core.TaskManager],
    running: Sequence[core.Instance],
    needs: Mapping[str, int],
    slots: Mapping[str, float],
) -> Mapping[str, str]:
    """Return the task manager by instance, as the policy places them: one without enough free `slots` for what an
    instance `needs` only where none has enough. There, it will run in micro-batches."""
    found: dict[str, str] = {}
    left, known, open_slots = list(unplaced), list(running), dict(slots)
    while left:
        answer = place(left, managers, known)
        again = []
        for one in left:
            target, need = answer.get(one.instance), needs.get(one.instance, 0)
            if target is None:
                continue
            short = {manager.id for manager in managers if open_slots[manager.id] < need} | one.forbidden
            if target in short - one.forbidden and any(manager.id not in short for manager in managers):
                again.append(replace(one, forbidden=frozenset(short)))
                continue
            found[one.instance] = target
            open_slots[target] -= need
            known.append(core.Instance(one.instance, one.task, target, 0.0, one.estimate or 0.0, True))
        left = again
    return found
