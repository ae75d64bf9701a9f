"""Collect from snapshots how far the cost estimates of each task manager are trusted, and find its regime. Pure.

`regimes` says what follows from a regime, and `limits` with which backlogs it compares.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from math import inf
from typing import Any

from qod_magics.core.dag import Topology
from qod_magics.core.load import load_of
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot, TaskManager, column, is_down, replace
from qod_magics.policies.stream_economics.evidence.limits import (
    LONGEST_PACE_S,
    REST_S,
    SCARCE,
    Intervals,
    intervals_of,
    saved_by_rounds,
)
from qod_magics.policies.stream_economics.evidence.regimes import Seen, Trust, after
from qod_magics.policies.stream_economics.requirements import known_requirements

# --- Backlogs in seconds of input -------------------------------------------------------------------------------------
# After a fall of the load, what waits is many seconds of the present input, though it was collected within a few: as a
# sign of costs that are off, it is no larger than before.

#: For how long the rate of before a fall counts, seconds: until then, a backlog of two periods is gone.
HELD_S = 15.0


@dataclass(frozen=True, slots=True)
class Collected:
    """By task: the input rate at which its backlog was collected, rows/s, and the last second in which it was."""

    rates: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def after(self, snapshot: Snapshot, measured: Measured, rest_s: float) -> Collected:
        """Return the rates one cycle later: the present one, or for `HELD_S` a higher one of before, while more than
        `rest_s` seconds of the present input wait."""
        now = snapshot.at_s or 0.0
        found = {}
        for task, (rows, rate) in backlogs(snapshot, measured).items():
            before, at_s = self.rates.get(task, (0.0, 0.0))
            held = before > rate and rows > rest_s * rate and now - at_s <= HELD_S
            found[task] = (before, at_s) if held else (rate, now)
        return Collected(found)

    def waiting_s(self, snapshot: Snapshot, measured: Measured) -> Mapping[str, float]:
        """Backlog by task, in seconds of the input that it was collected from; 0 where no rate is known."""
        found = {}
        for task, (rows, _) in backlogs(snapshot, measured).items():
            rate, _ = self.rates.get(task, (0.0, 0.0))
            found[task] = rows / rate if rate > 0.0 else 0.0
        return found


def backlogs(snapshot: Snapshot, measured: Measured) -> Mapping[str, tuple[int, float]]:
    """Return the backlog and the input rate of each task."""
    found = {}
    for task in snapshot.tasks:
        feeds: Collection[str] = [f"{source}>{task.id}" for source in task.upstream] or [task.id]
        rows = sum(measured.lag.get(name, 0) for name in feeds)
        rate = sum(measured.input_rate.get(name, 0.0) for name in feeds) or task.external_rate or 0.0
        found[task.id] = rows, rate
    return found


#: A query is new for this long, in seconds since it was first measured; on a task manager, too, which compiles its code
#: again: the backlog of a move says as little of the CPU there as that of a start.
COLD_S = 60.0
#: Cycles for which micro-batches are paced once load is shed.
PACED_CYCLES = 12
#: Dropping rows is futile where the cores are busy and it could free less than this share of the CPU for tasks: fewer
#: batches help there, and these come by themselves as batches lengthen.
FUTILE = 0.1
#: Utilization limit: cores in use / cores that plans may use. A tenth of the cores is reserved for other load of the
#: machine, and backlogs begin at some 95 % utilization of all cores.
IN_USE = 1.05
#: Overuse counts only if the tasks themselves use this share of the cores that plans may use: otherwise a neighbour
#: that takes all the rest would push them back for ever.
OURS = 0.6
#: Trust falls only where the tasks are within this multiple of the CPU it grants, by their costs: beyond, they run at
#: higher accuracies than planned, as while the controller is paused, and the backlog says nothing of the plan.
APPLIED = 1.25
#: A task manager counts as dearer or cheaper than others only by the excess over this share: less is within the noise
#: of a few readings, and trust covers it.
SAME_COST = 0.05
#: What a task manager is called whose queries read keep probabilities for each row.
BY_ROW = "row"
#: Accuracies from here on count as 1.
FULL = 0.995
#: Up to this multiple of its minimum accuracy a query counts as running at its minimum.
NEAR = 1.1


@dataclass(frozen=True, slots=True)
class Trusts:
    """State of all task managers, and since when tasks have been measured, seconds since the epoch."""

    managers: Mapping[str, Trust] = field(default_factory=dict)
    since: Mapping[tuple[str, str], float] = field(default_factory=dict)  #: by (task, task manager)
    collected: Collected = field(default_factory=Collected)
    first: Mapping[str, float] = field(default_factory=dict)  #: by task: since when anywhere
    declared: Mapping[str, float | None] = field(default_factory=dict)  #: by task: see `Task.declared`

    def proved(self, snapshot: Snapshot) -> Mapping[str, bool]:
        """Return whether each task has been measured for a while where it runs now."""
        now = max((each.window[1] for each in snapshot.instances if each.window is not None), default=0.0)
        found: dict[str, bool] = {}
        for each in snapshot.instances:
            since = self.since.get((each.task, each.task_manager), now)
            found[each.task] = found.get(each.task, True) and now - since >= COLD_S
        return found


def trusted(
    snapshot: Snapshot, measured: Measured, memory: Trusts | None, elsewhere: Set[str] = frozenset()
) -> tuple[Snapshot, Trusts]:
    """Return a snapshot that has learned costs with the fields of this module in its task managers, and the memory.
    Backlogs of the tasks in `elsewhere`, which something other than CPU limits, say nothing of CPU.

    Those that run open get `open_s` and, where a larger backlog is tolerated, `tolerated_s`; the others `trust`.
    """
    before = memory if memory is not None else Trusts()
    declared = {task.id: task.declared for task in snapshot.tasks}
    ages = _Ages.of(snapshot, before, declared)
    collected = before.collected.after(snapshot, measured, REST_S)
    cycle = _Cycle(snapshot, measured, before, ages, collected, elsewhere)
    managers, hosts = {}, []
    for manager in snapshot.task_managers:
        trust = before.managers.get(manager.id, Trust())
        seen = cycle.seen(manager, trust)
        found = after(trust, seen)
        steady_s = cycle.steady_s(manager, trust)
        paced = 0
        if cycle.batching[manager.id] > 1 or (seen.limited and cycle.batching[manager.id]):
            paced = max(trust.paced - 1, 0) if found.is_open else PACED_CYCLES
        managers[manager.id] = replace(found, round_s=steady_s, seen_at=cycle.newest[manager.id], paced=paced)
        fields = _fields(manager, found, seen, cycle.intervals[manager.id], bool(paced), cycle.most_s(manager))
        hosts.append(replace(manager, **fields))
    known = Trusts(managers, ages.since, collected, ages.first, declared)
    return replace(snapshot, task_managers=tuple(hosts)), known


def _fields(
    manager: TaskManager, found: Trust, seen: Seen, intervals: Intervals, paced: bool, most_s: float
) -> Mapping[str, Any]:
    """Return the fields of a task manager. No task there waits for longer than `most_s` seconds of its input."""
    fields: dict[str, Any] = {}
    if found.is_open:
        fields["open_s"] = seen.limit_s
        if most_s > seen.limit_s:  # what waits there, if for another reason than CPU, is not thinned either
            fields["tolerated_s"] = 2.0 * most_s
    else:
        fields["trust"] = found.factor
    if intervals.longest_s > intervals.batch_s:
        fields["interval_s"] = intervals.longest_s
    if paced:
        fields["paced_s"] = min(intervals.batch_s, LONGEST_PACE_S)
    elif found.is_open and seen.asked is not None:
        fields["paced_s"] = manager.calm_s
    if (cost := manager.cost) is not None:
        fields["cost"] = _beyond_noise(cost)
    return fields


@dataclass(frozen=True, slots=True)
class _Ages:
    """Since when tasks have been measured, seconds since the epoch."""

    since: Mapping[tuple[str, str], float]  #: by (task, task manager)
    first: Mapping[str, float]  #: by task: since when anywhere
    now: float  #: the newest measurement

    @classmethod
    def of(cls, snapshot: Snapshot, known: Trusts, declared: Mapping[str, float | None]) -> _Ages:
        """Return those of a snapshot. A task that was declared again with another recipe is a new one."""
        same = {task for task, number in declared.items() if known.declared.get(task, number) == number}
        managers = set(column(snapshot.task_managers, "id"))
        before = {(task, manager): at for (task, manager), at in known.since.items() if task in same}
        since = {(task, manager): at for (task, manager), at in before.items() if manager in managers}
        first = {task: at for task, at in known.first.items() if task in same}
        for (task, _), at in before.items():
            first[task] = min(at, first.get(task, at))
        now = 0.0
        for instance in snapshot.instances:
            window = instance.window
            if window is not None:
                begin, end = window
                now = max(now, end)
                pair = (instance.task, instance.task_manager)
                if pair not in before:
                    since[pair] = min(begin, since.get(pair, begin))
                    first[instance.task] = min(begin, first.get(instance.task, begin))
        return cls(since, first, now)

    def is_new(self, task: str) -> bool:
        """Return whether a task is new everywhere."""
        return self.now - self.first.get(task, self.now) < COLD_S

    def is_new_on(self, task: str, manager: str) -> bool:
        """Return whether a task is new on a task manager."""
        return self.now - self.since.get((task, manager), self.now) < COLD_S

    def was_moved_to(self, task: str, manager: str) -> bool:
        """Return whether a task was measured elsewhere before."""
        return self.first.get(task, self.now) < self.since.get((task, manager), self.now)


class _Cycle:
    """What a snapshot and the measurements of a cycle say of all task managers. Mappings without a comment are by task
    manager, CPU in % of one core."""

    def __init__(
        self,
        snapshot: Snapshot,
        measured: Measured,
        before: Trusts,
        ages: _Ages,
        collected: Collected,
        elsewhere: Set[str],
    ) -> None:
        self.ages, self.measured, self.elsewhere = ages, measured, elsewhere
        names = [manager.id for manager in snapshot.task_managers]
        self.tasks: dict[str, set[str]] = {name: set() for name in names}  #: those that have not failed
        self.batching = dict.fromkeys(names, 0)  #: instances in micro-batches
        self.newest = dict.fromkeys(names, 0.0)  #: the newest measurement of a task, seconds since the epoch
        self.own = dict.fromkeys(names, 0.0)  #: CPU of the instances
        self.waiting = dict(collected.waiting_s(snapshot, measured))  #: by task: backlog, seconds of input
        failed = self._gather(snapshot)
        topology = Topology.of(snapshot.tasks)
        new = {i for i, instance in enumerate(snapshot.instances) if ages.is_new(instance.task)}
        needed, self.available = _needed(snapshot, topology, failed)
        certain, _ = _needed(snapshot, topology, failed | new)
        in_use, _ = _needed(snapshot, topology, failed, measured.accuracy)
        saved = saved_by_rounds(snapshot, failed | new)
        self.certain = {name: certain[name] - saved[name] for name in names}  #: CPU needed at accuracy 1, beyond doubt
        self.asked = {name: needed[name] / max(self.available[name], 1e-9) for name in names}
        self.used = {name: in_use[name] / max(self.available[name], 1e-9) for name in names}
        self.freed = _freed(snapshot, topology, failed)
        self.least = {t: NEAR * topology.min_accuracy[i] for t, i in topology.position.items()}  #: by task
        self.starting, self.unproved = _unproved(snapshot, ages)  #: (task, task manager)
        self.idle = _idle_tasks(snapshot, measured) if len(ages.first) < len(snapshot.tasks) else set()
        paced = {name for name, trust in before.managers.items() if trust.paced}
        cold = {manager for _, manager in self.unproved}
        rates = {task: rate for task, (_, rate) in backlogs(snapshot, measured).items()}
        self.intervals = intervals_of(snapshot, self.waiting, cold, paced, rates)

    def _gather(self, snapshot: Snapshot) -> set[int]:
        """Fill in what the instances say, and return those that have failed (positions): their rows wait for a restart,
        whatever CPU there is."""
        failed = set()
        for i, instance in enumerate(snapshot.instances):
            manager = instance.task_manager
            if is_down(instance):
                self.waiting[instance.task] = 0.0
                failed.add(i)
                continue
            self.own[manager] += instance.cpu
            self.tasks[manager].add(instance.task)
            self.batching[manager] += instance.batches_per_s is not None
            if (window := instance.window) is not None:
                self.newest[manager] = max(self.newest[manager], window[1])
        return failed

    def most_s(self, manager: TaskManager) -> float:
        """Return the largest backlog of a task there, seconds of input."""
        return max((self.waiting[task] for task in self.tasks[manager.id]), default=0.0)

    def steady_s(self, manager: TaskManager, trust: Trust) -> float:
        """Return the interval of batches on a task manager, without growth that an overload explains, seconds."""
        return self.intervals[manager.id].steady_s(trust.round_s, is_cold=self._is_cold(manager.id))

    def seen(self, manager: TaskManager, trust: Trust) -> Seen:
        """Return what was seen of a task manager that is in this state."""
        name, tasks, cores = manager.id, self.tasks[manager.id], max(100.0 * manager.cores, 1e-9)
        own = replace(manager, cpu=max(manager.cpu - (manager.neighbours_cpu or 0.0), 0.0))
        limited = manager.cpu_limit is not None
        back_to_back = manager.batch_s is not None and not limited  # which use up all idle CPU
        is_cold = self._is_cold(name)
        moved_here = any(self.ages.was_moved_to(t, name) and self.ages.is_new_on(t, name) for t in tasks)
        intervals = self.intervals[name]
        # batches back to back fill a slot to its end, beyond the cores that plans may use: what is used is there
        of_all = self.certain[name] / max(cores, self.own[name])
        accuracies = [self.measured.accuracy.get(task) for task in tasks]
        thinned = manager.dials in (None, BY_ROW)
        return Seen(
            waiting_s=self._judged_s(name),
            limit_s=intervals.limit_s(
                self.steady_s(manager, trust),
                is_open=trust.is_open,
                is_cold=is_cold,
                shared=len(tasks) > 1 and self.batching[name] > 0,
                any_ended=any((task, name) in self.ages.since for task in tasks),
                thinned=thinned,
                settles=of_all <= 1.0,
            ),
            rest_s=intervals.rest_s,
            lasting_s=inf if thinned else intervals.lasting_s,
            sheds=any(accuracy is not None and accuracy < FULL for accuracy in accuracies),
            asked=None if is_cold else self.asked[name],
            whole=max(of_all, self.asked[name] if moved_here else 0.0),
            used=self.used[name],
            is_measured=self.newest[name] > trust.seen_at,
            applied=self.used[name] <= APPLIED * trust.factor,
            idle=inf if back_to_back else _idle(own if limited else manager),
            unused=_idle(manager) if trust.paced else 0.0,
            overuse=0.0 if back_to_back else _overuse(own if limited else manager, self.own[name]),
            spare=(manager.elastic_cpu or 0.0) / cores,
            at_minimum=all((self.measured.accuracy.get(task) or 0.0) <= self.least[task] for task in tasks),
            shared=self.batching[name] > 1,
            futile=manager.cpu >= SCARCE * 100.0 * manager.cores and self.freed[name] < FUTILE * self.available[name],
            limited=limited,
        )

    def _is_cold(self, name: str) -> bool:
        """Return whether a task is new there; one without rows is not: it runs once rows arrive."""
        known = [task for task in self.tasks[name] if task in self.ages.first or task not in self.idle]
        return any(self.ages.is_new_on(task, name) for task in known)

    def _judged_s(self, name: str) -> float:
        """Return the largest backlog of the tasks there that have proved themselves, or else that are not starting, or
        else of all, seconds of input."""
        tasks = self.tasks[name] - self.elsewhere
        proved = [task for task in tasks if (task, name) not in self.unproved]
        judged = proved or [task for task in tasks if (task, name) not in self.starting] or tasks
        return max((self.waiting[task] for task in judged), default=0.0)


def _unproved(snapshot: Snapshot, ages: _Ages) -> tuple[Set[tuple[str, str]], Set[tuple[str, str]]]:
    """(task, task manager) of tasks that are starting, and of these and new ones: they make their own backlogs.

    Tasks that were moved there are left out: a plan has moved them, and has reckoned with them.
    """
    starting, unproved = set(), set()
    for instance in snapshot.instances:
        pair = instance.task, instance.task_manager
        if ages.was_moved_to(*pair):
            continue
        if instance.warming_up:
            starting.add(pair)
        if instance.warming_up or ages.is_new_on(*pair):
            unproved.add(pair)
    return starting, unproved


def _idle_tasks(snapshot: Snapshot, measured: Measured) -> set[str]:
    """Return the tasks for which no rows wait or arrive."""
    return {task for task, (rows, rate) in backlogs(snapshot, measured).items() if rows == 0 and rate == 0.0}


def _needed(
    snapshot: Snapshot,
    topology: Topology,
    failed: Set[int],
    accuracy: Mapping[str, float | None] | None = None,
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """By task manager, in % of one core: CPU that its tasks need, at accuracy 1 or at these accuracies, without the
    instances (positions) that have `failed`; and CPU available for them."""
    share = [1.0 if accuracy is None else accuracy.get(task.id) or 0.0 for task in snapshot.tasks]
    load, required = load_of(snapshot, topology), known_requirements(snapshot, topology)
    needed = [0.0] * len(snapshot.task_managers)
    for i, (t, manager) in enumerate(zip(load.task_of, load.manager_of, strict=True)):
        if i not in failed:
            needed[manager] += required.base[t] + share[t] * required.cost(t)  # not capped at what it can use
    names = [manager.id for manager in snapshot.task_managers]
    return dict(zip(names, needed, strict=True)), dict(zip(names, required.available, strict=True))


def _freed(snapshot: Snapshot, topology: Topology, failed: Set[int]) -> Mapping[str, float]:
    """By task manager, in % of one core: CPU that dropping rows down to the minimum accuracies would free."""
    load, required = load_of(snapshot, topology), known_requirements(snapshot, topology)
    freed = dict.fromkeys((manager.id for manager in snapshot.task_managers), 0.0)
    for i, (t, manager) in enumerate(zip(load.task_of, load.manager_of, strict=True)):
        if i not in failed:
            freed[snapshot.task_managers[manager].id] += (1.0 - topology.min_accuracy[t]) * required.cost(t)
    return freed


def _idle(manager: TaskManager) -> float:
    """Headroom below the utilization limit, as a share of it, at least 0."""
    return max(1.0 - manager.cpu / max(IN_USE * 100.0 * manager.cores, 1e-9), 0.0)


def _overuse(manager: TaskManager, own: float) -> float:
    """Utilization above the limit, as a share of it, at least 0; 0 where its tasks, which use `own` % of one core, are
    not the cause."""
    if own < OURS * 100.0 * manager.cores:
        return 0.0
    return max(manager.cpu / max(IN_USE * 100.0 * manager.cores, 1e-9) - 1.0, 0.0)


def _beyond_noise(cost: float) -> float:
    """Return the cost of a task manager, moved towards 1 by up to `SAME_COST`."""
    off = cost - 1.0
    return 1.0 + max(off - SAME_COST, 0.0) + min(off + SAME_COST, 0.0)
