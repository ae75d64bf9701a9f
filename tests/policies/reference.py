"""Stream Economics written down word for word, by name and without any care for speed: what the policy must equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from math import fsum
from typing import Any

from qod_magics.core.snapshot import Instance, Snapshot

ROUNDING = 1e-9


def plan(snapshot: Snapshot) -> dict[str, Any]:
    """The six common fields; `non_drop` by (from, to)."""
    model = Model(snapshot)
    available = {
        manager.id: min(
            max(100 * manager.cores - manager.cpu + fsum(i.cpu for i in model.on(manager.id)), 0.0),
            100 * manager.cores,
        )
        for manager in snapshot.task_managers
    }
    desired = dict.fromkeys(model.queries_of_all, 1.0)
    warming = {i.task_manager for i in snapshot.instances if i.warming_up}
    failed: list[Instance] = []
    starved = []

    def at_minimum(task: str) -> None:
        for query in model.queries(task):
            desired[query] = min(desired[query], model.task[query].min_accuracy or 0.0)

    for manager in available:
        hosted = model.on(manager)
        if manager in warming:
            for instance in hosted:
                at_minimum(instance.task)
            continue
        required = fsum(model.min_required(i.task) for i in hosted)
        released = 0.0
        if required > available[manager] + ROUNDING:
            if len(available) == 1:
                starved.append(manager)
            else:
                here = kill(model, required - available[manager], hosted)
                failed += here
                released = fsum(model.min_required(i.task) for i in here)
        available[manager] = max(available[manager] - required + released, 0.0)
    for instance in failed:
        at_minimum(instance.task)

    def highest(task: str) -> float:
        return max(desired[query] for query in model.queries(task))

    def difference(instance: Instance) -> float:
        task = instance.task
        return max(model.required(task, highest(task)) - model.min_required(task), 0.0)

    takes_part = [i for i in snapshot.instances if i not in failed and i.task_manager not in warming]
    for priority in sorted({model.priority(i.task) for i in takes_part}, reverse=True):
        groups = {
            manager: [i for i in takes_part if i.task_manager == manager and model.priority(i.task) == priority]
            for manager in available
        }
        slack = {
            manager: fsum(map(difference, group)) - available[manager] for manager, group in groups.items() if group
        }
        for manager in sorted(slack, key=lambda manager: -slack[manager]):
            group = sorted(groups[manager], key=lambda i: (difference(i), i.id))
            for c, instance in enumerate(group):
                task = instance.task
                share = min(difference(instance), available[manager] / (len(group) - c))
                accuracy = min(model.obtained(task, share) + model.min_accuracy(task), 1.0)
                if abs(accuracy - highest(task)) > 1e-12 * highest(task):
                    for query in model.queries(task):
                        desired[query] = min(desired[query], accuracy)
                available[manager] -= share

    everywhere = {task: highest(task) for task in model.task}
    non_drop: dict[tuple[str | None, str], float] = {
        (None, task.id): everywhere[task.id] for task in snapshot.tasks if not task.upstream
    }
    for stream in snapshot.streams:
        sending = everywhere[stream.source]
        non_drop[stream.source, stream.target] = everywhere[stream.target] / sending if sending else 0.0
    return {
        "current_accuracy": {task: model.current(task) for task in model.task},
        "desired": everywhere,
        "non_drop": non_drop,
        "fail": [instance.id for instance in failed],
        "place": placement(model, failed),
        "starved": starved,
    }


def kill(model: Model, need: float, hosted: Iterable[Instance]) -> list[Instance]:
    hosted = list(hosted)
    candidates: list[Instance] = []
    for priority in sorted({model.priority(i.task) for i in hosted}):
        if fsum(model.min_required(i.task) for i in candidates) < need - ROUNDING:
            candidates += [i for i in hosted if model.priority(i.task) == priority]
    candidates.sort(key=lambda i: (-model.priority(i.task), -model.min_required(i.task), i.id))
    failed = list(candidates)
    for instance in candidates:
        others = [i for i in failed if i is not instance]
        if fsum(model.min_required(i.task) for i in others) >= need - ROUNDING:
            failed = others
    return failed


def placement(model: Model, failed: list[Instance]) -> dict[str, str]:
    snapshot = model.snapshot
    new = [i for i in snapshot.instances if i.warming_up and i.cpu == 0 and i.in_rate == 0]

    def estimate(instance: Instance) -> float:
        known = [instance, *model.instances(instance.task)]
        return next((i.cpu for i in known if i not in new), 100.0)

    left = {
        manager.id: 100 * manager.cores - manager.cpu - sum(estimate(i) for i in new if i.task_manager == manager.id)
        for manager in snapshot.task_managers
    }
    placed = {}
    for instance in failed:
        others = [manager for manager in left if manager != instance.task_manager]
        placed[instance.id] = max(others, key=left.__getitem__)
        left[placed[instance.id]] -= estimate(instance)
    return placed


class Model:
    """Section 2 of the model, item by item."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.task = {task.id: task for task in snapshot.tasks}
        self.queries_of_all = [task for task in self.task if not snapshot.downstream[task]]
        self.rates = {(stream.source, stream.target): stream.out_rate for stream in snapshot.streams}
        remember: Callable[[Any], Any] = cache
        self.queries = remember(self.queries)
        self.current = remember(self.current)
        self.cpu = remember(self.cpu)

    def on(self, manager: str) -> list[Instance]:
        return [i for i in self.snapshot.instances if i.task_manager == manager]

    def instances(self, task: str) -> list[Instance]:
        return [i for i in self.snapshot.instances if i.task == task]

    def queries(self, task: str) -> frozenset[str]:
        down = self.snapshot.downstream[task]
        return frozenset().union(*map(self.queries, down)) if down else frozenset((task,))

    def priority(self, task: str) -> int:
        return max(self.task[query].priority or 0 for query in self.queries(task))

    def min_accuracy(self, task: str) -> float:
        return max(self.task[query].min_accuracy or 0.0 for query in self.queries(task))

    def current(self, task: str) -> float:
        up = self.task[task].upstream
        rate = sum((self.rates[source, task] for source in up), 0.0 if up else self.task[task].external_rate or 0.0)
        instances = self.instances(task)
        local = min(min(i.in_rate for i in instances) / (rate / len(instances)), 1.0) if rate else 1.0
        return local * min((self.current(source) for source in up), default=1.0)

    def cpu(self, task: str) -> float:
        return min(self.instances(task), key=lambda i: (i.in_rate, -i.cpu, i.id)).cpu

    def required(self, task: str, accuracy: float) -> float:
        if self.current(task) == 0:
            return 100.0 if accuracy else 0.0
        return min(accuracy * self.cpu(task) / self.current(task), 100.0)

    def min_required(self, task: str) -> float:
        return self.required(task, self.min_accuracy(task))

    def obtained(self, task: str, share: float) -> float:
        if self.current(task) == 0:
            return 1.0 if share else 0.0
        if self.cpu(task) == 0:
            return 1.0 if share else self.current(task)
        return min(self.current(task) * share / self.cpu(task), 1.0)
