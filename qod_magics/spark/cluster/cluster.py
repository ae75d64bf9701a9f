"""Hold the state of the live runtime: task managers, instances, dials, row accounting and events. Starts no threads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from qod_magics.application.streams.rules import Broken, Rule, RuleCount, broken_text
from qod_magics.core import snapshot as core
from qod_magics.core.runtime import Event, Placer, Unplaced
from qod_magics.errors import TaskManagerError, nearest
from qod_magics.formats.format import why_malformed
from qod_magics.lifecycle.events import FirstReported, State, Tell
from qod_magics.spark.cluster.books import (
    Incomplete,
    MalformedReports,
    deleted_text,
    implausible_text,
    is_cut,
    late_text,
    malformed_event,
    malformed_text,
)
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.cluster.observation import InstanceView
from qod_magics.spark.cluster.repeats import again_text
from qod_magics.spark.plans.dial import MOST_S, DialBoard
from qod_magics.spark.plans.job import reader
from qod_magics.spark.plans.pipeline import Workshop
from qod_magics.spark.queries import slots
from qod_magics.spark.queries.checkpoints import committed_ms, local_path, reached
from qod_magics.spark.queries.instance import REALTIME_BATCH_S, Instance
from qod_magics.spark.queries.progress import Batch
from qod_magics.spark.queries.slot_time import Key, Run, shared_out, spent
from qod_magics.spark.servers.conf import REPORTS_KEPT
from qod_magics.spark.servers.cpu import TaskTime
from qod_magics.spark.servers.task_manager import TaskManager

LOG = logging.getLogger(__name__)

#: Periods over which CPU not used by tasks is averaged. Even, so that the error which an alternating plan causes (cores
#: and tasks are not measured over the same seconds) cancels out instead of keeping the plan alternating.
OTHERS_PERIODS = 4
#: Bytes of a megabyte.
MB = 1e6


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

    def is_up(self, manager: TaskManager | None) -> bool:
        """Return whether a task manager is up and not being removed."""
        return manager is not None and self.task_managers.get(manager.id) is manager and manager.id not in self.leaving

    def answering(self) -> list[TaskManager]:
        """Return the live task managers that answered the last poll; all live ones if none did."""
        alive = [manager for manager in list(self.task_managers.values()) if manager.alive()]
        return [manager for manager in alive if manager.silent_since is None] or alive

    def workshop(self, manager: TaskManager | None = None) -> Workshop:
        """Return what builds plans on a task manager, by default on the first that answers, else the first that is
        alive. Raises TaskManagerError if there is none."""
        manager = manager or self.home()
        return Workshop(
            manager.workbench(),
            self.board,
            manager.reading,
            manager.dials,
            self.kafka_options,
            manager.sheds_on_read,
            self.deployment.sources,
        )

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
        """Remove a task's instances, whose queries have been stopped, and its row counts."""
        self.forget(task)
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

    def take_events(self) -> tuple[Event, ...]:
        """Return the events since the last call."""
        events, self.events = tuple(self.events), []
        return events

    def instances_of(self, task: str) -> list[Instance]:
        """Return a task's instances, in the order of their numbers."""
        return sorted((i for i in self.all_instances if i.job.task == task), key=lambda i: i.job.index)

    def forget(self, task: str) -> None:
        """Remove a task's instances, whose queries have been stopped."""
        for instance in self.instances_of(task):
            del self.instances[instance.id]

    def take(self, instance: Instance) -> None:
        """Enter an instance's reported batches in the row accounting, each once; its first batch completes a move."""
        with self.lock:
            names = {feed.topic: feed.name for feed in instance.job.feeds}
            for batch in instance.take_reported():
                times = 1.0  #: that the counts of a first batch, which does not say where it began, hold each row
                for feed in batch.feeds:
                    account = self.deployment.accounts.get(names.get(feed.topic, ""))
                    if account is not None and account.topic == feed.topic:  # not of a stream of this name since
                        times = max(times, account.take(feed, batch.end))
                    elif not instance.job.feeds:
                        own = self.own_source.setdefault(instance.job.task, [0, 0])
                        own[0] += feed.kept or 0
                        own[1] += (feed.read or 0) - (feed.kept or 0)
                for position, name in enumerate(instance.job.outlets):
                    account = self.deployment.accounts.get(name)
                    if account is not None:
                        account.dropped_before += round((batch.out - batch.sent.get(str(position), 0)) / times)
                self._note_misfits(instance, batch)
                self._note_broken(instance.job.task, batch.broken)
            missed = instance.take_missed()
            if missed and not instance.job.feeds:  # with Kafka, the offsets give the number of rows
                self.event(
                    "reports-missing",
                    instance=instance.id,
                    batches=missed,
                    why=f"{missed} {'batches' if missed > 1 else 'batch'} ended between two polls, and Spark keeps "
                    f"{REPORTS_KEPT} reports: their rows are in the results, but not counted",
                )
            reading = instance.reading(self.period_s) if instance.move is not None else None
            if reading is not None:
                for each in instance.handle(FirstReported(time.time() - reading.first_batch_at)):
                    if isinstance(each, Tell):
                        self.event(each.kind, instance=instance.id, **each.detail)

    def reports_ended(self, instance: Instance) -> None:
        """Count the rows of batches that ended, but were not reported, of an instance that has ended and all of whose
        reports have been taken: a new checkpoint begins where the old one is."""
        if (at := reached(instance.checkpoint)) is None:
            return
        with self.lock:
            for feed in instance.job.feeds:
                account = self.deployment.accounts.get(feed.name)
                if account is not None and account.topic == feed.topic:
                    ended = at.ended.get(feed.topic, {})
                    account.go_on({p: offset for p, offset in ended.items() if p in feed.partitions}, 0)

    def run_ended(self, instance: Instance) -> None:
        """Note that no run of an instance is under way: count the rows of a batch that did not end, which the next run
        reads again, and have those looked for that it has sent (`Repeats`)."""
        with self.lock:
            if instance.take_interrupted() and (at := reached(instance.checkpoint)) is not None:
                for feed in instance.job.feeds:
                    account = self.deployment.accounts.get(feed.name)
                    rows = 0 if account is None else at.again(feed.topic, account.position)
                    if account is not None and rows:
                        account.again += rows
                        why = again_text(rows)
                        self.event("rows-read-again", instance=instance.id, topic=feed.topic, rows=rows, why=why)
            if not instance.job.outlets:
                return
            committed = committed_ms(instance.checkpoint)
            if committed is None and local_path(instance.checkpoint) is None and instance.begun:
                last = next((batch for _, batch in reversed(list(instance.meter.spans))), None)
                committed = None if last is None else round(last.end * 1000)  # of the reported ones, at least
            for name in instance.job.outlets:
                if (account := self.deployment.accounts.get(name)) is not None:
                    account.repeats.run_ended(instance.job.index, committed, round(time.time() * 1000))

    def _note_misfits(self, instance: Instance, batch: Batch) -> None:
        """Count a batch's late rows, find what does not fit in its samples, and report both from time to time."""
        task, now = instance.job.task, time.monotonic()
        feeds = {feed.topic: feed for feed in instance.job.feeds}
        schemas = instance.facts.schemas if instance.facts is not None else {}
        for found in batch.feeds:
            feed = feeds.get(found.topic)
            account = self.deployment.accounts.get(feed.name) if feed is not None else None
            if feed is None or account is None:
                continue
            if found.sample is not None and feed.topic in schemas:
                account.misfit = why_malformed(feed.values, found.sample, schemas[feed.topic], is_cut(found.sample))
            name = f"{feed.topic}>{feed.name}"
            if due := self.malformed.add(name, found.malformed, now):
                told = malformed_text(due, found.sample, feed.malformed, account.misfit, feed.values.label)
                self.event("malformed-input", **malformed_event(feed.topic, task, due, told))
            if due := self.malformed.add(f"{name} times", found.implausible, now):
                told = implausible_text(due, found.late_time, feed.malformed)
                self.event("implausible-times", **malformed_event(feed.topic, task, due, told))
        self.incomplete.add(task, batch.late, batch.late_groups, batch.watermark)
        if due := self.malformed.add(f"{task} late", batch.late, now):
            why = late_text(due, task in self.incomplete.grouped, self.incomplete.watermarks.get(task))
            self.event("late-rows", task=task, rows=due, why=why)

    def _note_broken(self, task: str, broken: Broken) -> None:
        """Count rows that break rules, and report them from time to time."""
        spec, now = self.deployment.specs.get(task), time.monotonic()
        for stream in spec.streams if spec is not None else ():
            counts = broken.get(stream.name, ())
            if len(counts) != len(stream.expect):  # of the rules that the stream had before
                continue
            for each, rows in zip(stream.expect, counts, strict=True):
                known = self.broken.setdefault(stream.name, {})
                known[each] = known.get(each, 0) + rows
                if due := self.malformed.add(f"{stream.name} breaks {each}", rows, now):
                    self.event("rule-broken", task=task, rows=due, why=f"{stream.name}: {broken_text(each, due)}")

    @property
    def rule_counts(self) -> list[RuleCount]:
        """Return how many rows have broken each rule of the streams that are deployed. Rules that end a query are left
        out: its last batch is not reported."""
        return [
            RuleCount(stream.name, each, self.broken.get(stream.name, {}).get(each, 0))
            for spec in list(self.deployment.specs.values())
            for stream in spec.streams
            for each in stream.expect
            if each.action != "fail"
        ]

    def note_deleted(self, feed: str, topic: str, rows: int, now: float) -> None:
        """Report rows that a topic's retention deleted before they were read, from time to time."""
        if due := self.malformed.add(f"{feed} deleted", rows, now):
            self.event("rows-deleted", **malformed_event(topic, reader(feed), due, deleted_text(due)))

    def targets(self, forbidden: Mapping[str, Collection[str]]) -> Mapping[str, str]:
        """Return the task manager on which the policy places each of these instances, never one that `forbidden` lists
        for it, and one with enough task slots if there is one.

        Raises TaskManagerError if no task manager is available.
        """
        if not forbidden:
            return {}
        with self.lock:
            available = {m.id for m in self.answering()} - self.leaving
            managers = [m for m in self.core_managers() if m.id in available]
            there = {m.id for m in managers}
            running = [_as_measured(v) for v in self.views() if v.id not in forbidden and v.task_manager in there]
            unplaced = [self._unplaced(id, refused) for id, refused in forbidden.items()]
            needs = {id: slots.slots_of(self.instances[id]) for id in forbidden if id in self.instances}
            others = [i for i in self.all_instances if i.id not in forbidden]
            open_slots = slots.free((self.task_managers[m.id] for m in managers), others)
        if not managers:
            raise TaskManagerError("No task manager is up: `%qod add-tm` adds one.")
        return slots.placed(self.place, unplaced, managers, running, needs, open_slots)

    def _unplaced(self, id: str, refused: Collection[str]) -> Unplaced:
        """Return an instance that needs a task manager, none of these, with the CPU that it used last."""
        instance = self.instances.get(id)
        last = (instance.reading(self.period_s) or instance.last_reading) if instance else None
        task = instance.job.task if instance else id.rpartition(".")[0]
        return Unplaced(id, task, last.cpu if last else None, frozenset(refused), self._homes_near(task))

    def batching_on(self, manager: TaskManager) -> list[Instance]:
        """Return the instances on a task manager that run in micro-batches."""
        return [i for i in self.all_instances if i.task_manager is manager and i.mode == "micro-batch"]

    def slot_times(self, manager: TaskManager) -> dict[Key, TaskTime]:
        """Return the slot time of the latest micro-batches on a task manager, by batch."""
        here = self.batching_on(manager)
        told = {key: times for each in here for key, times in list(each.meter.told.items())}
        taken = sum(
            slots.slots_of(i) for i in self.all_instances if i.task_manager is manager and i.mode == "real-time"
        )
        left = max(manager.capacity - taken, 1.0)
        return shared_out([Run(each.batches, each.width, each.widest) for each in here], left, told)

    def bottleneck(self, instance: Instance) -> str:
        """Return what takes most of the time of an instance's batches, in words; "" where nothing stands out."""
        manager = instance.task_manager
        if manager is None or instance.mode != "micro-batch":
            return ""
        gap_s = 0.0 if instance.pauses_on_read else self.delay_s(instance)
        told = instance.meter.told if manager.cpu_meter is None else instance.meter.times
        found = spent(instance.batches, self.slot_times(manager), dict(told), instance.width, gap_s)
        return "" if found is None else found.bottleneck

    def core_managers(self) -> list[core.TaskManager]:
        """Return the task managers as a snapshot has them."""
        return [
            core.TaskManager(
                m.id,
                m.cores * m.share,
                self.cpu.get(m.id, 0.0),
                kind=m.kind,
                dials=m.reading.value,
                others_periods=OTHERS_PERIODS,
                neighbours_cpu=round(self.neighbours[m.id], 2) if m.id in self.neighbours else None,
                cpu_limit=m.share if m.share < 1.0 else None,
            )
            for m in self.task_managers.values()
        ]

    def _homes_near(self, task: str) -> frozenset[str]:
        """Return the task managers on which the streams run beside which a task's instances are to start."""
        spec = self.deployment.specs.get(task)
        names = () if spec is None else spec.near
        near = {each.id for name in names for each in self.deployment.specs_with(name)}
        return frozenset(i.task_manager.id for i in self.all_instances if i.job.task in near and i.task_manager)

    def _asleep(self, instance: Instance, batches_per_s: float) -> float:
        """Return the share of the time in which its batches slept, as their pace asks, after their offsets were
        settled."""
        if instance.is_paced and not instance.pauses_on_read:
            return batches_per_s * self.delay_s(instance)
        return 0.0

    def delay_s(self, instance: Instance) -> float:
        """Return the seconds by which each of its batches is delayed now."""
        return MOST_S * (1.0 - self.dials.get(self.board.pace(instance.id), 1.0))

    def views(self) -> list[InstanceView]:
        """Return all instances with their last readings. While a run has not reported yet, that of the run before it
        counts."""
        now = time.time()
        views = []
        for instance in self.all_instances:
            reading = instance.reading(self.period_s)
            current = reading is not None
            reading = reading or instance.last_reading
            manager = instance.task_manager.id if instance.task_manager else None
            if manager is None or manager not in self.task_managers:
                manager = next(iter(self.task_managers), "")
            stalled = instance.state is State.STALLED  # its restart has begun
            state = State.BACKING_OFF if stalled else instance.state
            fields: dict[str, Any] = {"state": state.value, "mode": instance.mode or None}
            if instance.mode == "micro-batch" and reading is not None:
                fields["batches_per_s"] = round(reading.batch_rate, 4)
                fields["batch_interval_s"] = round(1.0 / reading.batch_rate, 4) if reading.batch_rate else 0.0
                fields["at_work"] = round(reading.at_work, 4)
                if reading.eviction > 0.0:
                    fields["eviction_cpu"] = round(reading.eviction, 2)
                if instance.job.trigger_s is not None:
                    fields["trigger_s"] = instance.job.trigger_s
                if reading.busy is not None:
                    fields["busy"] = round(max(reading.busy - self._asleep(instance, reading.batch_rate), 0.0), 4)
                if reading.state_bytes:
                    fields["memory_mb"] = round(reading.state_bytes / MB, 2)
            if reading is not None and state in (State.BACKING_OFF, State.GAVE_UP, State.SUSPENDED):
                reading = replace(reading, cpu=0.0)  # the last one measured a query that has ended
            elif instance.python_cpu and reading is not None and reading.cpu is not None:
                fields["python_cpu"] = round(instance.python_cpu, 2)
                reading = replace(reading, cpu=reading.cpu + instance.python_cpu)
            views.append(
                InstanceView(
                    instance.id,
                    instance.job.task,
                    manager,
                    reading,
                    current,
                    now - reading.at if reading else 0.0,
                    fields,
                )
            )
        return views


def _as_measured(view: InstanceView) -> core.Instance:
    """Return an instance as a policy sees it that places others beside it."""
    found = view.reading
    in_rate, cpu = (found.in_rate, found.cpu or 0.0) if found else (0.0, 0.0)
    return core.Instance(view.id, view.task, view.task_manager, in_rate, cpu, found is None)
