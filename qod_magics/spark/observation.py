"""From readings to a snapshot. Pure: what was measured comes in, what a policy may know goes out.

A value that is not known now is never read as 0 and never guessed silently: the last known one is held and the
instance's `extra` says so ("stale", with its age); where there never was one, the instance is taken to read what its
task's input brings and to use no CPU, and "missing" names both.

Batches report when they end: in real-time mode every five seconds, also those without a row. So the last reading may be
of a time before the present input came. Such a reading's rate says nothing about that input: it counts as missing, and
the CPU beside it as stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qod_magics.core.freshness import Freshness
from qod_magics.core.runtime import Count, Event, Measured, Observation
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager
from qod_magics.spark.meter import MeterReading

#: A reading of a time in which less than this share of the present input came is no measure of that input.
TELLING = 0.1


@dataclass(frozen=True, slots=True)
class InstanceView:
    """One instance, as far as a snapshot needs it."""

    id: str
    task: str
    task_manager: str
    reading: MeterReading | None  #: of the present run, or the last one held
    current: bool  #: whether the reading is of the present run
    age_s: float  #: of the reading
    extra: Mapping[str, Any] = field(default_factory=dict)
    came: float | None = None  #: rows/s that reached its task over the time of the reading; None: not known


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task: its place in the DAG and its feeds."""

    id: str
    upstream: tuple[str, ...]
    priority: int | None
    min_accuracy: float | None
    feeds: Mapping[str, str]  #: topic by feed name: the task itself for a source, "from>to" for a stream
    outlets: tuple[str, ...]  #: outgoing streams "from>to", in the order of `Reading.sent`
    external_rate: float | None  #: rows/s, sources with a topic
    comes: float = 0.0  #: rows/s that reach its feeds now, as far as known


def observation(
    task_managers: Sequence[TaskManager],
    tasks: Sequence[TaskView],
    instances: Sequence[InstanceView],
    *,
    lag: Mapping[str, int],
    input_rate: Mapping[str, float],
    counts: Mapping[str, Count],
    dropped_sending: Mapping[str, int],
    fresh_for_s: float,
    events: tuple[Event, ...],
) -> Observation:
    """The snapshot and what was measured beside it. `tasks` come inputs first."""
    by_task: dict[str, list[InstanceView]] = {task.id: [] for task in tasks}
    for view in instances:
        by_task[view.task].append(view)
    arriving: dict[str, float] = {}  #: by task, rows/s before its share of them is lost
    out_rate: dict[str, float] = {}
    rows: list[Instance] = []
    fresh: dict[str, bool] = {}
    unmeasured: set[str] = set()  #: tasks of which some instance's rate is not known
    for task in tasks:
        views = by_task[task.id]
        above = not unmeasured.isdisjoint(task.upstream)
        telling = {view.id for view in views if _tells(view, task.comes, len(views), above)}
        if len(telling) < len(views):
            unmeasured.add(task.id)
        known = [view.reading for view in views if view.reading is not None]
        if task.upstream:
            expected = sum(out_rate[upstream] for upstream in task.upstream)
        elif task.external_rate is not None:
            expected = task.external_rate
        else:
            expected = sum(reading.read_rate for reading in known)
        arriving[task.id] = expected
        share = expected / max(len(views), 1)
        out_rate[task.id] = sum(
            view.reading.out_rate if view.reading and view.id in telling else share for view in views
        )
        for view in views:
            instance = _instance(view, view.id in telling, share, fresh_for_s)
            fresh[view.id] = Freshness.of(instance).is_fresh
            rows.append(instance)
    snapshot = Snapshot(
        task_managers=tuple(task_managers),
        tasks=tuple(
            Task(t.id, t.upstream, t.external_rate if not t.upstream else None, t.priority, t.min_accuracy)
            for t in tasks
        ),
        streams=tuple(Stream(u, t.id, out_rate[u]) for t in tasks for u in t.upstream),
        instances=tuple(rows),
    )
    dropped = {name: count.dropped + dropped_sending.get(name, 0) for name, count in counts.items()}
    measured = Measured(
        lag=lag,
        input_rate=input_rate,
        accuracy=measured_accuracy(tasks, by_task),
        dropped=dropped,
        counts=counts,
    )
    return Observation(snapshot, measured, events, fresh)


def measured_accuracy(
    tasks: Sequence[TaskView], by_task: Mapping[str, Sequence[InstanceView]]
) -> dict[str, float | None]:
    """By task, the share of the application's input that reached it, of the rows that were read: at a source rows
    kept / read; further down the mean over its streams of what their senders kept of that, weighted by their rows.
    None without input. Rows that wait are lag, not loss."""
    accuracy: dict[str, float | None] = {}
    sent_share: dict[str, float] = {}
    out_rows: dict[str, int] = {}
    for task in tasks:
        readings = [view.reading for view in by_task[task.id] if view.reading is not None]
        out_rows[task.id] = sum(reading.out for reading in readings)
        for position, outlet in enumerate(task.outlets):
            sent = sum(reading.sent.get(str(position), 0) for reading in readings)
            sent_share[outlet] = sent / out_rows[task.id] if out_rows[task.id] else 1.0
        if not task.upstream:
            topics = set(task.feeds.values()) or {topic for reading in readings for topic in reading.read}
            accuracy[task.id] = _kept(readings, topics)
            continue
        total = weight = 0.0
        for upstream in task.upstream:
            name = f"{upstream}>{task.id}"
            kept = _kept(readings, {task.feeds[name]})
            before = accuracy[upstream]
            if kept is None or before is None:
                continue
            rows = float(out_rows[upstream])
            total += rows * before * sent_share.get(name, 1.0) * kept
            weight += rows
        accuracy[task.id] = total / weight if weight else None
    return accuracy


def _kept(readings: Sequence[MeterReading], topics: set[str]) -> float | None:
    read = sum(n for reading in readings for topic, n in reading.read.items() if topic in topics)
    kept = sum(n for reading in readings for topic, n in reading.kept.items() if topic in topics)
    return kept / read if read else None


def _tells(view: InstanceView, comes: float, width: int, above: bool) -> bool:
    """Whether its reading says which share of the present input it reads: `comes` rows/s for all `width` instances.

    `above`: an upstream task's rate is not known, so that what it sends now may not have reached this one yet.
    """
    reading = view.reading
    if reading is None or (above and reading.read_rate == 0.0):
        return False
    if view.came is None or comes <= 0.0:
        return True
    return max(view.came, reading.read_rate * width) >= TELLING * comes


def _instance(view: InstanceView, telling: bool, share: float, fresh_for_s: float) -> Instance:
    extra = dict(view.extra)
    reading = view.reading
    if reading is None:
        extra["missing"] = ["in_rate", "cpu"]
        return Instance(view.id, view.task, view.task_manager, share, 0.0, False, extra)
    extra["window"] = [round(reading.since, 3), round(reading.at, 3)]
    if not telling or not view.current or reading.cpu_held or view.age_s > fresh_for_s:
        extra["stale"] = True
        extra["age_s"] = round(view.age_s, 1)
    missing = [name for name, known in (("in_rate", telling), ("cpu", reading.cpu is not None)) if not known]
    if missing:
        extra["missing"] = missing
    in_rate = reading.in_rate if telling else share
    return Instance(view.id, view.task, view.task_manager, in_rate, reading.cpu or 0.0, False, extra)
