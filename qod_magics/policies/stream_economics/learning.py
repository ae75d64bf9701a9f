"""What is learned of each task from cycle to cycle: its costs, and how many rows it sends for each that it keeps. Pure.

A reading counts once, when its window is new, and only if it is of the present run of an instance that does not warm
up: a start costs more than what it starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from qod_magics.core.optional import FIXED_CPU, READ_COST, SELECTIVITY, WORK_COST
from qod_magics.core.runtime import Count, Measured
from qod_magics.core.snapshot import Instance, Snapshot, Task
from qod_magics.policies.stream_economics.cost_fit import CostFit

#: Of the rows that a selectivity was learned from, so much counts beside the next.
SELECTIVITY_REMEMBERED = 0.8
#: % of one core for each 1000 rows/s is so many microseconds a row.
MICROSECONDS = 10.0

Books = tuple[int, int]  #: rows processed and dropped since the start


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is known of one task."""

    fit: CostFit | None = None  #: None: no reading with rows yet
    kept: float = 0.0  #: rows/s, summed with weights, and what was sent for them
    sent: float = 0.0
    passing: float = 1.0  #: share of the rows read that passed the shedders at its reading end, when last some came
    books: Books = (0, 0)


@dataclass(frozen=True, slots=True)
class Lessons:
    """What is known of all tasks, and which readings it is from."""

    tasks: Mapping[str, Lesson] = field(default_factory=dict)
    windows: Mapping[str, Any] = field(default_factory=dict)  #: by instance: that of its last reading


def learn(snapshot: Snapshot, measured: Measured, memory: Lessons | None) -> tuple[Snapshot, Lessons]:
    """`snapshot` with `fixed_cpu`, `read_us`, `work_us` and `selectivity` of the tasks of which they are known.

    Tasks that are gone are forgotten.
    """
    before = memory if memory is not None else Lessons()
    hosted: dict[str, list[Instance]] = {task.id: [] for task in snapshot.tasks}
    for instance in snapshot.instances:
        hosted[instance.task].append(instance)
    out_rate = {stream.source: stream.out_rate for stream in snapshot.streams}
    counts: Mapping[str, Count] = measured.counts
    tasks: dict[str, Lesson] = {}
    windows: dict[str, Any] = {}
    known = []
    for task in snapshot.tasks:
        instances = hosted[task.id]
        lesson = _balanced(before.tasks.get(task.id, Lesson()), task, counts)
        new = [each for each in instances if is_new(each, before.windows.get(each.id))]
        for each in instances:
            window = each.extra.get("window") if each in new else before.windows.get(each.id)
            if window is not None:
                windows[each.id] = window
        for each in new:
            lesson = _fitted(lesson, each)
        if task.id in out_rate and new and len(new) == len(instances):
            lesson = _sending(lesson, sum(each.in_rate for each in instances), out_rate[task.id])
        tasks[task.id] = lesson
        known.append(completed(task, lesson))
    return replace(snapshot, tasks=tuple(known)), Lessons(tasks, windows)


def is_new(instance: Instance, window: Any) -> bool:
    """Whether the instance shows a reading of its present run that is not the one of this window."""
    extra = instance.extra
    if instance.warming_up or extra.get("stale") or extra.get("missing"):
        return False
    shown = extra.get("window")
    return shown is None or shown != window


def completed(task: Task, lesson: Lesson) -> Task:
    """The task with what the lesson says of it."""
    extra = dict(task.extra)
    if lesson.fit is not None:
        fixed, read, work = lesson.fit.costs
        extra[FIXED_CPU.name] = fixed
        extra[READ_COST.name] = read * MICROSECONDS
        extra[WORK_COST.name] = work * MICROSECONDS
    if lesson.kept > 0.0:
        extra[SELECTIVITY.name] = lesson.sent / lesson.kept
    return replace(task, extra=extra)


def _balanced(lesson: Lesson, task: Task, counts: Mapping[str, Count]) -> Lesson:
    """With the share of rows that passed since the last look."""
    feeds: Sequence[str] = [f"{source}>{task.id}" for source in task.upstream] or [task.id]
    rows = [counts[name] for name in feeds if name in counts]
    books = sum(count.processed for count in rows), sum(count.dropped for count in rows)
    kept, dropped = books[0] - lesson.books[0], books[1] - lesson.books[1]
    if kept < 0 or dropped < 0 or kept + dropped == 0:  # begun again, or nothing came
        return replace(lesson, books=books)
    return replace(lesson, books=books, passing=kept / (kept + dropped))


def _fitted(lesson: Lesson, instance: Instance) -> Lesson:
    kept, cpu = instance.in_rate / 1000.0, instance.cpu
    if kept <= 0.0 or lesson.passing <= 0.0:  # without a row it idles, and costs less than the line says
        return lesson
    read = kept / lesson.passing
    fit = CostFit.first(read, kept, cpu) if lesson.fit is None else lesson.fit.after(read, kept, cpu)
    if not all(isfinite(cost) for cost in fit.costs):
        return lesson
    return replace(lesson, fit=fit)


def _sending(lesson: Lesson, kept: float, sent: float) -> Lesson:
    if kept <= 0.0:
        return lesson
    return replace(
        lesson,
        kept=SELECTIVITY_REMEMBERED * lesson.kept + kept,
        sent=SELECTIVITY_REMEMBERED * lesson.sent + sent,
    )
