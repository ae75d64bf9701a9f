"""Share the CPU above the minimum accuracies by priority: evenly, or so that queries rise together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from qod_magics.core.dag import Topology
from qod_magics.core.load import Load, total
from qod_magics.policies.stream_economics.placing import tolerance
from qod_magics.policies.stream_economics.reach import QueryAccuracies, Situation, reached
from qod_magics.policies.stream_economics.requirements import FULL_CORE, Requirements, obtained_accuracy

# --- Even shares ------------------------------------------------------------------------------------------------------
# CPU left above the minimum accuracies, shared by priority and evenly within one (Algorithms 3.2 and 3.4).

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
    """Share CPU evenly within each priority, as in the paper."""
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


# --- Queries of one priority rise together ----------------------------------------------------------------------------
# The paper gives each instance an even share of the CPU. In a chain, a share that one instance can't use because
# another is the bottleneck is lost, and the result depends on the order of the task managers. Here all queries of a
# priority are raised to one level until a task manager has no CPU left; queries that need it stop there, the others
# rise further. That is max-min fair: no query could have more without taking from one of its priority that has less.
# And the plan is a continuous function of the loads.


def fill(
    instances: Iterable[int],
    load: Load,
    topology: Topology,
    required: Requirements,
    available: Sequence[float],
    held: Sequence[bool] | None = None,
) -> list[float]:
    """Return desired(q) by task position, fraction of 1; 0 for a task that is not a query.

    `instances` (positions) take part; `available` is the CPU of their task managers above the minimum accuracies, % of
    one core; `held[t]` says that a query stays at its minimum (None: none does).
    """
    filling = _Filling(instances, load, topology, required, available)
    queries = [t for t, consumers in enumerate(topology.downstream) if not consumers]
    rising: dict[int, list[int]] = {}
    for q in queries:
        if held is None or not held[q]:
            rising.setdefault(topology.priority[q], []).append(q)
    full: Sequence[int] = ()
    for priority in sorted(rising, reverse=True):
        for q in full:  # not before: after the last priority, nobody asks what CPU is left
            filling.settle(q, 1.0)
        full = filling.raise_together(rising[priority])
    desired = [0.0] * len(topology.downstream)
    for q in queries:
        desired[q] = filling.floor[q]
    for q in full:
        desired[q] = 1.0
    return desired


def max_min_shares(situation: Situation, available: list[float], left_out: Set[int]) -> list[float]:
    """Share CPU max-min fair within each priority.

    Queries with a task on a task manager where not even the minimums fit stay there, even if accuracy is free by the
    cost estimate: that estimate can be wrong, and no CPU is left to find out.
    """
    load, topology = situation.load, situation.topology
    short = _short(situation, available)
    sharing, held = situation.hosting.by_id, None
    if left_out or short:
        held = reached(topology, {load.task_of[i] for i in sharing if i in left_out or load.manager_of[i] in short})
        sharing = [i for i in sharing if i not in left_out]
    return fill(sharing, load, topology, situation.required, available, held)


def _short(situation: Situation, available: Sequence[float]) -> set[int]:
    """Return the task managers where the minimums do not fit, and from which no instance leaves."""
    if all(left > 0.0 for left in available):
        return set()
    load, least = situation.load, [0.0] * len(available)
    for i in situation.hosting.by_id:
        least[load.manager_of[i]] += situation.min_required[load.task_of[i]]
    given = situation.required.available
    return {m for m, left in enumerate(available) if left <= 0.0 and least[m] - given[m] > tolerance(least[m])}


class _Filling:
    """The state between one priority and the next.

    A *limit* is a task manager, or the cores that an instance can use, where its task could fill these. At any given
    time no limit's slack is negative, and a task runs at its `floor` or, if it rises, at the level of the rising
    queries where that is higher.
    """

    def __init__(
        self,
        instances: Iterable[int],
        load: Load,
        topology: Topology,
        required: Requirements,
        available: Sequence[float],
    ) -> None:
        self.floor = list(topology.min_accuracy)  #: by task: the accuracy it has already
        self._topology = topology
        self._slope = required.costs()
        self._children = [0] * len(self.floor)  #: by task: how many of its consumers rise; 1 for a rising query
        self._slack = list(available)
        self._hosted: list[dict[int, int]] = [{} for _ in available]  #: by limit: how many instances of each task
        self._limits: list[list[int]] = [[] for _ in self.floor]  #: by task
        task_of, manager_of = load.task_of, load.manager_of
        for i in instances:
            t, manager = task_of[i], manager_of[i]
            hosted = self._hosted[manager]
            if t in hosted:
                hosted[t] += 1
            else:
                hosted[t] = 1
                self._limits[t].append(manager)
        least = required.all_of(self.floor)
        for t, limits in enumerate(self._limits):
            if limits and least[t] + self._slope[t] * (1.0 - self.floor[t]) > required.usable[t]:
                limits.append(len(self._slack))
                self._slack.append(required.usable[t] - least[t])
                self._hosted.append({t: 1})
        self._place = [{t: n for n, t in enumerate(hosted)} for hosted in self._hosted]  #: of a task among the hosted
        self._rising: list[list[int]] = [[] for _ in self._hosted]  #: by limit: tasks that began to, ordered as hosted

    def raise_together(self, queries: Sequence[int]) -> list[int]:
        """Raise these queries as far as the limits let each of them; returns those that reach 1, not settled yet."""
        touched: set[int] = set()
        for q in queries:
            touched |= self._begin(q)
        for limit in touched:
            self._rising[limit].sort(key=self._place[limit].__getitem__)
        level = {limit: self._level(limit) for limit in touched}
        heap = [(at, limit) for limit, at in level.items()]  # may hold outdated entries, recognized by their level
        heapify(heap)
        while heap:
            at, limit = heappop(heap)
            if at != level[limit]:
                continue
            if at >= 1.0:
                break
            changed: set[int] = set()
            for q in self._stopped_by(limit, at):
                changed |= self.settle(q, max(at, self.floor[q]))
            for each in changed | {limit}:
                new = self._level(each)
                if new != level[each]:
                    level[each] = new
                    heappush(heap, (new, each))
        for limit in touched:
            self._rising[limit].clear()
        return [q for q in queries if self._children[q]]

    def _begin(self, q: int) -> set[int]:
        """Start the rise of a query and its ancestors; returns the limits on them."""
        touched: set[int] = set()
        waiting = [q]
        while waiting:
            t = waiting.pop()
            self._children[t] += 1
            if self._children[t] == 1:
                touched.update(self._limits[t])
                for limit in self._limits[t]:
                    self._rising[limit].append(t)
                waiting += self._topology.upstream[t]
        return touched

    def _level(self, limit: int) -> float:
        """Return the level that rising tasks can reach before the limit has no slack left; inf: any."""
        floor, slope, children, hosted = self.floor, self._slope, self._children, self._hosted[limit]
        rising = sorted([(floor[t], slope[t] * hosted[t]) for t in self._rising[limit] if children[t] and slope[t]])
        left = self._slack[limit] - tolerance(self._slack[limit])
        steep = at = 0.0
        for low, cost in rising:
            if steep and left <= steep * (low - at):
                return at + max(left, 0.0) / steep
            left -= steep * (low - at)
            steep += cost
            at = low
        return at + max(left, 0.0) / steep if steep else inf

    def _stopped_by(self, limit: int, level: float) -> list[int]:
        """Return the rising queries that need more of a limit beyond this level."""
        downstream = self._topology.downstream
        found = []
        waiting = [
            t for t in self._rising[limit] if self._children[t] and self._slope[t] > 0.0 and self.floor[t] <= level
        ]
        seen = set(waiting)
        while waiting:
            t = waiting.pop()
            if not downstream[t]:
                found.append(t)
            for consumer in downstream[t]:
                if self._children[consumer] and consumer not in seen:
                    seen.add(consumer)
                    waiting.append(consumer)
        return found

    def settle(self, q: int, accuracy: float) -> set[int]:
        """Stop a query at an accuracy; returns the limits that this affects."""
        changed: set[int] = set()
        upstream = self._topology.upstream
        waiting = [q]
        while waiting:  # its ancestors run at least at that
            t = waiting.pop()
            if accuracy > self.floor[t] or t == q:
                for limit in self._limits[t]:
                    self._slack[limit] -= self._slope[t] * self._hosted[limit][t] * (accuracy - self.floor[t])
                changed.update(self._limits[t])
                self.floor[t] = accuracy
                waiting += upstream[t]
        waiting = [q]
        while waiting:  # and no longer rise for it
            t = waiting.pop()
            self._children[t] -= 1
            if not self._children[t]:
                changed.update(self._limits[t])
                waiting += upstream[t]
        return changed
