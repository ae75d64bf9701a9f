"""Measure the live runtime: CPU of cores, offsets of topics, and the observation built from these and from reports."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psutil

from qod_magics.application.tasks import TaskSpec, fused_edges, why_not_fused, why_not_unfused
from qod_magics.core import snapshot as core
from qod_magics.core.runtime import Count, FeedRows, Observation
from qod_magics.errors import KafkaError
from qod_magics.kafka.history import OffsetHistory
from qod_magics.kafka.topics import check_answers
from qod_magics.lifecycle.admission import TaskFacts, why_state_stays
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Part, Position, is_topic, kind_and_place
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.observation import InstanceView, TaskView, observation
from qod_magics.spark.cluster.state import can_lend, sender_homes, state_facts
from qod_magics.spark.cluster.views import MB, OTHERS_PERIODS, core_managers, instance_views
from qod_magics.spark.metrics.latency import Lateness
from qod_magics.spark.plans.job import feed_of, reader
from qod_magics.spark.queries.checkpoints import reached
from qod_magics.spark.queries.instance import REALTIME_BATCH_S, Instance
from qod_magics.spark.servers.connection import reason
from qod_magics.spark.servers.task_manager import TaskManager

# --- The ends of sources ----------------------------------------------------------------------------------------------
# The ends of all sources of a session, and which of its Kafka clusters do not answer.
#
# Each cluster is asked, whatever the sources are: sinks and results are written to one from which nothing may be read.


#: Timeout for the answer of a cluster from which nothing is read, seconds.
ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class Ends:
    """The answers of one round."""

    found: Mapping[str, Position]  #: by source
    missing: Mapping[str, str]  #: sources whose ends are not known, and why; or what more is not read of them
    silent: Mapping[str, KafkaError]  #: clusters that do not answer, by their addresses
    unread: KafkaError | None  #: topics are to be read, and no cluster answers


def ends_of(sources: Sources, names: Iterable[str]) -> Ends:
    """Ask each Kafka cluster, and return the ends of these sources. The topics of a silent cluster are missing."""
    names = list(names)
    context, silent = sources.context, dict[str, KafkaError]()
    found, missing = sources.ends(name for name in names if not is_topic(name))
    topics = [name for name in names if is_topic(name)]
    for kafka in context.clusters:
        there = [name for name in topics if context.of(kind_and_place(name)[1]) is kafka]
        try:
            if there:
                ends, lacking = sources.ends(there)
            else:
                check_answers(kafka, timeout_s=ANSWER_S)
                continue
        except KafkaError as error:
            silent[kafka.bootstrap] = error
            missing |= dict.fromkeys(there, str(error))
        else:
            found |= ends
            missing |= lacking
    unread = next(iter(silent.values())) if topics and len(silent) == len(context.clusters) else None
    return Ends(found, missing, silent, unread)


@dataclass(slots=True)
class _Feeds:
    """What is measured of sources and streams, by name."""

    lag: dict[str, int] = field(default_factory=dict)  #: backlog, rows
    rate: dict[str, float] = field(default_factory=dict)  #: rows/s that arrive
    counts: dict[str, Count] = field(default_factory=dict)


class Metrics:
    """Offsets and CPU over time. `sample` and `heard` may be called from any thread; `observation` only under the
    cluster's lock."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.history = OffsetHistory()
        self.lateness = Lateness(cluster)
        self._others: dict[str, deque[float]] = {}  #: by task manager, CPU of its cores that its tasks don't use
        self._neighbours: dict[str, deque[float]] = {}  #: the part of it that other programs use
        self._sampling = threading.Lock()

    def __repr__(self) -> str:
        return f"offsets and CPU of {len(self.cluster.task_managers)} task managers"

    def sample(self) -> None:
        """Read the CPU of all cores and the ends of all topics now. Raises KafkaError: topics are read, and no cluster
        answers."""
        for manager in list(self.cluster.task_managers.values()):
            manager.sample_cpu()
        deployment = self.cluster.deployment
        topics = deployment.topics()
        if topics or deployment.specs or self.cluster.silent_kafka:
            with self._sampling:  # answers out of order would look like recreated topics
                ends = ends_of(deployment.sources, topics)
                with self.cluster.lock:
                    self._note_silent({address: str(error) for address, error in ends.silent.items()})
                    if ends.unread is not None:
                        raise ends.unread
                    self.history.record(time.monotonic(), ends.found)
                    self.lateness.sample(time.time(), ends.found)
                    self._note_missing({topic: why for topic, why in ends.missing.items() if topic in topics})

    def tend_sources(self) -> None:
        """Tell sources how far each instance has read. Rows that can't be read any more are unreported."""
        accounts = self.cluster.deployment.accounts
        with self.cluster.lock:
            read = [
                (Part(feed.topic, feed.partitions, dict(account.next_rows), instance.job.reads_as), account)
                for instance in [*self.cluster.all_instances, *self.cluster.lingering]
                for feed in (instance.running or instance.job).feeds
                if not is_topic(feed.topic) and (account := accounts.get(feed.name)) is not None
            ]

        def go_on(at: Part, position: Position) -> None:
            with self.cluster.lock:
                next(account for part, account in read if part is at).go_on(position, 0)

        self.cluster.deployment.sources.tend([part for part, _ in read], go_on)

    def _note_silent(self, silent: Mapping[str, str]) -> None:
        """Report the Kafka clusters that newly don't answer, and those that answer again."""
        before = self.cluster.fall_silent(silent)
        for address in sorted(silent.keys() - before.keys()):
            self.cluster.event("kafka-silent", kafka=address, why=silent[address])
        for address in sorted(before.keys() - silent.keys()):
            self.cluster.event("kafka-back", kafka=address)

    def _note_missing(self, missing: Mapping[str, str]) -> None:
        """Report the topics whose offsets are newly missing, those whose offsets are back, and what more of another
        source is not read."""
        before = self.cluster.miss(missing)
        more = {name for name in missing.keys() & before.keys() if not is_topic(name) and missing[name] != before[name]}
        for topic in sorted(missing.keys() - before.keys() | more):
            readers = self._readers(topic)
            self.cluster.event(f"{_kind(topic)}-missing", topic=topic, task=readers, why=missing[topic])
        for topic in sorted(before.keys() - missing.keys()):
            if readers := self._readers(topic):
                self.cluster.event(f"{_kind(topic)}-back", topic=topic, task=readers)

    def _readers(self, topic: str) -> str | None:
        """Return the tasks that read a topic, as an event names them; None if no task reads it any more."""
        accounts = self.cluster.deployment.accounts
        read = {reader(name) for name, each in accounts.items() if each.topic == topic and each.gone is None}
        return " ".join(sorted(read)) or None

    def heard(self, manager: TaskManager, answer: BaseException | None) -> None:
        """Report when it stops and when it resumes answering. The end of its process is reported elsewhere."""
        since, now = manager.silent_since, time.monotonic()
        if answer is None and since is not None:
            self.cluster.event("metrics-back", task_manager=manager.id, after_s=round(now - since, 1))
        if answer is not None and since is None and manager.alive():
            self.cluster.event("metrics-missing", task_manager=manager.id, why=reason(answer))
        manager.silent_since = None if answer is None else since or now

    def _measure(self, manager: TaskManager, views: Sequence[InstanceView]) -> None:
        """Measure the CPU of a task manager's cores (of its processes if it is not pinned) over the same time as that
        of its instances: the period before their last reports.

        CPU that its tasks don't use (garbage collection, compilation, commits, other programs) comes in bursts. Its
        moving average over some periods counts, so that a burst sheds no rows.
        """
        if manager.cpu_meter is None:  # not measurable: only its tasks' CPU is known
            known = [v.reading.cpu or 0.0 for v in views if v.reading is not None]
            self.cluster.measured(manager.id, sum(known))
            return
        ages = [v.age_s for v in views if v.age_s < 2 * self.cluster.period_s]
        end = time.monotonic() - (sum(ages) / len(ages) if ages else 0.0)
        busy = manager.cpu_meter.mean(end - self.cluster.period_s, end)
        if busy is None:
            return
        tasks = sum(v.reading.cpu or 0.0 for v in views if v.reading is not None)
        others = self._others.setdefault(manager.id, deque(maxlen=OTHERS_PERIODS))
        others.append(max(busy - tasks, 0.0))
        most = max(100.0 * manager.cpu_meter.cores, busy)  # an unpinned one may use more cores than it has
        neighbours: deque[float] | None = None
        own = None if manager.own_meter is None else manager.own_meter.mean(end - self.cluster.period_s, end)
        if own is not None:
            neighbours = self._neighbours.setdefault(manager.id, deque(maxlen=OTHERS_PERIODS))
            neighbours.append(max(busy - own, 0.0))
        cpu = min(tasks + sum(others) / len(others), most)
        self.cluster.measured(manager.id, cpu, sum(neighbours) / len(neighbours) if neighbours else None)

    def observation(self) -> Observation:
        """Return the present state, and the events since the last observation."""
        views = [self._at_rest(self._with_input(self._with_queue(view))) for view in instance_views(self.cluster)]
        for manager in self.cluster.task_managers.values():
            self._measure(manager, [v for v in views if v.task_manager == manager.id and v.current])
        wall = time.time()
        feeds = self._feed_counts(views, wall)
        self._join_topics(feeds)
        for task, (kept, dropped) in self.cluster.own_source.items():
            feeds.counts[task] = Count(kept + dropped, kept, dropped, 0)
        late = self.lateness.fields(wall, self._reported(views))
        tasks = [
            TaskView(
                spec.id,
                spec.upstream,
                spec.priority,
                spec.min_accuracy,
                self._feeds(spec.id),
                tuple(p.name for p in self.cluster.deployment.pipes.values() if p.source == spec.id),
                feeds.rate.get(spec.id),
                sum(feeds.rate.get(name, 0.0) for name in {spec.id, *self._feeds(spec.id)}),
                {**self._work(spec), **self._scalability(spec), **late.get(spec.id, {})},
            )
            for spec in self.cluster.deployment.specs.values()
        ]
        events = self.cluster.take_events()
        return observation(
            self._with_memory(core_managers(self.cluster), views),
            tasks,
            views,
            lag=feeds.lag,
            input_rate=feeds.rate,
            counts=feeds.counts,
            dropped_sending={n: a.dropped_before for n, a in self.cluster.deployment.accounts.items()},
            fresh_for_s=max(2.5 * self.cluster.period_s, 2.5 * REALTIME_BATCH_S),
            events=events,
            late={
                task: rows
                for task, rows in self.cluster.incomplete.late.items()
                if task in self.cluster.deployment.specs
            },
        )

    def _feed_counts(self, views: Sequence[InstanceView], wall: float) -> _Feeds:
        """Return backlogs, input rates and row counts, by feed. The backlog of a task whose instances have all reported
        in time is as of the oldest of these reports."""
        feeds, now = _Feeds(), time.monotonic()
        for name, account in self.cluster.deployment.accounts.items():
            if account.gone is not None:
                feeds.counts[name], feeds.lag[name], feeds.rate[name] = account.count({}), 0, 0.0
                continue
            ends = {p: int(o) for p, o in self.history.at(account.topic, now).items()}
            feeds.counts[name] = account.count(ends)
            arriving = self.history.rate(account.topic, self.cluster.period_s)
            if arriving is not None:
                feeds.rate[name] = arriving
            task = reader(name)
            seen = [v for v in views if v.task == task and v.current and v.reading is not None]
            if seen and len(seen) == sum(v.task == task for v in views) and not any(map(self._is_overdue, seen)):
                then = self.history.at(account.topic, now - (wall - min(v.reading.at for v in seen if v.reading)))
                feeds.lag[name] = sum(max(int(then.get(p, e)) - account.next_row(p), 0) for p, e in ends.items())
            else:
                feeds.lag[name] = feeds.counts[name].waiting
        return feeds

    def _join_topics(self, feeds: _Feeds) -> None:
        """Add up the topics of each task that reads several: elsewhere they are one source."""
        for spec in self.cluster.deployment.specs.values():
            names = [feed_of(spec, head) for head in spec.topics]
            names += self.cluster.deployment.deleted_feeds(spec.id)
            if names and names != [spec.id]:
                feeds.lag[spec.id] = sum(feeds.lag.pop(name) for name in names)
                feeds.counts[spec.id] = sum((feeds.counts.pop(name) for name in names), Count())
                rates = [feeds.rate.pop(name) for name in names if name in feeds.rate]
                if len(rates) == len(names):
                    feeds.rate[spec.id] = sum(rates)

    def rows(self) -> tuple[FeedRows, ...]:
        """Return the row accounting of each feed by the last sample of offsets."""
        found, now = [], time.monotonic()
        for name, account in self.cluster.deployment.accounts.items():
            ends = {p: int(o) for p, o in self.history.at(account.topic, now).items()}
            count, waiting = account.count(ends), account.waiting(ends) if ends else {}
            also = account.dropped_before, account.deleted_unread
            found.append(FeedRows(name, reader(name), account.topic, count, waiting, *also))
        for task, (kept, dropped) in self.cluster.own_source.items():
            found.append(FeedRows(task, task, "", Count(kept + dropped, kept, dropped)))
        return tuple(found)

    def _with_memory(
        self, managers: Sequence[core.TaskManager], views: Sequence[InstanceView]
    ) -> list[core.TaskManager]:
        """Return the task managers with the memory that instances may take: what the state of theirs takes, and for
        local ones an equal share of what is free on this machine."""
        local = [each.id for each in managers if each.kind == "local"]
        free = psutil.virtual_memory().available / MB / max(len(local), 1)
        taken = Counter[str]()
        for view in views:
            taken[view.task_manager] += view.fields.get("memory_mb", 0.0)
        return [
            core.replace(each, memory_mb=round(taken[each.id] + free)) if each.id in local else each
            for each in managers
        ]

    def _work(self, spec: TaskSpec) -> dict[str, float]:
        """Return how often a task was declared, unless once, and how many partitions each of its instances reads at the
        same time, unless one."""
        instances = self.cluster.instances_of(spec.id)
        read = max((sum(len(feed.partitions) for feed in each.job.feeds) for each in instances), default=1)
        found = {"declared": self.cluster.deployment.declarations.get(spec.id, 1), "concurrency": read}
        return {name: count for name, count in found.items() if count > 1}

    def _scalability(self, spec: TaskSpec) -> dict[str, Any]:
        """Return how many instances a task may have, with what it can be fused, whether it keeps state, and whether
        that can be assigned to other instances, once its plan tells, and whether it can lend rows, once its senders
        have task managers."""
        told = [each.facts for each in self.cluster.instances_of(spec.id) if each.facts is not None]
        most = {"max_parallelism": self.cluster.deployment.max_parallelism(spec)}
        keeps_state = bool(told) and told[0].keeps_state
        state = {"stateful": int(keeps_state)} if told else {}
        if keeps_state:
            facts = TaskFacts(spec.id, (), keeps_state, state_facts(self.cluster, spec.id))
            state["divisible"] = int(not why_state_stays(facts))
        placed = spec.lends and sender_homes(self.cluster, spec.id)
        lends = {"lends": int(can_lend(self.cluster, spec.id))} if placed else {}
        return most | self._fusion(spec, keeps_state) | state | lends

    def _fusion(self, spec: TaskSpec, keeps_state: bool) -> dict[str, Any]:
        """Return the streams within a task, those of them at which it can't be unfused, and whether it and the task
        that it reads can be one."""
        specs, instances = self.cluster.deployment.specs, self.cluster.deployment.instances(spec)
        within = fused_edges(spec)
        whole = [e for e in within if why_not_unfused(spec, e, specs.values(), instances, keeps_state)]
        found: dict[str, Any] = {
            key: tuple(f"{source}>{target}" for source, target in edges)
            for key, edges in (("fused", within), ("inseparable", whole))
            if edges
        }
        if len(spec.upstream) == 1:
            found["fusable"] = int(not why_not_fused(specs[spec.upstream[0]], spec, specs.values(), instances))
        return found

    def rows_waiting(self, instance: Instance) -> int:
        """Return the rows in the topics of an instance that no ended batch of it has read, by the last sample."""
        now, accounts = time.monotonic(), self.cluster.deployment.accounts
        rows = 0
        for feed in instance.job.feeds:
            account = accounts.get(feed.name)
            if account is not None:
                ends = self.history.at(feed.topic, now)
                read = {p: account.next_row(p) for p in feed.partitions}
                rows += sum(max(int(ends.get(p, 0)) - position, 0) for p, position in read.items())
        return rows

    def is_due(self, instance: Instance) -> bool:
        """Return whether an instance should end a batch: in real-time mode, or as rows wait by its checkpoint."""
        if instance.mode == "real-time":
            return True
        found, now = reached(instance.checkpoint), time.monotonic()
        if found is None:
            return False
        for feed in instance.job.feeds:
            ends, read = self.history.at(feed.topic, now), {**feed.starting, **found.ended.get(feed.topic, {})}
            if any(int(ends.get(p, 0)) > read.get(p, 0) for p in feed.partitions):
                return True
        return False

    def input_rates(self, over_s: float) -> dict[str, float]:
        """Return the input rate of each source with a topic, rows/s, over the last `over_s` sampled seconds or two
        samples."""
        found = {}
        for spec in self.cluster.deployment.specs.values():
            if not spec.upstream:
                rates = [self.history.rate(topic, over_s) for topic in self._feeds(spec.id).values()]
                known = [rate for rate in rates if rate is not None]
                if known and len(known) == len(rates):
                    found[spec.id] = sum(known)
        return found

    def _reported(self, views: Sequence[InstanceView]) -> dict[str, float]:
        """Return when the latest reports of each task in real-time mode were made, where they are current: the earliest
        of those of its instances."""
        found: dict[str, float] = {}
        others: set[str] = set()
        for view in views:
            real_time = view.fields.get("mode") == "real-time" and view.fields.get("state") == "running"
            if view.reading is None or not view.current or not real_time or self._is_overdue(view):
                others.add(view.task)
            else:
                found[view.task] = min(view.reading.at, found.get(view.task, view.reading.at))
        return {task: at for task, at in found.items() if task not in others}

    def _at_rest(self, view: InstanceView) -> InstanceView:
        """Return the view; of micro-batches that have read all rows, and report nothing since none arrive, as measured
        now: no rows, no CPU."""
        instance, reading = self.cluster.instances.get(view.id), view.reading
        if instance is None or reading is None or not view.current or not instance.job.feeds:
            return view
        runs = view.fields.get("mode") == "micro-batch" and view.fields.get("state") == "running"
        if not runs or not self._is_overdue(view) or self.rows_waiting(instance):
            return view
        kept = {key: value for key, value in view.fields.items() if key not in ("eviction_cpu", "python_cpu")}
        now = reading.without_rows(time.time(), self.cluster.period_s)
        none = {"batches_per_s": 0.0, "batch_interval_s": 0.0, "busy": 0.0, "at_work": 0.0}
        return replace(view, reading=now, age_s=0.0, fields={**kept, **none}, came=0.0)

    def _is_overdue(self, view: InstanceView) -> bool:
        return view.age_s >= 2 * self._report_due_s(view)

    def _report_due_s(self, view: InstanceView) -> float:
        """Return seconds between two of its reports by its mode and trigger, and a period of the controller at
        least."""
        shortest_s = REALTIME_BATCH_S if view.fields.get("mode") == "real-time" else 0.0
        trigger_s = self.cluster.deployment.specs[view.task].trigger_s or 0.0
        return max(self.cluster.period_s, shortest_s, trigger_s)

    def _feeds(self, task: str) -> dict[str, str]:
        """Return the topics that a task reads, by feed."""
        accounts = self.cluster.deployment.accounts_of(task)
        return {name: account.topic for name, account in accounts.items() if account.gone is None}

    def _with_queue(self, view: InstanceView) -> InstanceView:
        """Return the view with the rows that wait for its instance."""
        instance = self.cluster.instances.get(view.id)
        if instance is None or not instance.job.feeds:
            return view
        fields = {**view.fields, "waiting": self.rows_waiting(instance)}
        if self.cluster.deployment.lends(view.task):
            fields["arrival_rate"] = round(self._arriving(instance), 2)
        return replace(view, fields=fields)

    def _arriving(self, instance: Instance) -> float:
        """Return the rows/s that reach the partitions of an instance, over the last period of the controller."""
        now, rate = time.monotonic(), 0.0
        for feed in instance.job.feeds:
            end, start = self.history.at(feed.topic, now), self.history.at(feed.topic, now - self.cluster.period_s)
            rate += sum(max(end[p] - start[p], 0.0) for p in feed.partitions if p in end and p in start)
        return rate / self.cluster.period_s

    def _with_input(self, view: InstanceView) -> InstanceView:
        """Return the view with its task's input rate over the window of its reading."""
        topics = self._feeds(view.task).values()
        if view.reading is None or not topics:
            return view
        ago = time.monotonic() - time.time()
        since, at = view.reading.since + ago, view.reading.at + ago
        came = sum(self.history.rows(topic, since, at) for topic in topics) / (at - since)
        return replace(view, came=came)


def _kind(name: str) -> str:
    """Return what events call a source."""
    return "topic" if is_topic(name) else "source"
