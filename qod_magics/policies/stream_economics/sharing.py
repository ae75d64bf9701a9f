"""What is left above the minimum accuracies, given out by priority and evenly within one (Algorithms 3.2 and 3.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from qod_magics.policies.stream_economics.accuracy import FULL_CORE, obtained_accuracy, required_cpu
from qod_magics.policies.stream_economics.load import Load, total
from qod_magics.policies.stream_economics.queries import QueryAccuracies
from qod_magics.policies.stream_economics.topology import Topology

Groups = dict[int, dict[int, list[int]]]  #: priority -> task manager -> its instances of that priority


class Needs(NamedTuple):
    """What each task needs, by position."""

    cpu: list[float]  #: cpu(t), % of one core
    current: list[float]  #: curAc(t), fraction of 1
    min_accuracy: list[float]  #: minAc(t), fraction of 1
    min_required: list[float]  #: minReq(t), % of one core


def groups_by_priority(instances: Iterable[int], load: Load, topology: Topology) -> Groups:
    """The instances that take part, grouped; within a group in the order given."""
    groups: Groups = {}
    task_of = load.task_of
    manager_of = load.manager_of
    priority = topology.priority
    for i in instances:
        groups.setdefault(priority[task_of[i]], {}).setdefault(manager_of[i], []).append(task_of[i])
    return groups


def share(groups: Groups, needs: Needs, available: list[float], desired: QueryAccuracies) -> None:
    """Give each priority, from the highest down, what it can use of `available` (% of one core, by task manager).

    Lowers `desired` and `available` in place. Within a priority the task manager with the most slack, where CPU is
    scarcest, comes first, so that no decision has to be taken back.
    """
    for priority in sorted(groups, reverse=True):
        managers = groups[priority]
        order = sorted(managers)
        if len(order) > 1:
            slack = {
                manager: total([_difference(t, needs, desired) for t in managers[manager]]) - available[manager]
                for manager in order
            }
            order.sort(key=lambda manager: -slack[manager])
        for manager in order:
            available[manager] = _share_evenly(managers[manager], needs, available[manager], desired)


def _difference(t: int, needs: Needs, desired: QueryAccuracies) -> float:
    """diff(t): CPU from the minimum to the desired accuracy, % of one core (model item 7)."""
    difference = required_cpu(desired.highest(t), needs.cpu[t], needs.current[t]) - needs.min_required[t]
    return difference if difference > 0.0 else 0.0


def _share_evenly(tasks: list[int], needs: Needs, available: float, desired: QueryAccuracies) -> float:
    """Algorithm 3.4 for the instances (given as their tasks) of one priority on one task manager; returns the rest."""
    cpu, current, min_accuracy, min_required = needs
    if len(tasks) > 1:
        differences = {t: _difference(t, needs, desired) for t in set(tasks)}
        tasks = sorted(tasks, key=differences.__getitem__)
    waiting = len(tasks)
    for t in tasks:
        highest = desired.highest(t)
        load = cpu[t]
        now = current[t]
        needed = required_cpu(highest, load, now)
        difference = needed - min_required[t]
        if difference < 0.0:
            difference = 0.0
        granted = available / waiting
        if difference <= granted:
            granted = difference
        waiting -= 1
        available -= granted
        if granted == difference and now > 0.0 and load > 0.0 and needed < FULL_CORE:
            continue  # obtAc(t, granted) + minAc(t) is `highest`, but for rounding: nothing to lower
        accuracy = obtained_accuracy(granted, load, now) + min_accuracy[t]
        if accuracy < highest:
            desired.limit(t, accuracy)
    return available
