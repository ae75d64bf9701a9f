"""Learn the costs of each task and its selectivity (rows sent for each row kept) while it runs. Pure.

A reading counts once, when its window is new, and only if it is of the present run of an instance that is not warming
up: a start costs more CPU than the run itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from qod_magics.core.runtime import Count, Measured
from qod_magics.core.snapshot import Freshness, Instance, Snapshot, Task, TaskManager, Window, replace
from qod_magics.policies.stream_economics.cost_fit import BatchOverhead, CostFit

#: Forgetting factor per reading, of a ratio (a selectivity, the cost of a task manager).
REMEMBERED = 0.8
#: Readings of an instance after a start for which it counts as cold, if its task's costs are known from before.
COLD_READINGS = 3
#: % of one core for each 1000 rows/s is this many microseconds a row.
MICROSECONDS = 10.0

#: Lower bound of the share of rows that passed.
LEAST_PASSING = 1e-3
#: Upper bound of a task manager's cost; its reciprocal is the lower one.
MOST = 4.0
#: Micro-batches follow one another without a pause while CPU is idle. Plans assume batches, and so backlogs, of this
#: many seconds, and of more where empty batches would take more than half of that time.
BATCH_S = 2.0
#: Rows leave a part of the cores to the fixed costs of batches. Plans assume intervals at which these fit into what
#: rows leave of the first share of the cores, or into the second share where that is more, up to this many seconds.
#: Only up to `LONG_BATCH_S` where these costs take no more than a third of that.
USABLE, FIXED_SHARE, FITTING_S, FIXED_THIRD = 0.9, 0.2, 6.0, 3.0
#: Back to back, batches also use the CPU that no row needs. At a calm load their fixed costs may take this share of
#: what rows leave, and more by this multiple of the share of rows, so that capacity is not reduced: plain Spark leaves
#: 30 to 40 % idle between commits. Not where batches would follow after more than this many seconds.
CALM, CALM_BY_ROWS, LONGEST_CALM_S = 0.6, 0.5, 2.5
#: Back to back and without shedding, batches may settle where their fixed costs take as little as this share, and at as
#: many seconds, or more where many queries have dear batches.
LEAST_FIXED, LONGEST_ROUND_S = 0.1, 30.0
#: The search of a state for expired rows reads all of it in every batch, so longer batches do it less often. Plans
#: assume batches long enough for it to take at most this share of the cores, but for that no longer than this: two of
#: them may wait, and two periods of input at most. Longer ones only where it would take more than half of that time.
EVICTION_SHARE, LONG_BATCH_S = 0.2, 4.0
#: A search that takes less than this, in CPU seconds, is part of a batch's fixed cost; the rest is in proportion to the
#: rows kept, and at most the second, in seconds for each 1000 rows/s: the state may be left from a higher rate.
SHORT_SEARCH_S, LONGEST_SEARCH_S = 0.02, 1.0

Books = tuple[int, int]  #: rows processed and dropped since the start


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of two discounted sums over the readings."""

    part: float = 0.0
    whole: float = 0.0

    def after(self, part: float, whole: float) -> Ratio:
        """Return the ratio with one more reading."""
        return Ratio(REMEMBERED * self.part + part, REMEMBERED * self.whole + whole)

    @property
    def value(self) -> float | None:
        """None while `whole` is 0."""
        return self.part / self.whole if self.whole > 0.0 else None


@dataclass(frozen=True, slots=True)
class Lesson:
    """Estimates for one task."""

    fit: CostFit | None = None  #: None: no reading with rows yet
    time: CostFit | None = None  #: the same with the time of its batches' tasks for CPU; None: not known
    selectivity: Ratio = Ratio()
    passing: float = 1.0  #: share of the rows read that passed the shedders at its reading end, when it last had input
    eviction: Ratio = Ratio()  #: CPU seconds of a batch for each 1000 rows/s kept, weighted by the square of these
    trigger_s: float | None = None  #: trigger interval that the user asked for, or 0; None: real-time mode
    books: Books = (0, 0)
    work: tuple[float | None, tuple[str, ...]] = (None, ())  #: declaration and streams within: others have other costs


@dataclass(frozen=True, slots=True)
class Lessons:
    """Estimates for all tasks and task managers, and the last readings used."""

    tasks: Mapping[str, Lesson] = field(default_factory=dict)
    windows: Mapping[str, Window | None] = field(default_factory=dict)  #: by instance: of its last reading
    managers: Mapping[str, Ratio] = field(default_factory=dict)  #: CPU of their tasks / CPU predicted
    overheads: Mapping[str, BatchOverhead] = field(default_factory=dict)  #: of their batches, beyond the tasks
    cold: Mapping[str, int] = field(default_factory=dict)  #: by instance: for how many more readings it is cold


def learn(snapshot: Snapshot, measured: Measured, memory: Lessons | None) -> tuple[Snapshot, Lessons]:
    """Return `snapshot` with the estimates: `fixed_cpu`, `read_us`, `work_us` and `selectivity` of tasks, `cost` of
    task managers. Those of removed tasks and task managers are dropped."""
    before = memory if memory is not None else Lessons()
    hosted: dict[str, list[Instance]] = {task.id: [] for task in snapshot.tasks}
    for instance in snapshot.instances:
        hosted[instance.task].append(instance)
    out_rate = {stream.source: stream.out_rate for stream in snapshot.streams}
    counts: Mapping[str, Count] = measured.counts
    tasks: dict[str, Lesson] = {}
    readings = _Readings({manager.id: [0.0, 0.0] for manager in snapshot.task_managers})
    for task in snapshot.tasks:
        instances = hosted[task.id]
        lesson, work = before.tasks.get(task.id, Lesson()), (task.declared, task.fused)
        lesson = _with_passing(lesson if lesson.work == work else Lesson(work=work), task, counts)
        new = [each for each in instances if readings.note(each, before, known=lesson.fit is not None)]
        for each in new:
            lesson = readings.teach(lesson, each)
        if task.id in out_rate and new and len(new) == len(instances):
            kept = sum(each.in_rate for each in instances)
            if kept > 0.0:
                lesson = replace(lesson, selectivity=lesson.selectivity.after(out_rate[task.id], kept))
        tasks[task.id] = lesson
    managers = {name: before.managers.get(name, Ratio()).after(*sums) for name, sums in readings.used.items()}
    overheads = _overheads(snapshot, before.overheads, readings.updated)
    batch_s, round_s, calm_s = _batch_times(snapshot, tasks, overheads)
    known = tuple(_completed(task, tasks[task.id], hosted[task.id], batch_s) for task in snapshot.tasks)
    hosts = tuple(_with_cost(manager, managers[manager.id]) for manager in snapshot.task_managers)
    if batch_s:
        elastic = _elastic(snapshot, tasks, overheads, batch_s)
        hosts = tuple(
            replace(host, **_times(host.id, elastic, batch_s, round_s), calm_s=calm_s[host.id])
            if host.id in batch_s
            else host
            for host in hosts
        )
    lessons = Lessons(tasks, readings.windows, managers, overheads, readings.cold)
    return replace(snapshot, task_managers=hosts, tasks=known), lessons


@dataclass(slots=True)
class _Readings:
    """The readings of a cycle, and what they say of task managers."""

    used: dict[str, list[float]]  #: by task manager: CPU of its tasks, measured and predicted
    updated: set[str] = field(default_factory=set)  #: task managers with a new reading
    windows: dict[str, Window | None] = field(default_factory=dict)  #: by instance: of its last reading
    cold: dict[str, int] = field(default_factory=dict)  #: by instance: for how many more readings it is cold

    def note(self, instance: Instance, before: Lessons, *, known: bool) -> bool:
        """Take note of an instance; return whether it has a new reading. `known`: the costs of its task are."""
        window = before.windows.get(instance.id)
        self.windows[instance.id] = instance.window or window  # of a warm-up, too: it must not count later
        starts = known and (instance.warming_up or bool(Freshness.of(instance).missing))
        self.cold[instance.id] = COLD_READINGS if starts else before.cold.get(instance.id, 0)
        return is_new(instance, window)

    def teach(self, lesson: Lesson, instance: Instance) -> Lesson:
        """Return the lesson with the reading of an instance."""
        lesson = _fitted(lesson, instance, cold=self.cold[instance.id] > 0)
        self.cold[instance.id] = max(self.cold[instance.id] - 1, 0)
        if lesson.fit is not None and instance.in_rate > 0.0:
            self.used[instance.task_manager][0] += instance.cpu - _eviction(instance)
            self.used[instance.task_manager][1] += lesson.fit.expected(*_rates(lesson, instance))
            self.updated.add(instance.task_manager)
        return lesson


def completed(lessons: Lessons, earlier: Lessons) -> Lessons:
    """Return `lessons`, completed by those of an earlier process where this one has learned none yet."""
    own = {name: each for name, each in lessons.tasks.items() if each.fit is not None or name not in earlier.tasks}
    managers = {name: each for name, each in lessons.managers.items() if each.value is not None}
    overheads = {name: each for name, each in lessons.overheads.items() if each.count > 0.0}
    return replace(
        lessons,
        tasks={**earlier.tasks, **own},
        managers={**earlier.managers, **managers},
        overheads={**earlier.overheads, **overheads},
    )


def _overheads(
    snapshot: Snapshot, before: Mapping[str, BatchOverhead], updated: Collection[str]
) -> Mapping[str, BatchOverhead]:
    """Return the batch overhead of each task manager that runs micro-batches, with a new reading if it is `updated`."""
    batches: dict[str, float] = {}
    used: dict[str, float] = {}
    for each in snapshot.instances:
        used[each.task_manager] = used.get(each.task_manager, 0.0) + each.cpu
        if (rate := each.batches_per_s) is not None:
            batches[each.task_manager] = batches.get(each.task_manager, 0.0) + rate
    found = {}
    for manager in snapshot.task_managers:
        if manager.id in batches:
            overhead = before.get(manager.id, BatchOverhead())
            beside = max(manager.cpu - (manager.neighbours_cpu or 0.0) - used[manager.id], 0.0)
            found[manager.id] = overhead.after(batches[manager.id], beside) if manager.id in updated else overhead
    return found


def _batch_times(
    snapshot: Snapshot, lessons: Mapping[str, Lesson], overheads: Mapping[str, BatchOverhead]
) -> tuple[Mapping[str, float], Mapping[str, float], Mapping[str, float]]:
    """Return three intervals of batches for each task manager with micro-batches, seconds: the one that plans assume,
    that of batches back to back, and the one at which fixed costs take the share `CALM` of what rows leave.

    Batches that run back to back lengthen by themselves until their fixed costs fit beside the rows: n queries whose
    batches cost c seconds each, beside rows that take the share r of the cores, settle at n c / (1 - r).
    """
    if not overheads:
        return {}, {}, {}
    cores = {manager.id: max(manager.cores, 1e-9) for manager in snapshot.task_managers}
    tasks = {task.id: task for task in snapshot.tasks}
    width = Counter(each.task for each in snapshot.instances)
    empty_s = dict.fromkeys(overheads, 0.0)  # of one batch of each instance without rows
    whole_s = dict.fromkeys(overheads, 0.0)  # the search of the states that accuracy 1 would make
    rows = dict.fromkeys(overheads, 0.0)  # share of the cores that rows take at accuracy 1
    for each in snapshot.instances:
        name, lesson = each.task_manager, lessons[each.task]
        if name not in empty_s or lesson.trigger_s is None or lesson.fit is None:
            continue
        if lesson.trigger_s > LONG_BATCH_S:  # its interval is the user's
            continue
        read, kept, _ = _rates(lesson, each)
        if (external := tasks[each.task].external_rate) is not None:
            read = external / 1000.0 / width[each.task]
        fixed, per_read, per_kept = lesson.fit.costs
        of_one = (fixed + overheads[name].of_a_batch) / 100.0
        rows[name] += (per_read + per_kept) * read / 100.0 / cores[name]
        eviction = lesson.eviction.value or 0.0
        empty_s[name] += (of_one + eviction * kept) / cores[name]
        whole_s[name] += eviction * read / cores[name]
    batch_s, round_s, calm_s = {}, {}, {}
    for name, seconds in empty_s.items():
        left = USABLE - rows[name]
        eviction_s = min(whole_s[name] / EVICTION_SHARE, LONG_BATCH_S)
        fitting_s = min(seconds / max(left, FIXED_SHARE), FITTING_S, max(LONG_BATCH_S, FIXED_THIRD * seconds))
        batch_s[name] = max(BATCH_S, 2.0 * seconds, fitting_s, eviction_s)
        round_s[name] = max(
            batch_s[name], min(seconds / max(left, LEAST_FIXED), max(LONGEST_ROUND_S, seconds / LEAST_FIXED))
        )
        share = min(CALM + CALM_BY_ROWS * rows[name], 1.0)
        calm_s[name] = min(seconds / (share * max(1.0 - rows[name], LEAST_FIXED)), LONGEST_CALM_S)
    return batch_s, round_s, calm_s


def _times(
    manager: str, elastic: Mapping[str, float], batch_s: Mapping[str, float], round_s: Mapping[str, float]
) -> Mapping[str, float]:
    """Return the fields of a task manager with micro-batches."""
    found = {"elastic_cpu": elastic[manager], "batch_s": batch_s[manager]}
    return found | ({"round_s": round_s[manager]} if round_s[manager] > batch_s[manager] else {})


def _elastic(
    snapshot: Snapshot,
    lessons: Mapping[str, Lesson],
    overheads: Mapping[str, BatchOverhead],
    batch_s: Mapping[str, float],
) -> Mapping[str, float]:
    """Return the overhead of the batches that each task manager with micro-batches can do without, % of one core."""
    spare = dict.fromkeys(overheads, 0.0)  # batches/s
    beside = {manager.id: manager.cpu for manager in snapshot.task_managers}
    for each in snapshot.instances:
        beside[each.task_manager] -= each.cpu
        rate, trigger_s = each.batches_per_s, lessons[each.task].trigger_s
        if rate is not None and trigger_s is not None:
            spare[each.task_manager] += rate - 1.0 / max(batch_s[each.task_manager], trigger_s)
    return {
        name: min(overhead.of_a_batch * max(spare[name], 0.0), max(beside[name], 0.0))
        for name, overhead in overheads.items()
    }


def _with_cost(manager: TaskManager, cost: Ratio) -> TaskManager:
    if cost.value is None:
        return manager
    return replace(manager, cost=min(max(cost.value, 1 / MOST), MOST))


def is_new(instance: Instance, window: Window | None) -> bool:
    """Return whether the instance shows a reading of its present run, other than that of this window."""
    freshness = Freshness.of(instance)
    if instance.warming_up or not freshness.is_fresh:
        return False
    return freshness.window is None or freshness.window != window


def _completed(task: Task, lesson: Lesson, instances: Sequence[Instance], batch_s: Mapping[str, float]) -> Task:
    """Return the task with its estimates; `batch_s`: batch interval by task manager with micro-batches."""
    found: dict[str, float] = {}
    if lesson.fit is not None:
        fixed, read, work = lesson.fit.costs
        if lesson.trigger_s is not None:
            assumed_s = min((batch_s.get(i.task_manager, BATCH_S) for i in instances), default=BATCH_S)
            interval_s = max(assumed_s, lesson.trigger_s)
            fixed /= interval_s
            work += 100.0 * (lesson.eviction.value or 0.0) / interval_s
        found = {"fixed_cpu": fixed, "read_us": read * MICROSECONDS, "work_us": work * MICROSECONDS}
    if lesson.time is not None and lesson.trigger_s is not None:
        fixed, read, work = lesson.time.costs
        found |= {"batch_time_s": fixed / 100.0, "read_time_us": read * MICROSECONDS}
        found["work_time_us"] = work * MICROSECONDS
    if lesson.selectivity.value is not None:
        found["selectivity"] = lesson.selectivity.value
    return replace(task, **found)


def _with_passing(lesson: Lesson, task: Task, counts: Mapping[str, Count]) -> Lesson:
    """With the share of rows that passed since the last call."""
    feeds: Sequence[str] = [f"{source}>{task.id}" for source in task.upstream] or [task.id]
    rows = [counts[name] for name in feeds if name in counts]
    books = sum(count.processed for count in rows), sum(count.dropped for count in rows)
    kept, dropped = books[0] - lesson.books[0], books[1] - lesson.books[1]
    if kept < 0 or dropped < 0 or kept + dropped == 0:  # restarted, or no input
        return replace(lesson, books=books)
    return replace(lesson, books=books, passing=kept / (kept + dropped))


def _fitted(lesson: Lesson, instance: Instance, *, cold: bool) -> Lesson:
    if instance.in_rate <= 0.0 or lesson.passing <= 0.0:  # idle, it costs less than the fit says
        return lesson
    batches = instance.batches_per_s
    if batches == 0.0:
        return lesson
    trigger_s = None if batches is None else instance.trigger_s or 0.0
    known = lesson.fit if (trigger_s is None) == (lesson.trigger_s is None) else None  # its mode has changed
    read, kept, _ = _rates(lesson, instance)
    eviction = _eviction(instance)
    cpu = max(instance.cpu - eviction, 0.0)
    fit = CostFit.first(read, kept, cpu, batches) if known is None else known.after(read, kept, cpu, batches, cold=cold)
    if batches is not None:
        lesson = replace(lesson, eviction=lesson.eviction.after(eviction / 100.0 / batches * kept, kept * kept))
        lesson = replace(lesson, time=_timed(lesson.time, instance, read, kept, batches, cold=cold))
    return replace(lesson, fit=fit, trigger_s=trigger_s) if all(isfinite(cost) for cost in fit.costs) else lesson


def _timed(
    known: CostFit | None, instance: Instance, read: float, kept: float, batches: float, *, cold: bool
) -> CostFit | None:
    """Return the fit of the time of an instance's batches, with one more reading, if that tells it."""
    if instance.at_work is None:
        return known
    busy = 100.0 * instance.at_work
    fit = (
        CostFit.first(read, kept, busy, batches) if known is None else known.after(read, kept, busy, batches, cold=cold)
    )
    return fit if all(map(isfinite, fit.costs)) else known


def _eviction(instance: Instance) -> float:
    """Return CPU of its search for expired rows beyond a short one in each batch, % of one core."""
    batches = instance.batches_per_s
    if not batches:
        return 0.0
    each_s = (instance.eviction_cpu or 0.0) / 100.0 / batches - SHORT_SEARCH_S
    return 100.0 * batches * min(max(each_s, 0.0), LONGEST_SEARCH_S * instance.in_rate / 1000.0)


def _rates(lesson: Lesson, instance: Instance) -> tuple[float, float, float | None]:
    """Thousands of rows/s that an instance read and kept, and its micro-batches/s (None: real-time mode)."""
    kept = instance.in_rate / 1000.0
    return kept / max(lesson.passing, LEAST_PASSING), kept, instance.batches_per_s
