"""The metrics of a session in Prometheus' model: one table, and a collector that reads a session when it is scraped.

Row counts of one scrape are of one instant: arrived = processed + dropped + waiting + unreported for each stream, and
the consumer lag of a stream's partitions adds up to the rows that wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from qod_magics.core.runtime import MISFITS, FeedRows
from qod_magics.core.snapshot import Task
from qod_magics.monitoring.alarms import ALARMS
from qod_magics.monitoring.monitor import Monitor, Tally

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

#: A sample: the values of its metric's labels, and its number.
Sample = tuple[Sequence[str], float]


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the table."""

    name: str  #: as a sample has it: counters end with _total
    labels: tuple[str, ...]
    help: str  #: with the unit, unless the name says it
    read: Callable[[Scraped], Iterable[Sample]]

    @property
    def is_counter(self) -> bool:
        """Return whether it only grows while the session lasts and the stream is not declared otherwise."""
        return self.name.endswith("_total")


@dataclass(frozen=True, slots=True)
class Told:
    """What a session says of itself when it is scraped."""

    session: str
    version: str
    policy: str
    rows: Sequence[FeedRows]
    broken: Sequence[tuple[str, str, str, int]] = ()  #: stream, rule, what is done, and rows that break it


@dataclass(frozen=True, slots=True)
class Scraped:
    """What one scrape is made of."""

    told: Told
    tally: Tally
    calls: Mapping[str, int]  #: of hooks, by outcome
    open_alarms: Mapping[str, int]  #: by kind


# --- Reading what is scraped ------------------------------------------------------------------------------------------


def _feeds(value: Callable[[FeedRows], float]) -> Callable[[Scraped], Iterator[Sample]]:
    return lambda s: (((each.feed, each.task, each.topic), value(each)) for each in s.told.rows)


def _misfits(s: Scraped) -> Iterator[Sample]:
    for each in s.told.rows:
        for kind in MISFITS:
            yield (each.feed, each.task, each.topic, kind), getattr(each.count, kind)


def _lag(s: Scraped) -> Iterator[Sample]:
    for each in s.told.rows:
        for partition, rows in each.waiting.items():
            yield (each.feed, each.task, each.topic, str(partition)), rows


def _tasks(value: Callable[[Task], float | None]) -> Callable[[Scraped], Iterator[Sample]]:
    def read(s: Scraped) -> Iterator[Sample]:
        snapshot = s.tally.last.snapshot if s.tally.last is not None else None
        for task in snapshot.tasks if snapshot is not None else ():
            if (found := value(task)) is not None:
                yield (task.id,), found

    return read


def _by_task(value: Callable[[Any], Mapping[str, float | None]]) -> Callable[[Scraped], Iterator[Sample]]:
    """Samples of a mapping by task of the last decision."""

    def read(s: Scraped) -> Iterator[Sample]:
        decision = s.tally.last.decision if s.tally.last is not None else None
        if decision is not None:
            known = {task.id for task in decision.snapshot.tasks}
            yield from (((task,), x) for task, x in value(decision).items() if x is not None and task in known)

    return read


def _latency(s: Scraped) -> Iterator[Sample]:
    snapshot = s.tally.last.snapshot if s.tally.last is not None else None
    for task in snapshot.tasks if snapshot is not None else ():
        for percentile, found in (("50", task.latency_p50_s), ("95", task.latency_p95_s)):
            if found is not None:
                yield (task.id, percentile), found


def _instances(s: Scraped) -> Iterator[Sample]:
    snapshot = s.tally.last.snapshot if s.tally.last is not None else None
    found = Counter((i.task, i.state or "running") for i in (snapshot.instances if snapshot is not None else ()))
    return (((task, state), count) for (task, state), count in sorted(found.items()))


def _task_cpu(s: Scraped) -> Iterator[Sample]:
    snapshot = s.tally.last.snapshot if s.tally.last is not None else None
    found: dict[str, float] = {}
    for instance in snapshot.instances if snapshot is not None else ():
        found[instance.task] = found.get(instance.task, 0.0) + instance.cpu
    return (((task,), cpu / 100) for task, cpu in found.items())


def _managers(value: Callable[[Any, Any], float]) -> Callable[[Scraped], Iterator[Sample]]:
    def read(s: Scraped) -> Iterator[Sample]:
        decision = s.tally.last.decision if s.tally.last is not None else None
        if decision is not None:
            yield from (((m.id,), value(m, decision)) for m in decision.snapshot.task_managers)

    return read


def _counts(counts: Callable[[Scraped], Mapping[str, int]]) -> Callable[[Scraped], Iterator[Sample]]:
    return lambda s: (((kind,), number) for kind, number in sorted(counts(s).items()))


def _one(value: Callable[[Scraped], float | None]) -> Callable[[Scraped], Iterator[Sample]]:
    def read(s: Scraped) -> Iterator[Sample]:
        if (found := value(s)) is not None:
            yield (), found

    return read


def _decided_at(s: Scraped) -> float | None:
    return None if s.tally.last is None else s.tally.last.at.timestamp()


# --- The table --------------------------------------------------------------------------------------------------------

_FEED = ("stream", "task", "topic")

METRICS: tuple[Metric, ...] = (
    Metric(
        "qod_session_info",
        ("session", "version", "policy"),
        "1: the session, its version and the policy that decides.",
        lambda s: [((s.told.session, s.told.version, s.told.policy), 1)],
    ),
    Metric("qod_rows_arrived", _FEED, "Rows that arrived.", _feeds(lambda f: f.count.arrived)),
    Metric("qod_rows_processed_total", _FEED, "Rows read and kept.", _feeds(lambda f: f.count.processed)),
    Metric("qod_rows_dropped_total", _FEED, "Rows that a shedder dropped.", _feeds(lambda f: f.count.dropped)),
    Metric("qod_rows_waiting", _FEED, "Rows not yet read.", _feeds(lambda f: f.count.waiting)),
    Metric(
        "qod_rows_unreported",
        _FEED,
        "Rows read in a batch whose counts were lost, or deleted before they were read.",
        _feeds(lambda f: f.count.unreported),
    ),
    Metric(
        "qod_rows_deleted_total",
        _FEED,
        "Of those unreported: rows that the topic's retention deleted before they were read.",
        _feeds(lambda f: f.deleted),
    ),
    Metric(
        "qod_rows_read_again_total",
        _FEED,
        "Rows that were read a second time: the batch that had read them did not end.",
        _feeds(lambda f: f.count.read_again),
    ),
    Metric(
        "qod_rows_sent_again_total",
        _FEED,
        "Of those arrived: rows that are there twice, as the batch that had sent them did not end, and ran again.",
        _feeds(lambda f: f.count.sent_again),
    ),
    Metric(
        "qod_rows_dropped_sending_total",
        _FEED,
        "Rows that the sender's shedder dropped; they never arrived.",
        _feeds(lambda f: f.dropped_sending),
    ),
    Metric("qod_rows_malformed_total", (*_FEED, "kind"), "Of those processed: rows without their values.", _misfits),
    Metric(
        "qod_rows_late_total",
        ("task",),
        "Rows that came behind a watermark and are in no result, at least.",
        _by_task(lambda d: {**{t.id: 0 for t in d.snapshot.tasks}, **d.measured.late}),
    ),
    Metric(
        "qod_rows_breaking_rules_total",
        ("stream", "rule", "action"),
        "Rows of a stream that break a rule of --expect.",
        lambda s: (((stream, rule, action), rows) for stream, rule, action, rows in s.told.broken),
    ),
    Metric("qod_consumer_lag_rows", (*_FEED, "partition"), "Rows of a partition not yet read.", _lag),
    Metric(
        "qod_accuracy_planned_ratio",
        ("task",),
        "Share of the application's input that is to reach the task, 0 to 1.",
        _by_task(lambda d: d.plan.desired),
    ),
    Metric(
        "qod_accuracy_measured_ratio",
        ("task",),
        "Share of the application's input that reached the task, 0 to 1.",
        _by_task(lambda d: d.measured.accuracy),
    ),
    Metric(
        "qod_accuracy_minimum_ratio",
        ("task",),
        "Minimum accuracy of a query, 0 to 1.",
        _tasks(lambda t: t.min_accuracy),
    ),
    Metric("qod_priority", ("task",), "Priority of a query; the higher one wins.", _tasks(lambda t: t.priority)),
    Metric("qod_latency_seconds", ("task", "percentile"), "Latency of the rows in a query's last results.", _latency),
    Metric(
        "qod_latency_target_seconds", ("task",), "Target of the 95th percentile.", _tasks(lambda t: t.max_latency_s)
    ),
    Metric(
        "qod_oldest_row_seconds",
        ("task",),
        "Age of the oldest row that is in no result yet.",
        _tasks(lambda t: t.oldest_s),
    ),
    Metric("qod_instances", ("task", "state"), "Instances of a task by state.", _instances),
    Metric("qod_task_cpu_cores", ("task",), "CPU of a task's instances, in cores.", _task_cpu),
    Metric(
        "qod_task_manager_cpu_cores",
        ("task_manager",),
        "CPU of all processes on a task manager's cores, in cores.",
        _managers(lambda m, d: m.cpu / 100),
    ),
    Metric("qod_task_manager_cores", ("task_manager",), "Cores that plans may use.", _managers(lambda m, d: m.cores)),
    Metric(
        "qod_task_manager_starved",
        ("task_manager",),
        "1: the minimum accuracies don't fit there.",
        _managers(lambda m, d: float(m.id in d.plan.starved)),
    ),
    Metric("qod_cycles_total", ("outcome",), "Cycles of the controller.", _counts(lambda s: s.tally.cycles)),
    Metric(
        "qod_decisions_total",
        ("kind",),
        "Decisions, each once while it stands.",
        _counts(lambda s: s.tally.decisions),
    ),
    Metric(
        "qod_actions_total",
        ("kind", "outcome"),
        "Actions that were decided, done or refused.",
        lambda s: sorted(s.tally.actions.items()),
    ),
    Metric("qod_events_total", ("kind",), "Events of cluster and controller.", _counts(lambda s: s.tally.events)),
    Metric("qod_alarms_open", ("kind",), "Alarms that are not over.", _counts(lambda s: s.open_alarms)),
    Metric("qod_hook_calls_total", ("outcome",), "Alarms given to hooks.", _counts(lambda s: s.calls)),
    Metric("qod_controller_period_seconds", (), "Time between two cycles.", _one(lambda s: s.tally.period_s or None)),
    Metric(
        "qod_controller_last_decision_timestamp_seconds",
        (),
        "Begin of the last cycle with a decision, since 1970.",
        _one(_decided_at),
    ),
    Metric(
        "qod_controller_decision_seconds",
        (),
        "Time that the policy took in that cycle.",
        _one(lambda s: s.tally.last.decision.policy_ms / 1e3 if s.tally.last and s.tally.last.decision else None),
    ),
)


class SessionCollector(Collector):
    """Reads a session when it is scraped.

    Args:
        monitor: its counts and alarms.
        told: its name and the rows of its streams, of one instant.

    """

    def __init__(self, monitor: Monitor, told: Callable[[], Told]) -> None:
        self._monitor, self._told = monitor, told

    def __repr__(self) -> str:
        return f"{len(METRICS)} metrics of a session"

    def scraped(self) -> Scraped:
        """Return what a scrape is made of now."""
        self._monitor.tick()
        found = Counter(kind for kind, _ in self._monitor.alarms.open)
        alarms = {kind: found[kind] for kind in ALARMS}
        return Scraped(self._told(), self._monitor.tally.copy(), self._monitor.calls, alarms)

    def collect(self) -> Iterator[Family]:
        """Yield each metric that has samples now."""
        scraped = self.scraped()
        for metric in METRICS:
            kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for labels, number in metric.read(scraped):
                family.add_metric(list(labels), number)
            if family.samples:
                yield family
