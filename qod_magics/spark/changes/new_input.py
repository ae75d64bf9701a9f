"""Read partitions and topics that appear while queries run: partitions that are added to a topic, and topics that match
the pattern of a stream.

Their readers get new jobs on their checkpoints, and `Mover.restart_outdated` restarts them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from qod_magics.application.tasks import TaskSpec
from qod_magics.errors import KafkaError, TaskManagerError
from qod_magics.kafka.history import OffsetHistory
from qod_magics.kafka.topics import topic_partitions
from qod_magics.sources.source import EARLIEST, matching
from qod_magics.spark.changes.deployer import Deployer
from qod_magics.spark.plans.job import feed_of
from qod_magics.spark.servers.connection import reason

#: How often topics are looked up that match the patterns of streams, seconds.
TOPICS_EVERY_S = 5.0


class NewInput:
    """Looks for new partitions and topics. One thread calls both methods about once a second; they do nothing while a
    deployment is under way.

    Args:
        deployer: gives tasks new jobs.
        history: of the offsets of all topics that are read.

    """

    def __init__(self, deployer: Deployer, history: OffsetHistory) -> None:
        self._deployer, self._history = deployer, history
        self._cluster = deployer.cluster
        self._looked_up = -TOPICS_EVERY_S  #: when topics of patterns were, by the monotonic clock

    def __repr__(self) -> str:
        return f"new input of tasks {', '.join(self._cluster.deployment.specs) or 'none'}"

    def read_partitions(self) -> None:
        """Assign partitions that were added to a topic to the instances that read it, from their first row."""
        with self._between_deployments() as between:
            deployment, now = self._cluster.deployment, time.monotonic()
            for spec in list(deployment.specs.values()) if between else ():
                grown = {}
                for head in spec.topics:
                    name = feed_of(spec, head)
                    there = len(self._history.at(deployment.accounts[name].topic, now))
                    if there > deployment.source_partitions[name]:
                        grown[name] = there
                if grown:
                    self._add_partitions(spec, grown)

    def read_topics(self) -> None:
        """Read topics that match a task's pattern since it was declared, from their first rows.

        Raises:
            KafkaError: the broker does not list its topics.
            TaskManagerError: topics that match can't be read; the others are.

        """
        deployment, now = self._cluster.deployment, time.monotonic()
        specs = [spec for spec in list(deployment.specs.values()) if spec.pattern is not None]
        if not specs or now < self._looked_up + TOPICS_EVERY_S:
            return
        self._looked_up = now
        there = topic_partitions(deployment.sources.context.of(""), timeout_s=TOPICS_EVERY_S)
        lacked: set[str] = set()  # by some task: another may read the topic already
        for spec in specs:
            lacked |= set(matching(spec.pattern or "", there)) - {topic.topic for topic in spec.topics.values()}
        begins: dict[str, Mapping[int, int]] = {}
        unread: dict[str, str] = {}
        for name in sorted(lacked):
            try:
                begins[name] = deployment.sources.begin(name, EARLIEST)
            except KafkaError as error:  # such as without a leader yet, or without the right to read it
                unread[name] = reason(error)
        self._add_topics(begins)
        if unread:
            which = "; ".join(f"{name}: {why}" for name, why in unread.items())
            raise TaskManagerError(
                f"topics that match a --topic-pattern are not read, and are tried every {TOPICS_EVERY_S:g} s: {which}",
                rule="readable",
            )

    def _add_topics(self, begins: Mapping[str, Mapping[int, int]]) -> None:
        with self._between_deployments() as between:
            deployment = self._cluster.deployment
            for spec in list(deployment.specs.values()) if between else ():
                had = {topic.topic for topic in spec.topics.values()}
                matched = [] if spec.pattern is None else matching(spec.pattern, begins)
                new = {name: begins[name] for name in matched if name not in had}
                if new:
                    self._deployer.renew_jobs(deployment.read_topics(spec.id, new))
                for name in new:
                    self._cluster.event("topic-added", task=spec.id, topic=name, partitions=len(new[name]))

    def _add_partitions(self, spec: TaskSpec, grown: Mapping[str, int]) -> None:
        deployment = self._cluster.deployment
        deployment.read_more(grown)
        self._deployer.renew_jobs(spec)
        for name, count in grown.items():
            account = deployment.accounts[name]
            self._cluster.event("partitions-added", task=spec.id, topic=account.topic, partitions=count)

    @contextmanager
    def _between_deployments(self) -> Iterator[bool]:
        """Within, no deployment begins; yields whether none is under way."""
        with self._cluster.lock:  # first: who holds it may ask for `deploying`, and must not find it held for this
            between = self._deployer.deploying.acquire(blocking=False)
            try:
                yield between
            finally:
                if between:
                    self._deployer.deploying.release()
