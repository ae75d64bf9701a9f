"""Watch the live runtime: once a second, sample offsets, look for failures and recover from them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from qod_magics.errors import KafkaError
from qod_magics.spark.changes.mover import Mover
from qod_magics.spark.changes.new_input import NewInput
from qod_magics.spark.changes.recovery import Recovery
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.metrics.collector import Collector
from qod_magics.spark.metrics.metrics import Metrics
from qod_magics.spark.metrics.peeks import Peeks
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.connection import reason

#: Interval between two rounds of steps, seconds.
WATCH_S = 1.0


class Watcher:
    """Does all that must be looked after while queries run, on one thread. A step that fails becomes an event, and the
    others are done all the same.

    Args:
        cluster: the state of the runtime, which keeps the events.
        metrics, collector, peeks: what samples offsets, reads reports, and looks at records.
        new_input: looks for partitions and topics to read.
        mover, recovery: what restarts queries.
        ended: set when the session ends; no round begins then.

    """

    def __init__(
        self,
        cluster: Cluster,
        metrics: Metrics,
        collector: Collector,
        peeks: Peeks,
        new_input: NewInput,
        mover: Mover,
        recovery: Recovery,
        ended: threading.Event,
    ) -> None:
        self.cluster = cluster
        self.metrics = metrics
        self.recovery = recovery
        self.tend_nodes: Callable[[], object] = lambda: None  #: looks after those that plans add and release
        #: what is done, the call, and errors of it that are reported elsewhere: of a broker that does not answer, by
        #: `observe`
        self._steps: tuple[tuple[str, Callable[[], object], type[Exception] | None], ...] = (
            ("looking after sources", metrics.tend_sources, None),
            ("reading new partitions", new_input.read_partitions, None),
            ("reading new topics", new_input.read_topics, KafkaError),
            ("restarting readers of new partitions", mover.restart_outdated, None),
            ("reading tables again", partial(mover.refresh_tables, self._is_idle), None),
            ("restarting ended queries", recovery.restart_ended, None),
            ("restarting readers of restored topics", recovery.restart_readers, None),
            ("restarting queries that Kafka was away from", recovery.restart_cut_off, None),
            ("finding hung task managers", recovery.kill_hung, None),
            ("finding lost task managers", partial(recovery.recover_lost, self._is_due), None),
            ("restarting failed queries", recovery.retry, None),
            ("tending task managers", lambda: self.tend_nodes(), None),
            ("collecting reports", collector.keep_up, None),
            ("looking at records", peeks.look, None),
        )
        self._broker_answers = False  #: whether it has answered in this round; of two clusters, both
        self._failing: dict[str, str] = {}  #: failing steps, and why
        self._ended = ended
        self._thread = threading.Thread(target=self._watch, name="qod-runtime", daemon=True)

    def __repr__(self) -> str:
        return f"watcher: {'; '.join(f'{what} fails' for what in self._failing) or 'all steps succeed'}"

    def start(self) -> None:
        """Begin the rounds, which go on until the session ends."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait until the last round is over, at most `timeout_s` seconds."""
        self._thread.join(timeout_s)

    def _watch(self) -> None:
        while not self._ended.wait(WATCH_S):
            sampled = self.attempt("sampling offsets", self.metrics.sample, unless=KafkaError)
            self._broker_answers = sampled and not self.cluster.silent_kafka
            for what, call, unless in self._steps:
                self.attempt(what, call, unless)
            stalled = partial(self.recovery.notice, self._broker_answers, self.metrics.rows_waiting)
            self.attempt("finding stalled queries", stalled)

    def _is_due(self, instance: Instance) -> bool:
        """Return whether an instance should end a batch: without its broker, none does."""
        return self._broker_answers and self.metrics.is_due(instance)

    def _is_idle(self, instance: Instance) -> bool:
        """Return whether an instance has read all rows that have come, and told so: none of its batches is under way.
        Without its broker, nothing tells."""
        return self._broker_answers and bool(instance.job.feeds) and not self.metrics.rows_waiting(instance)

    def attempt(self, what: str, call: Callable[[], object], unless: type[Exception] | None = None) -> bool:
        """Return whether a step succeeded. An error becomes an event if it is new and not of the type `unless`, which
        is reported elsewhere."""
        try:
            call()
        except Exception as error:
            if unless is not None and isinstance(error, unless):
                return False
            why = reason(error)
            if self._failing.get(what) != why:
                self._failing[what] = why
                self.cluster.event("watcher-failed", why=f"{what}: {why}")
            return False
        self._failing.pop(what, None)
        return True
