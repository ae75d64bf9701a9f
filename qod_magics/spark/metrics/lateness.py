"""How late the results of queries are: latencies from batches, ages of waiting rows from offsets."""

from __future__ import annotations

from collections.abc import Mapping

from qod_magics.application import graph
from qod_magics.kafka.history import Arrivals
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.metrics.latency import Latencies, Step
from qod_magics.spark.queries.progress import Batch


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
            first = needed.setdefault(account.topic, {})
            for partition, position in account.next_rows.items():
                first[partition] = min(position, first.get(partition, position))
        self.arrivals.record(at, {topic: ends for topic, ends in offsets.items() if topic in needed})
        self.arrivals.keep(set(needed))
        for topic, positions in needed.items():
            self.arrivals.forget(topic, positions)

    def fields(self, now: float, reported: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """By query, the optional fields of its row in a snapshot: latencies as far as known, and what the user set.

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
            fields = found[spec.id] = {
                name: value
                for name, value in (("max_latency_s", spec.max_latency_s), ("utility", spec.utility))
                if value is not None
            }
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
        """Topics that a task reads, each with the task that writes it, if one does, and the position of the task."""
        pipes = self.cluster.deployment.pipes
        return [
            (account.topic, pipes[name].source if name in pipes else None, account.next_rows)
            for name, account in self.cluster.deployment.accounts_of(task).items()
        ]

    def _waiting(self, task: str, now: float, by: float | None, latencies: Latencies) -> list[float]:
        """By topic that a task reads: the age of the oldest row that it has not read; 0: none waits. `by` is the time
        of its last report, in real-time mode."""
        ages = []
        for topic, writer, position in self._feeds(task):
            arrived = self.arrivals.oldest(topic, position, by)
            if arrived is None:
                ages.append(0.0)
            else:
                before = latencies.median_at(writer, arrived) if writer is not None else None
                ages.append((now if by is None else by) - arrived + (before or 0.0))
        return ages
