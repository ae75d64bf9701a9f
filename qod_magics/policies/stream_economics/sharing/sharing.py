"""CPU left above the minimum accuracies, shared by priority and evenly within one (Algorithms 3.2 and 3.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from qod_magics.core.load import total
from qod_magics.policies.stream_economics.model.queries import QueryAccuracies
from qod_magics.policies.stream_economics.model.requirements import FULL_CORE, obtained_accuracy
from qod_magics.policies.stream_economics.model.situation import Situation

#: desired(q) by task position, from the CPU above the minimum accuracies, by task manager. Instances (positions) that
#: are left out get no share; their queries stay at their minimums.
Sharing = Callable[[Situation, list[float], Set[int]], list[float]]
Groups = Mapping[int, Mapping[int, list[int]]]  #: priority -> task manager -> the tasks of its instances with it


class Needs(NamedTuple):
    """What each task needs, by position."""

    cpu: list[float]  #: cpu(t), % of one core
    current: Sequence[float]  #: curAc(t), fraction of 1
    min_accuracy: list[float]  #: minAc(t), fraction of 1
    min_required: list[float]  #: minReq(t), % of one core
    usable: Sequence[float]  #: CPU that an instance can use, % of one core


def share(groups: Groups, needs: Needs, available: list[float], desired: QueryAccuracies) -> None:
    """Give each priority, from the highest down, what it can use of `available` (% of one core, by task manager).

    Lowers `desired` and `available` in place. Within a priority the task manager with the most slack, where CPU is
    scarcest, comes first, so that no decision has to be taken back.
    """
    for priority in sorted(groups, reverse=True):
        managers = groups[priority]
        order = sorted(managers)
        known = {manager: _differences(managers[manager], needs, desired) for manager in order}
        if len(order) > 1:
            slack = {manager: total(known[manager]) - available[manager] for manager in order}
            order.sort(key=lambda manager: -slack[manager])
        limits = desired.limits
        for manager in order:
            tasks = managers[manager]
            differences = known[manager] if desired.limits == limits else _differences(tasks, needs, desired)
            available[manager] = _share_evenly(tasks, differences, needs, available[manager], desired)


def _differences(tasks: Sequence[int], needs: Needs, desired: QueryAccuracies) -> list[float]:
    """diff(t) of each: CPU from the minimum to the desired accuracy, % of one core (model item 7).

    `required_cpu` written out, as in `_share_evenly`: these two loops are where a cycle spends its time.
    """
    cpu, current, _, min_required, usable = needs
    only = desired.only
    values = desired.values
    all_full = not desired.limits
    differences = []
    for t in tasks:
        k = only[t]
        highest = 1.0 if all_full else values[k] if k >= 0 else desired.highest(t)
        now = current[t]
        needed = highest * cpu[t] / now if now > 0.0 else FULL_CORE if highest > 0.0 else 0.0
        difference = (needed if needed < usable[t] else usable[t]) - min_required[t]
        differences.append(difference if difference > 0.0 else 0.0)
    return differences


def _share_evenly(
    tasks: Sequence[int], differences: Sequence[float], needs: Needs, available: float, desired: QueryAccuracies
) -> float:
    """Algorithm 3.4 for the instances (given as their tasks) of one priority on one task manager; returns the CPU left.

    `differences` give the order; an instance's share follows from its difference at its turn, which is the same as long
    as no accuracy is lowered.
    """
    cpu, current, min_accuracy, min_required, usable = needs
    only = desired.only
    values = desired.values
    waiting = len(tasks)
    limits = desired.limits
    for c in sorted(range(waiting), key=differences.__getitem__):
        t = tasks[c]
        granted = available / waiting
        waiting -= 1
        difference = differences[c]
        if 0.0 < difference < usable[t] - min_required[t] and difference <= granted and desired.limits == limits:
            available -= difference  # the accuracy that it buys is the desired one, as below
            continue
        k = only[t]
        highest = values[k] if k >= 0 else desired.highest(t)
        load = cpu[t]
        now = current[t]
        needed = highest * load / now if now > 0.0 else FULL_CORE if highest > 0.0 else 0.0
        difference = (needed if needed < usable[t] else usable[t]) - min_required[t]
        if difference < 0.0:
            difference = 0.0
        if difference <= granted:
            available -= difference
            if 0.0 < needed < usable[t] and now > 0.0:
                continue  # obtAc(t, difference) + minAc(t) is `highest`, but for rounding: nothing to lower
            granted = difference
        else:
            available -= granted
        accuracy = obtained_accuracy(granted, load, now) + min_accuracy[t]
        if accuracy < highest:
            desired.limit(t, accuracy)
    return available


def even_shares(situation: Situation, available: list[float], left_out: Set[int]) -> list[float]:
    """A `Sharing`: as in the paper, evenly within each priority."""
    topology, hosting, load, required = situation.topology, situation.hosting, situation.load, situation.required
    accuracies = QueryAccuracies(topology, situation.reach, {load.task_of[i] for i in left_out})
    sharing = [i for i in hosting.by_id if i not in left_out] if left_out else hosting.by_id
    beyond = situation.min_required
    if any(required.base):
        beyond = [needed - base for needed, base in zip(beyond, required.base, strict=True)]
        for t in {load.task_of[i] for i in sharing}:
            if (most := required.most(t)) < 1.0:
                accuracies.limit(t, max(most, topology.min_accuracy[t]))
    needs = Needs(required.cpu, required.at, topology.min_accuracy, beyond, required.usable)
    share(hosting.grouped(sharing) if left_out else hosting.by_priority, needs, available, accuracies)
    return accuracies.by_task()
