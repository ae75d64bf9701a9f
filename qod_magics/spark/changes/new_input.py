"""Read partitions and topics that appear while queries run: partitions that are added to a topic, and topics that match
the pattern of a stream. Those of a pattern that are deleted are read no more, and rows that were not read are counted.

Their readers get new jobs on their checkpoints, and `Mover.restart_outdated` restarts them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from qod_magics.application.tasks import TaskSpec
from qod_magics.errors import KafkaError, TaskManagerError
from qod_magics.kafka.history import OffsetHistory
from qod_magics.kafka.topics import absent_topics, topic_partitions
from qod_magics.sources.source import EARLIEST, matching
from qod_magics.spark.changes.deployer import Deployer
from qod_magics.spark.cluster.books import gone_text
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
        clock: seconds of a monotonic clock, the one of the history.

    """

    def __init__(self, deployer: Deployer, history: OffsetHistory, clock: Callable[[], float] = time.monotonic) -> None:
        self._deployer, self._history, self._clock = deployer, history, clock
        self._cluster = deployer.cluster
        self._looked_up = -TOPICS_EVERY_S  #: when topics of patterns were, by the clock
        self._absent: frozenset[str] = frozenset()  #: topics of patterns that were not there at the last look

    def __repr__(self) -> str:
        return f"new input of tasks {', '.join(self._cluster.deployment.specs) or 'none'}"

    def read_partitions(self) -> None:
        """Assign partitions that were added to a topic to the instances that read it, from their first row."""
        with self._between_deployments() as between:
            deployment, now = self._cluster.deployment, self._clock()
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
        """Read topics that match a task's pattern since it was declared, from their first rows, and those no more that
        were deleted: that are not there at two looks, as a broker that has just started may lack some.

        Raises:
            KafkaError: the broker does not list its topics.
            TaskManagerError: topics that match can't be read, or those of a task were all deleted; what can be done for
                the others is.

        """
        deployment, now = self._cluster.deployment, self._clock()
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
        alone = self._leave_topics(self._deleted(specs, there))
        if unread:
            which = "; ".join(f"{name}: {why}" for name, why in unread.items())
            raise TaskManagerError(
                f"topics that match a --topic-pattern are not read, and are tried every {TOPICS_EVERY_S:g} s: {which}",
                rule="readable",
            )
        if alone:
            raise TaskManagerError(
                f"{', '.join(alone)} must have another topic of its --topic-pattern, with a partition for each "
                "instance, got none, as topics were deleted; create one",
                rule="matches",
            )

    def _deleted(self, specs: Iterable[TaskSpec], there: Collection[str]) -> frozenset[str]:
        """Return the topics of tasks that are not there for the second time; `there`: those that are."""
        read = {topic.topic for spec in specs for topic in spec.topics.values()}
        kafka = self._cluster.deployment.sources.context.of("")
        absent = frozenset(absent_topics(kafka, read.difference(there), timeout_s=TOPICS_EVERY_S))
        before, self._absent = self._absent, absent
        return absent & before

    def _leave_topics(self, gone: Collection[str]) -> list[str]:
        """Let tasks read these topics of their patterns no more; return the tasks that have too few others."""
        alone = []
        with self._between_deployments() as between:
            deployment = self._cluster.deployment
            for spec in list(deployment.specs.values()) if between and gone else ():
                if spec.pattern is None:
                    continue
                feeds = {topic.topic: feed_of(spec, head) for head, topic in spec.topics.items()}
                left = [deployment.source_partitions[name] for topic, name in feeds.items() if topic not in gone]
                mine = {topic: name for topic, name in feeds.items() if topic in gone}
                if mine and max(left, default=0) < deployment.instances(spec):
                    alone.append(spec.id)
                elif mine:
                    self._leave(spec, mine)
        return alone

    def _leave(self, spec: TaskSpec, feeds: Mapping[str, str]) -> None:
        """Let a task read these topics no more, whose feeds are given, say so, and have the task tried again at once if
        it failed for them."""
        deployment, now = self._cluster.deployment, self._clock()
        ends = {topic: {p: int(end) for p, end in self._history.at(topic, now).items()} for topic in feeds}
        self._deployer.renew_jobs(deployment.leave_topics(spec.id, ends))
        for topic, feed in feeds.items():
            rows = deployment.accounts[feed].lost
            self._cluster.event("topic-gone", task=spec.id, topic=topic, rows=rows, why=gone_text(topic, rows))
        for instance in self._cluster.instances_of(spec.id):
            instance.try_anew()

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
