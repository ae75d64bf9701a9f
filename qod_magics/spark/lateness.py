"""How late the results of queries are: latencies from batches, ages of waiting rows from offsets."""

from __future__ import annotations

from collections.abc import Mapping

from qod_magics.application.tasks import TaskSpec
from qod_magics.core.optional import LATENCY_P50, LATENCY_P95, MAX_LATENCY, OLDEST, UTILITY
from qod_magics.kafka.arrivals import Arrivals
from qod_magics.spark.cluster import Cluster
from qod_magics.spark.latency import Latencies, Step


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
            for partition, position in account.position.items():
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
        latencies = Latencies(self._steps())
        found: dict[str, dict[str, float]] = {}
        for spec in self.cluster.deployment.specs.values():
            if not spec.is_query:
                continue
            fields = found[spec.id] = {
                field.name: value
                for field, value in ((MAX_LATENCY, spec.max_latency_s), (UTILITY, spec.utility))
                if value is not None
            }
            latency = latencies.of(spec.id, now)
            if latency is not None:
                fields |= {LATENCY_P50.name: round(latency.p50, 4), LATENCY_P95.name: round(latency.p95, 4)}
            oldest = self._oldest(spec.id, now, reported, latencies)
            if oldest is not None:
                fields[OLDEST.name] = round(max(oldest, 0.0), 3)
        return found

    def _steps(self) -> dict[str, Step]:
        by_task: dict[str, Step] = {}
        for spec in self.cluster.deployment.specs.values():
            here = [i for i in self.cluster.all_instances if i.job.task == spec.id]
            by_task[spec.id] = Step(
                {topic: writer for topic, writer, _ in self._feeds(spec)},
                [[batch for _, batch in list(i.meter.spans)] for i in here],
            )
        return by_task

    def _feeds(self, spec: TaskSpec) -> list[tuple[str, str | None, Mapping[int, int]]]:
        """Topics that a task reads, each with the task that writes it, if one does, and the position of the task."""
        accounts, pipes = self.cluster.deployment.accounts, self.cluster.deployment.pipes
        return [
            (account.topic, pipes[name].source if name in pipes else None, account.position)
            for name, account in accounts.items()
            if name.rpartition(">")[2] == spec.id
        ]

    def _oldest(self, task: str, now: float, reported: Mapping[str, float], latencies: Latencies) -> float | None:
        """Age of the oldest row that the task, or one upstream, has not read; 0: none waits. None: no topic is read."""
        spec = self.cluster.deployment.specs[task]
        by = reported.get(task)
        ages: list[float] = []
        for topic, writer, position in self._feeds(spec):
            ages.append(0.0)
            arrived = self.arrivals.oldest(topic, position, by)
            if arrived is not None:
                before = latencies.median_at(writer, arrived) if writer is not None else None
                ages.append((now if by is None else by) - arrived + (before or 0.0))
        for upstream in spec.upstream:
            age = self._oldest(upstream, now, reported, latencies)
            ages += [] if age is None else [age]
        return max(ages, default=None)
