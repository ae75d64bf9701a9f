"""Flink as an engine of the comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from benchmarks.evaluation.applications import TIMED
from benchmarks.evaluation.course import Window, last_told
from benchmarks.evaluation.flink import sql
from benchmarks.evaluation.flink.cluster import Cluster
from benchmarks.evaluation.flink.environment import Environment
from qod_magics.kafka.topics import create_topics, delete_topics
from qod_magics.session.results import read_results
from qod_magics.session.session import Session

_OPTIONS = {
    "table.local-time-zone": "UTC",
    "execution.checkpointing.interval": "5 s",
    "parallelism.default": "1",
}


class Flink:
    """The timed Taxi Drives as one job of Flink SQL, which reads both topics once for both sinks.

    Rows pass between operators in memory. The JIT uses both tiers, as Flink ships it. Nothing is dropped: under
    overload back-pressure stops the reads, and the backlog grows in the topics. Ages are taken after a query's work on
    a row; percentiles are exact. There are no stages, so ages are end to end only.
    """

    def __init__(self, session: Session, cluster: Cluster) -> None:
        self.session = session
        self.cluster = cluster
        self._topics = {query: f"flink-{query}" for query in TIMED}
        create_topics(session.kafka, dict.fromkeys(self._topics.values(), 1))
        self.job = cluster.submit(
            {**_OPTIONS, "execution.checkpointing.dir": (cluster.directory / "checkpoints").as_uri()},
            {sql.FUNCTION: sql.function_source()},
            sql.definitions(session.kafka.spark_options(), self._topics),
            sql.inserts(list(self._topics)),
        )

    def waiting(self) -> int | None:
        """The backlog of the sources, rows."""
        try:
            found = self._pending()
        except OSError:  # the JobManager is busy
            return None
        return sum(int(float(metric["value"])) for metric in found) if found else None

    def _pending(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        for vertex in self.cluster.get(f"/jobs/{self.job}")["vertices"]:
            path = f"/jobs/{self.job}/vertices/{vertex['id']}/metrics"
            names = [m["id"] for m in self.cluster.get(path) if m["id"].endswith(".pendingRecords")]
            if names:
                found += self.cluster.get(f"{path}?get={','.join(names)}")
        return found

    def windows(self) -> Mapping[str, Sequence[Window]]:
        """The windows that the queries reported."""
        workshop = self.session.runtime.workshop()
        schema = "start DOUBLE, rows BIGINT, end_to_end ARRAY<DOUBLE>"
        return {
            query: last_told([row.asDict() for row in read_results(workshop, topic, schema).collect()])
            for query, topic in self._topics.items()
        }

    def stop(self) -> None:
        """Delete its results; the job ends with its cluster."""
        delete_topics(self.session.kafka, self._topics.values())


@contextmanager
def flink(session: Session, installed: Environment, cpus: set[int], others: set[int]) -> Iterator[Flink]:
    """Flink from the newest rows on, its TaskManager on `cpus` and all else on `others`."""
    with Cluster(installed, cpus, others) as cluster:
        engine = Flink(session, cluster)
        try:
            yield engine
        finally:
            engine.stop()
