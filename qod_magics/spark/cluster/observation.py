"""Builds the snapshot for the policy from readings. Pure.

A value that is not known now is never read as 0 and never guessed silently: the last known one is held and the
instance says so (`stale`, with its age); if there never was one, the instance is assumed to read its share of
its task's input and to use no CPU, and `missing` names both.

Batches report when they end: in real-time mode every five seconds, even without rows. So the last reading may predate
the present input. The rate of such a reading says nothing about that input: it counts as missing, and its CPU as
stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qod_magics.core.runtime import Count, Event, Measured, Observation
from qod_magics.core.snapshot import Freshness, Instance, Snapshot, Stream, Task, TaskManager
from qod_magics.spark.queries.meter import MeterReading

#: A reading over a window with less than this share of the present input rate does not represent that input.
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
    fields: Mapping[str, Any] = field(default_factory=dict)  #: optional fields of its row
    came: float | None = None  #: input rate of its task over the reading's window, rows/s; None: unknown


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
    comes: float = 0.0  #: present input rate of its feeds, rows/s, as far as known
    fields: Mapping[str, Any] = field(default_factory=dict)  #: optional fields of its row


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
    late: Mapping[str, int] | None = None,
) -> Observation:
    """Return the snapshot and the measurements beside it. `tasks` are in order, inputs first."""
    by_task: dict[str, list[InstanceView]] = {task.id: [] for task in tasks}
    for view in instances:
        by_task[view.task].append(view)
    out_rate: dict[str, float] = {}
    rows: list[Instance] = []
    fresh: dict[str, bool] = {}
    unmeasured: set[str] = set()  #: tasks with an instance whose rate is unknown
    for task in tasks:
        views = by_task[task.id]
        above = not unmeasured.isdisjoint(task.upstream)
        representative = {view.id for view in views if _represents(view, task.comes, len(views), above)}
        if len(representative) < len(views):
            unmeasured.add(task.id)
        known = [view.reading for view in views if view.reading is not None]
        if task.upstream:
            expected = sum(out_rate[upstream] for upstream in task.upstream)
        elif task.external_rate is not None:
            expected = task.external_rate
        else:
            expected = sum(reading.read_rate for reading in known)
        share = expected / max(len(views), 1)
        out_rate[task.id] = sum(
            view.reading.out_rate if view.reading and view.id in representative else share for view in views
        )
        for view in views:
            instance = _instance(view, view.id in representative, share, fresh_for_s)
            fresh[view.id] = Freshness.of(instance).is_fresh
            rows.append(instance)
    snapshot = Snapshot(
        task_managers=tuple(task_managers),
        tasks=tuple(
            Task(t.id, t.upstream, t.external_rate if not t.upstream else None, t.priority, t.min_accuracy, **t.fields)
            for t in tasks
        ),
        streams=tuple(
            Stream(u, t.id, out_rate[u], bytes_per_s(out_rate[u], t.feeds.get(f"{u}>{t.id}", ""), by_task[t.id]))
            for t in tasks
            for u in t.upstream
        ),
        instances=tuple(rows),
    )
    dropped = {name: count.dropped + dropped_sending.get(name, 0) for name, count in counts.items()}
    measured = Measured(
        lag=lag,
        input_rate=input_rate,
        accuracy=measured_accuracy(tasks, by_task),
        dropped=dropped,
        counts=counts,
        latency_s={t.id: t.fields["latency_p95_s"] for t in tasks if "latency_p95_s" in t.fields},
        late=late or {},
    )
    return Observation(snapshot, measured, events, fresh)


def bytes_per_s(rate: float, topic: str, readers: Sequence[InstanceView]) -> float | None:
    """Return the bytes/s of a stream of this rate, rows/s, by the mean size of the rows that its readers have read of
    its topic; None while they have read none."""
    sizes = [
        (view.reading.row_bytes[topic], view.reading.read.get(topic, 0) or 1)
        for view in readers
        if view.reading is not None and topic in view.reading.row_bytes
    ]
    rows = sum(count for _, count in sizes)
    return rate * sum(size * count for size, count in sizes) / rows if rows else None


def measured_accuracy(
    tasks: Sequence[TaskView], by_task: Mapping[str, Sequence[InstanceView]]
) -> dict[str, float | None]:
    """Return the share of the application's input that reached each task, over the rows read.

    At a source it is rows kept / read, downstream the mean over its streams of their sender's accuracy times the
    shares sent and kept, weighted by rows; None without input. Backlog is lag, not loss.
    """
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


def _represents(view: InstanceView, comes: float, width: int, above: bool) -> bool:
    """Return whether its reading represents the present input: `comes` rows/s for all `width` instances.

    `above`: an upstream task's rate is unknown, so its present output may not have reached this task yet.
    """
    reading = view.reading
    if reading is None or (above and reading.read_rate == 0.0):
        return False
    if view.came is None or comes <= 0.0:
        return True
    return max(view.came, reading.read_rate * width) >= TELLING * comes


def _instance(view: InstanceView, representative: bool, share: float, fresh_for_s: float) -> Instance:
    fields = dict(view.fields)
    reading = view.reading
    if reading is None:
        return Instance(view.id, view.task, view.task_manager, share, 0.0, False, **fields, missing=("in_rate", "cpu"))
    fields["window"] = (round(reading.since, 3), round(reading.at, 3))
    if not representative or not view.current or reading.cpu_held or view.age_s > fresh_for_s:
        fields |= {"stale": True, "age_s": round(view.age_s, 1)}
    missing = tuple(
        name for name, known in (("in_rate", representative), ("cpu", reading.cpu is not None)) if not known
    )
    in_rate = reading.in_rate if representative else share
    return Instance(
        view.id, view.task, view.task_manager, in_rate, reading.cpu or 0.0, False, **fields, missing=missing
    )
