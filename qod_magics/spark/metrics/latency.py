"""Latencies of queries, from their batches and from those of the tasks upstream. Pure.

The latency of a row: from the timestamp of its record in the source's topic, which by default is when the producer
handed it to its client, until
 - it is read, in real-time mode and in micro-batches without state that write to Kafka: it is processed and handed to
   Kafka's client at once,
 - the batch that took it in is completed, in other micro-batches, as of aggregations.
Kafka's client may hold a result for its linger time (`writing.GATHERING_WRITER`), which is not in it.

Rows of a stream between two tasks carry the time at which they were written there, not that of their source. The
latency so far of a row of a stream is one of the rows that its writer wrote at that time: both parts are taken to be
independent of each other within a batch of the writer, but follow each other over its batches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qod_magics.application import graph
from qod_magics.kafka.history import Arrivals
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.plans.timing import Points, condensed, quantile, slices
from qod_magics.spark.queries.progress import Batch, FeedCount

#: The last results of a query are those of its last seconds, by the shortest of these windows with enough rows, of
#: which some dozens at least are timed.
WINDOWS_S, ENOUGH_ROWS = (10.0, 20.0, 40.0, 60.0), 1500
#: Seconds without a row after which a query has no latency any more.
HELD_S = 60.0
#: Batches of an instance in the window, at most: evenly spread ones.
MOST_BATCHES = 24
#: Points of a distribution that others are added to.
POINTS = 10


@dataclass(frozen=True, slots=True)
class Step:
    """A task on the way of the rows: its batches."""

    feeds: Mapping[str, str | None]  #: by topic, the task that writes it; None: a source's
    instances: Sequence[Sequence[Batch]]  #: batches of each instance, in order


@dataclass(frozen=True, slots=True)
class Latency:
    """Of the rows in a query's last results, seconds."""

    p50: float
    p95: float


@dataclass(slots=True)
class Latencies:
    """Latencies of all tasks, each computed once. `tasks` are all that run; a cycle is an error of the caller."""

    tasks: Mapping[str, Step]
    _written: dict[tuple[str, str, int], Points] = field(default_factory=dict)
    _near: dict[tuple[str, tuple[tuple[str, int], ...]], Points] = field(default_factory=dict)
    _full: dict[str, Sequence[tuple[Sequence[Batch], Sequence[float]]]] = field(default_factory=dict)

    def of(self, task: str, now: float) -> Latency | None:
        """Return the latency of a task's last results; None while it is not known, and after a minute without rows.
        `now`: seconds since the epoch."""
        step = self.tasks[task]
        ended = [batch.end for batches in step.instances for batch in batches if batch.rows]
        if not ended or now - max(ended) > HELD_S:
            return None
        windows: list[Sequence[Batch]] = []
        for window_s in WINDOWS_S:
            windows = [_ended_after(batches, max(ended) - window_s) for batches in step.instances]
            if sum(batch.rows for window in windows for batch in window) >= ENOUGH_ROWS:
                break
        points = [point for window in windows for batch in _spread(window) for point in self._ages(task, batch)]
        p50, p95 = quantile(points, 0.5), quantile(points, 0.95)
        return None if p50 is None or p95 is None else Latency(max(p50, 0.0), max(p95, 0.0))

    def median_at(self, task: str, at: float) -> float | None:
        """Return the median latency of the rows that a task wrote at this time; None if it is not known."""
        return quantile(self._at(task, at), 0.5)

    def _ages(self, task: str, batch: Batch) -> Points:
        """Latencies of the rows of a batch; only those of its feeds for which they are known."""
        known = self._written.get((task, batch.run_id, batch.batch_id))
        if known is not None:
            return known
        step = self.tasks[task]
        found: list[tuple[float, float]] = []
        for feed in batch.feeds:
            if feed.topic not in step.feeds:
                continue
            writer = step.feeds[feed.topic]
            for age, rows, done in _hops(feed, batch):
                if writer is None:
                    found.append((age, rows))
                    continue
                before = self._at(writer, done - age)
                total = sum(each for _, each in before)
                found += [(age + earlier, rows * each / total) for earlier, each in before]
        if any(step.feeds.values()):
            found = condensed(found, 2 * POINTS)
        self._written[task, batch.run_id, batch.batch_id] = found
        return found

    def _at(self, task: str, at: float) -> Points:
        """Latencies of the rows that a task wrote at this time: in the batches of then, or those nearest to it."""
        near = []
        for batches, ends in self._with_rows(task):
            if batches:
                near.append(batches[min(bisect_left(ends, at), len(batches) - 1)])
        key = task, tuple((batch.run_id, batch.batch_id) for batch in near)
        if key not in self._near:
            self._near[key] = condensed((point for batch in near for point in self._ages(task, batch)), POINTS)
        return self._near[key]

    def _with_rows(self, task: str) -> Sequence[tuple[Sequence[Batch], Sequence[float]]]:
        """Return the batches with rows of each instance, and their ends."""
        if task not in self._full:
            instances = self.tasks[task].instances if task in self.tasks else ()
            full = [[batch for batch in batches if batch.rows] for batches in instances]
            self._full[task] = [(batches, [batch.end for batch in batches]) for batches in full]
        return self._full[task]


def _hops(feed: FeedCount, batch: Batch) -> list[tuple[float, float, float]]:
    """For slices of a batch's rows from one topic: age since they were written there, rows, when they were done."""
    rows = float(feed.kept or 0)
    if feed.ages:
        half = (batch.start + batch.end) / 2
        return [(max(age, 0.0), part, half) for age, part in slices(feed.ages, rows)]
    if feed.times:
        return [(max(batch.end - at, 0.0), part, batch.end) for at, part in slices(feed.times, rows)]
    return []


def _ended_after(batches: Sequence[Batch], since: float) -> Sequence[Batch]:
    return [batch for batch in batches if batch.rows and batch.end > since]


def _spread(batches: Sequence[Batch]) -> Sequence[Batch]:
    """These batches, or `MOST_BATCHES` of them."""
    if len(batches) <= MOST_BATCHES:
        return batches
    return [batches[int((i + 0.5) * len(batches) / MOST_BATCHES)] for i in range(MOST_BATCHES)]


# --- Latencies of queries ---------------------------------------------------------------------------------------------


class Lateness:
    """Arrivals of rows over time, and what they and the batches say of queries. Both methods only under the cluster's
    lock. Times are seconds since the epoch."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.arrivals = Arrivals()

    def __repr__(self) -> str:
        return f"latencies by {self.arrivals!r}"

    def sample(self, at: float, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Add the end offsets of topics, and forget what no task has to read any more."""
        needed: dict[str, dict[int, int]] = {}
        for account in self.cluster.deployment.accounts.values():
            if account.gone is not None:
                continue
            first = needed.setdefault(account.topic, {})
            for partition, position in account.next_rows.items():
                first[partition] = min(position, first.get(partition, position))
        self.arrivals.record(at, {topic: ends for topic, ends in offsets.items() if topic in needed})
        self.arrivals.keep(set(needed))
        for topic, positions in needed.items():
            self.arrivals.forget(topic, positions)

    def fields(self, now: float, reported: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """Return the optional fields of each query's row in a snapshot: latencies as far as known, what the user set.

        Args:
            now: the present.
            reported: by task, when its reports were made, for tasks in real-time mode whose reports are not overdue.
                Such a task reads rows at once, but tells so only with its report: its waiting rows are those of then.

        """
        specs, latencies = self.cluster.deployment.specs, Latencies(self._steps())
        upstreams = {id: spec.upstream for id, spec in specs.items()}
        waiting = {id: self._waiting(id, now, reported.get(id), latencies) for id in specs}
        found: dict[str, dict[str, float]] = {}
        for spec in specs.values():
            if not spec.is_query:
                continue
            stated = {"max_latency_s": spec.max_latency_s, "utility": spec.utility, "min_juice": spec.min_juice}
            fields = found[spec.id] = {name: value for name, value in stated.items() if value is not None}
            latency = latencies.of(spec.id, now)
            if latency is not None:
                fields |= {"latency_p50_s": round(latency.p50, 4), "latency_p95_s": round(latency.p95, 4)}
            ages = [age for id in graph.ancestors(upstreams, (spec.id,)) for age in waiting[id]]
            if ages:
                fields["oldest_s"] = round(max(0.0, *ages), 3)
        return found

    def _steps(self) -> dict[str, Step]:
        specs = self.cluster.deployment.specs
        batches: dict[str, list[list[Batch]]] = {id: [] for id in specs}
        for instance in self.cluster.all_instances:
            if instance.job.task in batches:
                batches[instance.job.task].append([batch for _, batch in list(instance.meter.spans)])
        return {id: Step({topic: writer for topic, writer, _ in self._feeds(id)}, batches[id]) for id in specs}

    def _feeds(self, task: str) -> list[tuple[str, str | None, Mapping[int, int]]]:
        """Return topics that a task reads, each with the task that writes it, if one does, and the position of the
        task."""
        pipes = self.cluster.deployment.pipes
        return [
            (account.topic, pipes[name].source if name in pipes else None, account.next_rows)
            for name, account in self.cluster.deployment.accounts_of(task).items()
        ]

    def _waiting(self, task: str, now: float, by: float | None, latencies: Latencies) -> list[float]:
        """Return the age of the oldest row that waits in each topic that a task reads, seconds; 0: none waits. `by`:
        when its last report was made, in real-time mode."""
        ages = []
        for topic, writer, position in self._feeds(task):
            arrived = self.arrivals.oldest(topic, position, by)
            if arrived is None:
                ages.append(0.0)
            else:
                before = latencies.median_at(writer, arrived) if writer is not None else None
                ages.append((now if by is None else by) - arrived + (before or 0.0))
        return ages
