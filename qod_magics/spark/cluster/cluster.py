"""Hold the state of the live runtime: task managers, instances, dials, row accounting and events. Starts no threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from qod_magics.application.streams.rules import Rule
from qod_magics.core.runtime import Event, Placer
from qod_magics.errors import TaskManagerError, nearest
from qod_magics.spark.cluster.books import (
    Incomplete,
    MalformedReports,
)
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.plans.dial import MOST_S, DialBoard
from qod_magics.spark.plans.pipeline import Workshop
from qod_magics.spark.queries.instance import REALTIME_BATCH_S, Instance
from qod_magics.spark.servers.task_manager import STARTS_S, TaskManager

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts for servers and queries, seconds."""

    batch_s: float = REALTIME_BATCH_S  #: for the end of a batch that can't be held
    late_s: float = 1.5  #: longer than that, as it may end later than it is due
    step_s: float = 120.0  #: for a step of a deployment, on all its instances at once
    drain_s: float = 60.0  #: for a task to read its topics to the end; the tasks before it stand still meanwhile
    stop_s: float = 20.0  #: for a run to end, before that is reported as slow
    untold_s: float = 8.0  #: for a failure, on a server that does not tell whether a run works
    removal_s: float = 60.0  #: for all instances to leave a task manager that is removed
    stalled_s: float = 60.0  #: for a batch to end in real-time mode, where one ends every few seconds, rows or none
    silence_s: float = (
        15.0  #: for an answer of the user's server, before it is reported; it is lost once it is gone, too
    )
    #: without a batch written though rows wait, for one that does not answer: it is lost then, whatever stays connected
    lease_s: float = 60.0
    hung_s: float = 30.0  #: for an answer of a local server that is idle, before it is killed
    #: for an answer of a server that was lost by its lease: by then it has ended our session itself
    asked_s: float = 3600.0
    starts_s: float = STARTS_S  #: of a start, for those that shuffle into another number of partitions


@dataclass(frozen=True, slots=True)
class Before:
    """What ran before a change, which `Cluster.restore` puts back if the change fails."""

    deployment: Deployment
    instances: Mapping[str, Instance]
    dials: Mapping[str, float]
    own_source: Mapping[str, list[int]]  #: the lists themselves, in which tasks that run on count on
    incomplete: Incomplete


@dataclass(slots=True)
class Cluster:
    """The state that observing, acting and recovering share, behind one lock."""

    deployment: Deployment
    board: DialBoard
    kafka_options: Mapping[str, str] = field(repr=False)  #: of Spark's Kafka source and sink; may hold passwords
    place: Placer
    period_s: float
    task_managers: dict[str, TaskManager] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    dials: dict[str, float] = field(default_factory=dict)  #: desired value of every dial, by key
    cpu: dict[str, float] = field(default_factory=dict)  #: last CPU of each task manager, % of one core
    neighbours: dict[str, float] = field(default_factory=dict)  #: the part of it that other programs use
    incomplete: Incomplete = field(default_factory=Incomplete)  #: what the results of tasks lack
    own_source: dict[str, list[int]] = field(default_factory=dict)  #: rows kept and dropped, tasks with own sources
    missing_topics: Mapping[str, str] = field(default_factory=dict)  #: topics without offsets now, and why
    silent_kafka: Mapping[str, str] = field(default_factory=dict)  #: addresses of clusters without an answer, and why
    malformed: MalformedReports = field(default_factory=MalformedReports)
    broken: dict[str, dict[Rule, int]] = field(default_factory=dict)  #: by stream, rows that break each of its rules
    events: list[Event] = field(default_factory=list)  #: since the last observation
    leftover_topics: set[str] = field(default_factory=set)  #: topics that could not be deleted when they were left
    lingering: list[Instance] = field(default_factory=list)  #: stopped by a deployment; their runs may not have ended
    holding: dict[str, float] = field(default_factory=dict)  #: paces of instances that are stopped between batches
    leaving: set[str] = field(default_factory=set)  #: task managers being removed: no new instances
    patience: Patience = field(default_factory=Patience)
    #: called before each start of a query; raises QodError where this kernel may not start one
    before_start: Callable[[], object] = lambda: None
    make: Callable[..., Instance] = Instance  #: makes the instances of deployments and changes
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def all_instances(self) -> list[Instance]:
        """Return a copy of the instances, which may change meanwhile."""
        return list(self.instances.values())

    def event(self, kind: str, **detail: Any) -> None:
        """Keep an event for the next observation; details that are None are left out."""
        self.add(Event(kind, {k: v for k, v in detail.items() if v is not None}))

    def add(self, event: Event) -> None:
        """Keep an event for the next observation."""
        LOG.info("%s: %s", event.kind, event.detail)
        with self.lock:
            self.events.append(event)

    def manager(self, id: str) -> TaskManager:
        """Return the task manager of this id. Raises TaskManagerError, with the nearest id, when there is none."""
        try:
            return self.task_managers[id]
        except KeyError:
            raise TaskManagerError(
                f"There is no task manager {id!r}.{nearest(id, self.task_managers)}", name=id, rule="exists"
            ) from None

    def has(self, manager: TaskManager) -> bool:
        """Return whether a task manager is one of these: it has not been lost or removed."""
        return self.task_managers.get(manager.id) is manager

    def is_up(self, manager: TaskManager | None) -> bool:
        """Return whether a task manager is one of these and not being removed."""
        return manager is not None and self.has(manager) and manager.id not in self.leaving

    def answering(self) -> list[TaskManager]:
        """Return the live task managers that answered the last poll; all live ones if none did."""
        alive = [manager for manager in list(self.task_managers.values()) if manager.alive()]
        return [manager for manager in alive if manager.silent_since is None] or alive

    def workshop(self, manager: TaskManager | None = None) -> Workshop:
        """Return what builds plans on a task manager, by default on the first that answers, else the first that is
        alive. Raises TaskManagerError if there is none."""
        manager = manager or self.home()
        return manager.workshop(self.board, self.kafka_options, self.deployment.sources)

    def home(self) -> TaskManager:
        """Return the first task manager that answers, else the first that is alive. Raises TaskManagerError: there is
        none."""
        manager = next(iter(self.answering()), None)
        if manager is None:
            raise TaskManagerError("No task manager is up: `%qod up` starts one, `%qod add-tm` adds one.")
        return manager

    def dials_of(self, instance: Instance) -> dict[str, float]:
        """Return the desired values of the dials in this instance's plan, fractions of 1, by key."""
        task = instance.job.task
        keys = [self.board.accuracy(task)]
        keys += (
            [self.board.accept(task)] if any(feed.stream for feed in instance.job.feeds) else [self.board.source(task)]
        )
        keys += [self.board.send(name) for name in instance.job.outlets]
        keys += [
            self.board.lent(name, partition)
            for name, (_, partitions, _) in zip(instance.job.outlets, instance.job.topics, strict=True)
            if name in instance.job.lends
            for partition in range(partitions)
        ]
        since = {instance.job.weighed_since, *(feed.weighed_since for feed in instance.job.feeds)}
        keys += [self.board.accuracy(made) for made in since if made is not None]
        if instance.is_paced:
            keys.append(self.board.pace(instance.id))
        if instance.takes_turns:
            keys.append(self.board.due(instance.id))
        wanted = {key: self.dials.get(key, 1.0) for key in keys}
        pace = self.holding.get(instance.id)
        return wanted if pace is None else {**wanted, self.board.pace(instance.id): pace}

    def delay_s(self, instance: Instance) -> float:
        """Return the seconds by which each of its batches is delayed now."""
        return MOST_S * (1.0 - self.dials.get(self.board.pace(instance.id), 1.0))

    # -- changes: the lock is held, or it is one operation on one field ------------------------------------------------

    def join(self, manager: TaskManager) -> None:
        """Add a task manager."""
        self.task_managers[manager.id] = manager
        self.cpu[manager.id] = 0.0

    def part_from(self, id: str) -> bool:
        """Remove a task manager; return whether it was there."""
        self.cpu.pop(id, None)
        self.neighbours.pop(id, None)
        return self.task_managers.pop(id, None) is not None

    def begin_leaving(self, ids: Iterable[str]) -> None:
        """Start no instance on these task managers any more."""
        self.leaving |= set(ids)

    def end_leaving(self, id: str) -> None:
        """Start instances there again, if it is still up."""
        self.leaving.discard(id)

    def measured(self, id: str, cpu: float, neighbours: float | None = None) -> None:
        """Note the CPU of a task manager, % of one core, and the part of it that other programs use, if known."""
        self.cpu[id] = cpu
        if neighbours is not None:
            self.neighbours[id] = neighbours

    def place_by(self, placer: Placer) -> None:
        """Ask this one where instances start, from now on."""
        self.place = placer

    def average_over(self, seconds: float) -> None:
        """Take rates over this window, from now on."""
        self.period_s = seconds

    def put(self, instances: Iterable[Instance]) -> None:
        """Add instances, in the places of those of the same names."""
        self.instances.update((instance.id, instance) for instance in instances)

    def drop(self, id: str) -> None:
        """Remove an instance, whose query has been stopped, and the dials of its batches."""
        del self.instances[id]
        for key in (self.board.pace(id), self.board.due(id)):
            self.dials.pop(key, None)

    def want(self, dials: Mapping[str, float]) -> None:
        """Set desired values of dials."""
        self.dials |= dials

    def forget_dials(self, keys: Iterable[str]) -> None:
        """Remove dials."""
        for key in keys:
            self.dials.pop(key, None)

    def forget_task(self, task: str) -> None:
        """Remove a task's instances, whose queries have been stopped, the dials of their batches, and its row
        counts."""
        for instance in self.instances_of(task):
            self.drop(instance.id)
        self.own_source.pop(task, None)
        self.incomplete.forget(task)

    def before(self) -> Before:
        """Return what runs now, for `restore`."""
        with self.lock:
            copy, incomplete = self.deployment.copy(), self.incomplete.copy()
            return Before(copy, dict(self.instances), dict(self.dials), dict(self.own_source), incomplete)

    def restore(self, before: Before) -> set[str]:
        """Return to what ran `before`, and keep what was counted since; returns topics that are not needed."""
        self.instances.clear()
        self.instances.update(before.instances)
        self.dials = dict(before.dials)
        counted = {task: rows for task, rows in self.own_source.items() if task in before.deployment.specs}
        self.own_source = {**counted, **before.own_source}
        self.incomplete.restore(before.incomplete)
        return self.deployment.restore(before.deployment)

    def clear(self) -> None:
        """Forget all task managers and instances: the session ends."""
        self.instances.clear()
        self.task_managers.clear()

    def pause(self, id: str, pace: float) -> None:
        """Hold an instance's next batch by this value of its dial, whatever plans say."""
        self.holding[id] = pace

    def go_on(self, id: str) -> None:
        """Hold an instance no longer."""
        self.holding.pop(id, None)

    def linger(self, instance: Instance) -> None:
        """Keep an instance whose run could not be stopped."""
        self.lingering.append(instance)

    def keep_lingering(self, which: Callable[[Instance], bool]) -> list[Instance]:
        """Keep those of which this holds; returns them."""
        self.lingering = [instance for instance in self.lingering if which(instance)]
        return list(self.lingering)

    def ask_before_starts(self, call: Callable[[], object]) -> None:
        """Call this before each start of a query, from now on; it raises QodError where none may start."""
        self.before_start = call

    def add_own_rows(self, task: str, kept: int, dropped: int) -> None:
        """Count rows of a task with a source of its own."""
        own = self.own_source.setdefault(task, [0, 0])
        own[0] += kept
        own[1] += dropped

    def add_late(self, task: str, late: int, grouped: bool, watermark: str | None) -> None:
        """Count the rows of a batch that came behind the watermark."""
        self.incomplete.add(task, late, grouped, watermark)

    def add_broken(self, stream: str, rule: Rule, rows: int) -> None:
        """Count rows of a stream that break a rule."""
        known = self.broken.setdefault(stream, {})
        known[rule] = known.get(rule, 0) + rows

    def due(self, kind: str, rows: int, now: float) -> int:
        """Count rows of a kind that is reported from time to time; return how many are to be reported now."""
        return self.malformed.add(kind, rows, now)

    def count_own_rows(self, task: str, kept: int, dropped: int) -> None:
        """Go on with these counts of a task with a source of its own."""
        self.own_source[task] = [kept, dropped]

    def went_behind(self, task: str, late: int) -> None:
        """Go on with a task's count of rows that came behind its watermark: at least so many."""
        self.incomplete.add(task, late, grouped=True)

    def leave_topics(self, topics: Iterable[str]) -> None:
        """Keep topics that could not be deleted, for the end of the session."""
        self.leftover_topics.update(topics)

    def take_leftover(self) -> set[str]:
        """Return those topics, once."""
        left, self.leftover_topics = self.leftover_topics, set()
        return left

    def miss(self, topics: Mapping[str, str]) -> Mapping[str, str]:
        """Note the topics that have no offsets now, and why; returns those of before."""
        before, self.missing_topics = self.missing_topics, topics
        return before

    def fall_silent(self, clusters: Mapping[str, str]) -> Mapping[str, str]:
        """Note the addresses of the Kafka clusters that do not answer now, and why; returns those of before."""
        before, self.silent_kafka = self.silent_kafka, clusters
        return before

    def take_events(self) -> tuple[Event, ...]:
        """Return the events since the last call."""
        events, self.events = tuple(self.events), []
        return events

    def instances_of(self, task: str) -> list[Instance]:
        """Return a task's instances, in the order of their numbers."""
        return sorted((i for i in self.all_instances if i.job.task == task), key=lambda i: i.job.index)

    def drop_instances(self, task: str) -> None:
        """Remove a task's instances, whose queries have been stopped, before they are made again: the dials of their
        batches stay."""
        for instance in self.instances_of(task):
            del self.instances[instance.id]
